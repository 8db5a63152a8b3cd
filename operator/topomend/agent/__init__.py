"""The agent: one process on each node that keeps the node's NodeTopology up to date.

A door: it owns the loop, its timing and its metrics. Reading the node is left to ``discover``, writing the objects to
``publish``, flags to ``cli``. It decides nothing about pods.
"""

from topomend.agent.loop import AgentSettings, run

__all__ = ["AgentSettings", "run"]
