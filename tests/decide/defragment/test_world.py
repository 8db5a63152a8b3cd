"""The cluster as a simulation begins with it."""

from tests.builders import applied, guaranteed_pod, node_state, snapshot_of

from topomend.cache import changes
from topomend.decide.defragment.world import settled
from topomend.replay.effort import UNLIMITED


def test_pods_that_are_about_to_come_to_a_node_are_there() -> None:
    comes = changes.PodAssumed(guaranteed_pod("comes"), ("a",), 1.0)
    world = settled(applied(comes, to=snapshot_of(node_state(name="a"), node_state(name="b"))), UNLIMITED)
    assert {name: len(each.state.pods) for name, each in world.publications.items()} == {"a": 1, "b": 0}
