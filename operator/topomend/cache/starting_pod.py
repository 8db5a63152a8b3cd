"""Whether a pod of a node, which the node does not publish, is about to hold something there.

Who moves pods asks it of each pod that it lists: the room of such a node is not what its state shows. Leaves the fields
of the object to ``wire``.
"""

from typing import Any

from topomend.model.nodes.node_state import NodeState
from topomend.replay.admission import may_allocate
from topomend.wire.document import MalformedObject
from topomend.wire.pods.pod import read_pod


def may_come_to_hold(content: dict[str, Any], state: NodeState) -> bool:
    """Whether the pod of a Pod object starts on the node in this state, which has nothing of it, and may hold something
    exclusively. A pod that cannot be read may hold anything."""
    if content.get("status", {}).get("phase") != "Pending":
        return False
    try:
        return may_allocate(state, read_pod(content))
    except MalformedObject:
        return True
