"""Pods are assumed on what was decided about them, unless that has changed meanwhile. No decision holds the lock."""

import threading
from dataclasses import dataclass

import pytest
from tests.builders import applied, guaranteed_pod, node, node_state, snapshot_of
from tests.reconcile.threads import at_once

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.reconcile.store import Store
from topomend.replay.admission import admit

POD = guaranteed_pod("p", 2)


@dataclass(frozen=True)
class Often:
    """A change that comes twice."""

    change: changes.Change

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        return applied(self.change, self.change, to=snapshot)


@pytest.fixture
def store() -> Store:
    store = Store()
    store.snapshot = snapshot_of(node_state(), node_state(name="b"))
    return store


def assumed(snapshot: Snapshot, name: str = "a") -> list[str]:
    return [pod.name for pod in snapshot.publications[name].assumed_pods]


def test_a_pod_is_assumed_on_the_nodes_that_are_as_they_were_when_it_was_decided_about(store: Store) -> None:
    assert store.assume(POD, ("a", "b"), store.without(POD), 1.0) == ()
    assert (assumed(store.snapshot), assumed(store.snapshot, "b")) == (["p"], ["p"])


@pytest.mark.parametrize(
    "change",
    [
        changes.PodAssumed(guaranteed_pod("other", 2), ("a",), 1.0),
        changes.Published(node_state(pods=[guaranteed_pod("other", 2)]), "9"),
        changes.Published(node_state(), "9", problem="its agent says so"),
        changes.Unpublished("a"),
        changes.NodeUpdated(node("a", unschedulable=True)),
        changes.NodeRemoved("a"),
        changes.NodeUpdated(node("a", capacity={"cpu": 1000})),
        Often(changes.ReplayOverspent("a", 1.0)),
    ],
)
def test_a_pod_is_assumed_nowhere_where_a_chosen_node_has_changed_since(store: Store, change: changes.Change) -> None:
    decided_on = store.without(POD)
    store.apply(change)
    before = store.snapshot
    assert store.assume(POD, ("a", "b"), decided_on, 1.0) == ("a",)
    assert store.snapshot is before
    assert store.assume(POD, ("b",), decided_on, 1.0) == ()


def test_a_heartbeat_and_changes_of_other_nodes_are_no_reason_to_decide_again(store: Store) -> None:
    decided_on = store.without(POD)
    store.apply(changes.Published(node_state(), "9"))
    store.apply(changes.PodAssumed(guaranteed_pod("other", 2), ("b",), 1.0))
    assert store.assume(POD, ("a",), decided_on, 1.0) == ()


def test_a_pod_that_goes_nowhere_gives_its_former_assumption_back_and_is_decided_about_without_it(store: Store) -> None:
    store.apply(changes.PodAssumed(POD, ("a",), 1.0))
    assert assumed(store.without(POD)) == []
    assert assumed(store.snapshot) == ["p"]
    assert store.assume(POD, (), store.without(POD), 1.0) == ()
    assert assumed(store.snapshot) == []


def test_changes_are_applied_while_another_thread_decides(store: Store) -> None:
    decided_on = store.without(POD)
    other = threading.Thread(target=store.apply, args=(changes.PodAssumed(guaranteed_pod("other", 1), ("a",), 1.0),))
    other.start()
    other.join(60)
    assert assumed(store.snapshot) == ["other"]
    assert store.assume(POD, ("a",), decided_on, 1.0) == ("a",)


def test_pods_are_never_assumed_beyond_what_a_node_admits(store: Store) -> None:
    """Eight threads want 2 CPUs each of a NUMA node; one has room for one of them, the other for two."""
    placed: list[str] = []

    def place(name: str) -> None:
        pod = guaranteed_pod(name, 2)
        while True:
            snapshot = store.without(pod)
            verdict, _ = admit(snapshot.publications["a"].state_with_assumed(), pod)
            if not verdict.admitted:
                return
            if not store.assume(pod, ("a",), snapshot, 1.0):
                placed.append(name)
                return

    at_once([lambda name=f"p{number}": place(name) for number in range(8)])  # type: ignore[misc]
    assert sorted(placed) == sorted(assumed(store.snapshot))
    assert len(placed) == 3


def test_a_node_set_aside_is_asked_again_after_a_while_that_grows_and_starts_anew_when_it_has_behaved() -> None:
    unknown = "it is set aside for a while: replay of what its agent publishes takes too long"
    now, waits = 0.0, []
    snapshot = applied(changes.ReplayOverspent("a", now), to=snapshot_of(node_state()))
    assert snapshot.why_unknown("a") == ""
    for _ in range(8):
        snapshot = applied(changes.ReplayOverspent("a", now), to=snapshot)
        began = now
        while snapshot.why_unknown("a"):
            assert snapshot.why_unknown("a") == unknown
            now += 30.0
            again = changes.ReplayOverspent("a", now), changes.Published(node_state(cpu_options=""), str(now))
            snapshot = applied(*again, changes.TimePassed(now), to=snapshot)
        waits.append(now - began)
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    snapshot = applied(changes.TimePassed(now + 3600), to=snapshot)
    assert not snapshot.set_aside


def test_a_node_that_takes_too_long_once_in_a_while_is_never_set_aside() -> None:
    snapshot = snapshot_of(node_state())
    for now in (0.0, 100.0, 200.0):
        snapshot = applied(changes.TimePassed(now), changes.ReplayOverspent("a", now), to=snapshot)
        assert snapshot.why_unknown("a") == ""
    snapshot = applied(changes.ReplayOverspent("a", 201.0), to=snapshot)
    assert snapshot.why_unknown("a")
