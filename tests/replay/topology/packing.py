"""Nodes whose Topology Manager packs pods onto the NUMA node that is allocated most."""

from typing import Any

from tests.builders import node_state

from topomend.model.nodes.node_state import NodeState

OPTION = "prefer-most-allocated-numa-node"
GATE = "TopologyManagerPolicyAlphaOptions"


def packing_node(shape: str, policy: str = "single-numa-node", **settings: Any) -> NodeState:
    """A node with the option on, unless ``settings`` say otherwise."""
    return node_state(shape, policy, **{"options": f"{OPTION}=true", "gates": GATE} | settings)
