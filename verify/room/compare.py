"""One random cluster: what ``make_room`` answers beside what trying every set finds."""

from dataclasses import dataclass
from random import Random

from verify.room.clusters import ANY_NODE, Cost, FullCluster, cheapest, cost_of, full_cluster, makes_room

from topomend.decide.queue.room import Room, make_room


@dataclass(frozen=True)
class Compared:
    """What came of a cluster: ``kind`` is ``fits``, ``room`` or ``none``; ``fault`` is empty where both agree."""

    kind: str
    fault: str


def compare(random: Random, most_nodes: int) -> Compared:
    """Draw a cluster of at most so many nodes, and ask both."""
    cluster = full_cluster(random, most_nodes)
    expected, found = cheapest(cluster), make_room(cluster.snapshot, cluster.pod, ANY_NODE, cluster.occupied)
    kind = "none" if expected is None else "room" if expected[0] else "fits"
    return Compared(kind, _fault(cluster, expected, found))


def _fault(cluster: FullCluster, expected: Cost | None, found: Room | None) -> str:
    if expected is None or found is None:
        return "" if expected is None and found is None else f"expected {expected}, found {found}"
    cost = cost_of(found.pods, found.leaving)
    if cost != expected:
        return f"expected {expected}, found {cost}: {found}"
    if not makes_room(cluster, found.node, [*found.leaving, *found.pods]):
        return f"{found} makes no room"
    return "" if found.is_fewest else "not said to be the fewest"
