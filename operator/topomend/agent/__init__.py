"""The agent: one process on each node that keeps the node's NodeTopology true. Composition only."""

from topomend.agent.loop import AgentSettings, run

__all__ = ["AgentSettings", "run"]
