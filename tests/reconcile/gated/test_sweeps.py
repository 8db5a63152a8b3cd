"""On which nodes victims are looked for: each once, then those that have changed."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from tests.builders import gated_pod, guaranteed_pod, node_state, running, snapshot_of
from tests.clock import Clock

from topomend.cache.changes import NodeRemoved, PodAssumed, Published, apply
from topomend.cache.snapshot import Snapshot
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.gated.sweeps import MAX_NODES, MAX_SWEEPS, REPEATS, Look, Sweeps
from topomend.replay.admission import release

URGENT = gated_pod("urgent", 3, priority=10)
NAMES = [f"node-{number:02d}" for number in range(MAX_NODES + 5)]
FULL = [running(node_state(name=name), guaranteed_pod("a", 3), guaranteed_pod("b", 4)) for name in NAMES]


class Sweeping:
    """Sweeps of full nodes, all alike."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.clock = Clock()
        self.sweeps, self.snapshot = Sweeps(self.clock), snapshot or snapshot_of(*FULL)
        self.sweeps.note(self.snapshot)

    def look(self, barred: Collection[str] = (), *, of: WatchedPod = URGENT, again: Sequence[str] = ()) -> Look:
        """Look at what is next; at those in ``again`` once more after that."""
        self.clock.now += 0.5
        self.sweeps.note(self.snapshot)
        look = self.sweeps.next(self.snapshot, of, barred)
        self.sweeps.looked(of, look, again)
        return look

    def all(self) -> list[str]:
        """Look until nothing is left."""
        names: list[str] = []
        while (look := self.look()).nodes:
            names += look.nodes
        return names


def test_each_node_is_looked_at_once() -> None:
    sweeping = Sweeping()
    first = sweeping.look()
    assert (list(first.nodes), first.is_first, first.more) == (NAMES[:MAX_NODES], True, True)
    second = sweeping.look()
    assert (list(second.nodes), second.is_first, second.more) == (NAMES[MAX_NODES:], True, False)
    assert sweeping.look() == Look([], is_first=False, barred=[], more=False)


def test_a_node_that_would_not_admit_the_pod_when_empty_is_not_looked_at() -> None:
    sweeping = Sweeping(snapshot_of(*FULL, node_state("numa:2 cores:2 memory:8Gi", name="small")))
    assert sorted(sweeping.all()) == NAMES


def test_a_node_is_looked_at_again_once_it_has_changed() -> None:
    sweeping = Sweeping()
    sweeping.all()
    sweeping.snapshot = apply(sweeping.snapshot, Published(release(FULL[3], "ns", "a"), "99"))
    look = sweeping.look()
    assert (list(look.nodes), look.is_first) == ([NAMES[3]], False)
    assert not sweeping.look().nodes
    sweeping.snapshot = apply(sweeping.snapshot, PodAssumed(guaranteed_pod("d", 1), (NAMES[4],), 0.0))
    assert list(sweeping.look().nodes) == [NAMES[4]]


def test_all_are_looked_at_again_after_ever_longer_times_for_not_every_change_is_seen() -> None:
    sweeping = Sweeping()
    sweeping.all()
    for seconds in (REPEATS.first, 2 * REPEATS.first, REPEATS.longest):
        sweeping.clock.now += seconds - 30
        assert not sweeping.look().nodes, seconds
        sweeping.clock.now += 30
        assert sorted(sweeping.all()) == NAMES


def test_a_barred_node_is_looked_at_once_it_is_not() -> None:
    sweeping = Sweeping()
    look = sweeping.look(barred=NAMES)
    assert (look.nodes, sorted(look.barred), look.more) == ([], NAMES, True)
    assert list(sweeping.look(barred=NAMES[1:]).nodes) == NAMES[:1]
    assert sorted(sweeping.all()) == NAMES[1:]


def test_a_node_that_others_leave_is_looked_at_again() -> None:
    sweeping = Sweeping()
    sweeping.look(again=NAMES[:1])
    look = sweeping.look()
    assert look.is_first, "those that are new come first"
    assert list(sweeping.look().nodes) == NAMES[:1]


def test_what_was_not_looked_at_after_all_is_next() -> None:
    sweeping = Sweeping()
    assert sweeping.sweeps.next(sweeping.snapshot, URGENT, ()).nodes == sweeping.look().nodes


def test_a_node_that_is_gone_is_forgotten() -> None:
    sweeping = Sweeping()
    sweeping.snapshot = apply(sweeping.snapshot, NodeRemoved(NAMES[2]))
    assert sorted(sweeping.all()) == [name for name in NAMES if name != NAMES[2]]


def test_a_pod_begins_anew_where_it_is_no_longer_known_where_it_looked_but_its_nodes_are_not_new() -> None:
    sweeping = Sweeping()
    sweeping.all()
    for number in range(MAX_SWEEPS):
        assert sweeping.look(of=replace(URGENT, uid=f"other-{number}")).is_first
    look = sweeping.look()
    assert (len(look.nodes), look.is_first) == (MAX_NODES, False)
