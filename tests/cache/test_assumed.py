"""Which pods count against a node beside those that its agent publishes."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import (
    applied,
    guaranteed_pod,
    node_state,
    pod,
    pod_allocation,
    refused_pod,
    running,
    watched_pod,
)

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.model.nodes.node_state import NodeState
from topomend.replay.admission import admit

EMPTY = node_state()
PUBLISHED = changes.Published(EMPTY, "3")


def pods_on(snapshot: Snapshot, node: str = "a") -> list[str]:
    """The pods that count against a node."""
    return [pod.name for pod in snapshot.publications[node].state_with_assumed().pods]


def test_an_ungated_pod_is_assumed_on_every_node_that_it_may_go_to() -> None:
    other = changes.Published(replace(EMPTY, name="b"), "4")
    snapshot = applied(PUBLISHED, other, changes.PodAssumed(guaranteed_pod(), ("a", "b"), 1.0))
    assert (pods_on(snapshot, "a"), pods_on(snapshot, "b")) == (["p"], ["p"])
    snapshot = applied(changes.PodUpdated(watched_pod(node="b"), 2.0), to=snapshot)
    assert (pods_on(snapshot, "a"), pods_on(snapshot, "b")) == ([], ["p"])


def test_a_pod_that_any_scheduler_bound_is_assumed_until_it_is_published() -> None:
    snapshot = applied(PUBLISHED, changes.PodUpdated(watched_pod(node="a"), 1.0))
    assert pods_on(snapshot) == ["p"]
    shown = pod_allocation("p", "1-2")
    snapshot = applied(changes.Published(replace(EMPTY, pods=(shown,)), "4"), to=snapshot)
    assert pods_on(snapshot) == ["p"]
    assert not snapshot.assumed


def test_a_bound_pod_without_exclusive_resources_is_not_assumed() -> None:
    shared = watched_pod(node="a", pod=pod("p", ""))
    assert not applied(PUBLISHED, changes.PodUpdated(shared, 1.0)).assumed


def test_a_pod_that_left_the_watch_stays_assumed_for_ten_seconds() -> None:
    snapshot = applied(
        PUBLISHED, changes.PodUpdated(watched_pod(node="a"), 1.0), changes.PodRemoved("ns", "p", "p", 2.0)
    )
    assert pods_on(applied(changes.TimePassed(11.9), to=snapshot)) == ["p"]
    assert pods_on(applied(changes.TimePassed(12.0), to=snapshot)) == []


def test_a_replacement_stays_assumed_while_the_refused_pod_of_its_name_is_deleted() -> None:
    snapshot = applied(
        PUBLISHED, changes.PodUpdated(refused_pod(), 1.0), changes.PodAssumed(guaranteed_pod(uid=""), ("a",), 1.0)
    )
    snapshot = applied(
        changes.PodUpdated(refused_pod(version="6"), 1.1), changes.PodRemoved("ns", "p", "p", 1.2), to=snapshot
    )
    assert pods_on(applied(changes.TimePassed(20.0), to=snapshot)) == ["p"]
    assert pods_on(applied(changes.TimePassed(31.0), to=snapshot)) == []


def test_a_refused_pod_is_forgotten_at_once() -> None:
    snapshot = applied(
        PUBLISHED, changes.PodUpdated(watched_pod(node="a"), 1.0), changes.PodUpdated(refused_pod(), 2.0)
    )
    assert pods_on(snapshot) == []


def test_a_forgotten_pod_no_longer_counts() -> None:
    snapshot = applied(PUBLISHED, changes.PodAssumed(guaranteed_pod(), ("a",), 1.0), changes.PodForgotten("ns", "p"))
    assert pods_on(snapshot) == []


@pytest.mark.parametrize(("uid", "counts"), [("old", True), ("new", False), ("", False)])
def test_a_pod_is_forgotten_by_its_uid_and_not_with_an_earlier_one_of_its_name(uid: str, counts: bool) -> None:
    assumed = changes.PodAssumed(replace(guaranteed_pod(), uid="new"), ("a",), 1.0)
    snapshot = applied(PUBLISHED, assumed, changes.PodForgotten("ns", "p", uid))
    assert bool(pods_on(snapshot)) is counts


def holding(*names: str, release: str = DEFAULT_VERSION) -> NodeState:
    return node_state(pods=map(guaranteed_pod, names), version=release)


def ended(version: str = "5", phase: str = "Succeeded", uid: str | None = None) -> changes.PodUpdated:
    return changes.PodUpdated(watched_pod(version=version, phase=phase, node="a", uid=uid), 20.0)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_no_longer_counts_before_its_agent_publishes(phase: str) -> None:
    snapshot = applied(changes.Published(holding("p", "q"), "3"), ended(phase=phase))
    assert pods_on(snapshot) == ["q"]
    assert (
        snapshot.publications["a"].state_with_assumed()
        is applied(ended(version="6"), to=snapshot).publications["a"].state_with_assumed()
    )


def test_the_end_of_a_pod_that_its_node_never_published_is_not_remembered() -> None:
    assert applied(PUBLISHED, ended()).publications["a"].ended == {}


def test_a_publication_later_than_the_end_of_a_pod_is_trusted() -> None:
    state = holding("p", "q")
    assert pods_on(applied(changes.Published(state, "6"), ended(version="5"))) == ["p", "q"]
    over = applied(changes.Published(state, "3"), ended(version="5"))
    assert pods_on(applied(changes.Published(state, "6"), to=over)) == ["p", "q"]
    assert pods_on(applied(changes.Published(holding("p"), "6"), to=over)) == ["p"]


def test_a_pod_that_is_still_published_ten_seconds_after_its_end_counts_again() -> None:
    snapshot = applied(changes.Published(holding("p", "q"), "3"), ended())
    assert pods_on(applied(changes.TimePassed(29.9), to=snapshot)) == ["q"]
    assert pods_on(applied(changes.TimePassed(30.0), to=snapshot)) == ["p", "q"]


@pytest.mark.parametrize(("release", "counts"), [("v1.31.4", ["q"]), ("v1.32.0", ["p", "q"])])
def test_before_1_32_a_pod_does_not_count_after_its_end_however_long_its_node_publishes_it(
    release: str, counts: list[str]
) -> None:
    state, more = holding("p", "q", release=release), holding("p", "q", "r", release=release)
    over = applied(changes.Published(state, "3"), ended())
    assert pods_on(applied(changes.TimePassed(3600.0), to=over)) == counts
    assert pods_on(applied(changes.Published(state, "6"), to=over)) == counts
    assert pods_on(applied(changes.Published(more, "6"), to=over)) == [*counts, "r"]
    assert pods_on(applied(changes.Published(state, "6"), ended())) == counts


def test_before_1_32_another_pod_of_the_name_of_an_ended_one_counts() -> None:
    def state(uid: str) -> NodeState:
        return running(holding(release="v1.31.4"), guaranteed_pod(uid=uid))

    assert pods_on(applied(changes.Published(state("2"), "6"), ended(uid="1"))) == ["p"]
    over = applied(changes.Published(state("1"), "3"), ended(uid="1"))
    assert pods_on(over) == []
    assert pods_on(applied(changes.Published(state("2"), "6"), to=over)) == ["p"]


def test_a_refused_pod_takes_nothing_from_a_running_one_of_its_name() -> None:
    snapshot = applied(changes.Published(holding("p"), "3"), changes.PodUpdated(refused_pod(), 20.0))
    assert pods_on(snapshot) == ["p"]


def test_the_next_pod_of_the_name_of_an_ended_one_is_assumed_by_itself() -> None:
    next_one = watched_pod(cpus=3, uid="2", version="7", node="a")
    snapshot = applied(changes.Published(holding("p"), "3"), ended(), changes.PodUpdated(next_one, 21.0))
    assert [pod.uid for pod in snapshot.publications["a"].assumed_pods] == ["2"]
    assert snapshot.publications["a"].state_with_assumed() == running(EMPTY, next_one.pod)
    again = applied(changes.TimePassed(30.0), to=snapshot)
    assert [pod.uid for pod in again.publications["a"].state_with_assumed().pods] == ["p", "2"]


# The next pod of the name of one that was deleted by force: its node still publishes that one

OLD_ONE = guaranteed_pod(cpus=4, uid="old")


def old_one(uid: str = "old") -> NodeState:
    """A node that holds it; its agent knows this uid."""
    state = running(EMPTY, OLD_ONE)
    return replace(state, pods=tuple(replace(each, uid=uid) for each in state.pods))


def next_bound(**fields: Any) -> changes.PodUpdated:
    return changes.PodUpdated(watched_pod(cpus=4, uid="next", version="20", node="a", **fields), 1.0)


def test_the_next_pod_counts_beside_one_that_was_deleted_by_force_until_it_is_published_itself() -> None:
    """There is room for one of both alone."""
    snapshot = applied(changes.Published(old_one(), "10"), next_bound())
    for version, state in (("21", running(old_one(), guaranteed_pod("q", 1))), ("22", EMPTY)):
        assert [each.uid for each in snapshot.publications["a"].assumed_pods] == ["next"]
        snapshot = applied(changes.Published(state, version), to=snapshot)
        assert [each.uid for each in snapshot.publications["a"].assumed_pods] == ["next"]
    assert not admit(snapshot.publications["a"].state_with_assumed(), guaranteed_pod("other", 4))[0].admitted
    snapshot = applied(changes.Published(running(EMPTY, guaranteed_pod(cpus=4, uid="next")), "23"), to=snapshot)
    assert not snapshot.assumed


def test_the_next_pod_has_arrived_where_it_is_published_beside_the_one_before() -> None:
    both = running(old_one(), guaranteed_pod(cpus=2, uid="next"))
    assert not applied(changes.Published(both, "10"), next_bound()).assumed


def test_the_next_pod_stays_assumed_on_all_of_its_nodes_where_one_publishes_the_one_before() -> None:
    other = changes.Published(replace(EMPTY, name="b"), "4")
    coming = changes.PodAssumed(guaranteed_pod(cpus=2, uid="next"), ("a", "b"), 1.0)
    snapshot = applied(other, changes.Published(EMPTY, "5"), coming, changes.Published(old_one(), "6"))
    assert (pods_on(snapshot, "a"), pods_on(snapshot, "b")) == (["p", "p"], ["p"])


@pytest.mark.parametrize("published_first", [True, False])
def test_where_an_agent_knows_no_uid_the_name_tells(*, published_first: bool) -> None:
    order = [changes.Published(old_one(uid=""), "10"), next_bound()]
    snapshot = applied(PUBLISHED, *(order if published_first else reversed(order)))
    assert not snapshot.assumed
    assert pods_on(snapshot) == ["p"]


@pytest.mark.parametrize("published_first", [True, False])
def test_a_static_pod_is_published_by_another_uid_than_its_mirror_has(*, published_first: bool) -> None:
    order = [changes.Published(old_one(uid="hash of its file"), "10"), next_bound(mirror=True)]
    snapshot = applied(PUBLISHED, *(order if published_first else reversed(order)))
    assert not snapshot.assumed
    assert pods_on(snapshot) == ["p"]


def test_a_pod_that_ended_hides_no_next_one_of_its_name() -> None:
    snapshot = applied(changes.Published(old_one(), "3"), ended(version="5", uid="old"), next_bound())
    assert snapshot.publications["a"].shown == set()
    assert [each.uid for each in snapshot.publications["a"].state_with_assumed().pods] == ["next"]


class _Nodes(tuple[str, ...]):
    """Names of nodes that count how often somebody goes through them."""

    times = 0

    def __iter__(self) -> Iterator[str]:
        type(self).times += 1
        return super().__iter__()

    def __contains__(self, name: object) -> bool:
        type(self).times += 1
        return super().__contains__(name)


def test_the_nodes_of_an_assumed_pod_are_gone_through_as_often_for_one_node_as_for_many() -> None:
    """The times, once for each node, would be their number squared: 25 million for a pod that may go to 5,000 nodes."""
    times = list[int]()
    for number in (2, 30):
        names = _Nodes(f"n{each}" for each in range(number))
        snapshot = applied(*(changes.Published(replace(EMPTY, name=name), "3") for name in names))
        for name in ("first", "second"):
            snapshot = changes.apply(snapshot, changes.PodAssumed(guaranteed_pod(name, 1), names, now=0.0))
        _Nodes.times = 0
        expired = changes.apply(snapshot, changes.TimePassed(31.0))
        assert (len(snapshot.assumed), expired.assumed) == (2, {})
        times.append(_Nodes.times)
    assert times[0] == times[1] > 0
