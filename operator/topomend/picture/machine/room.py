"""The node on which a pod fits once others have ended, with those marked that have to go.

Owns the words. Leaves the node's drawing to ``node``, and who has to go to ``decide.queue.room``.
"""

from collections.abc import Sequence

from topomend.decide.queue.room import Room
from topomend.model.nodes.node_state import NodeState
from topomend.picture.drawing.document import Picture, Section, Table
from topomend.picture.machine import node
from topomend.picture.machine.facts import Subject


def picture_of(name: str, room: Room | None, state: NodeState | None, words: Sequence[str]) -> Picture:
    """The picture of the advice for the pod ``name``; ``state`` is the node's, None where there is no room."""
    title = f"Room for {name}"
    if room is None or state is None:
        return Picture(title, [Section("No room", words=words)])
    pods = (*room.leaving, *room.pods)
    going = {(pod.namespace, pod.name) for pod in pods}
    drawn = node.section_of(Subject(state, going=going))
    rows = [
        (pod.shown, str(pod.priority), pod.owner or "-", "is being deleted" if pod.leaving else "has to go")
        for pod in pods
    ]
    tables = [Table("Pods", ("Pod", "Priority", "Owner", "What"), rows)] if rows else []
    return Picture(title, [Section(drawn.heading, drawn.drawing, [*words, *drawn.words], [*tables, *drawn.tables])])
