"""Which publication is newer, and when the topology of the cluster has changed."""

import pytest
from tests.builders import applied, guaranteed_pod, node, node_state, snapshot_of

from topomend.cache import changes
from topomend.cache.snapshot import MAX_LATER_STATES, LaterStates, Snapshot, is_newer, topology_changed
from topomend.replay.effort import UNLIMITED

BEFORE = snapshot_of(node_state())


@pytest.mark.parametrize(
    ("version", "other", "newer"),
    [("10", "9", True), ("9", "10", False), ("9", "9", False), ("b", "a", True), ("a", "b", True), ("a", "a", False)],
)
def test_versions_are_compared_as_numbers_and_other_texts_are_newer_when_they_differ(
    version: str, other: str, newer: bool
) -> None:
    assert is_newer(version, other) == newer


def test_pods_that_come_and_go_do_not_change_the_topology() -> None:
    used = applied(changes.Published(node_state(pods=[guaranteed_pod()]), "4"), to=BEFORE)
    assert not topology_changed(BEFORE, used)
    assert not topology_changed(BEFORE, applied(changes.PodAssumed(guaranteed_pod(), ("a",), 1.0), to=BEFORE))


@pytest.mark.parametrize(
    "change",
    [
        changes.Published(node_state("sockets:2 cores:4 memory:8Gi device:vendor.com/gpu@0=1"), "5"),
        changes.Published(node_state(policy="restricted"), "5"),
        changes.Published(node_state(), "5", problem="its agent says so"),
        changes.NodeUpdated(node("a", unschedulable=True)),
        changes.NodeUpdated(node("b")),
        changes.NodeRemoved("a"),
        changes.Unpublished("a"),
    ],
    ids=["devices", "kubelet", "problem", "cordoned", "new node", "removed node", "unpublished"],
)
def test_a_change_of_machine_kubelet_or_node_changes_the_topology(change: changes.Change) -> None:
    assert topology_changed(BEFORE, applied(change, to=BEFORE))


def test_an_unknown_state_says_why_it_is_unknown() -> None:
    assert BEFORE.why_unknown("a") == ""
    assert Snapshot().why_unknown("a") == "no agent publishes its state"
    assert applied(changes.Unreadable("a", "no machine"), to=BEFORE).why_unknown("a") == "no machine"


def test_a_later_pod_is_admitted_on_top_of_the_earlier_ones_and_these_are_not_admitted_again() -> None:
    first, second = guaranteed_pod("first", 1), guaranteed_pod("second", 1)
    one = applied(changes.PodAssumed(first, ("a",), 1.0), to=BEFORE)
    with_first = one.publications["a"].state_with_assumed()
    two = applied(changes.PodAssumed(second, ("a",), 1.0), to=one)
    assert [pod.name for pod in two.publications["a"].state_with_assumed().pods] == ["first", "second"]
    again = applied(changes.PodForgotten(second.namespace, second.name), to=two)
    assert again.publications["a"].state_with_assumed() is with_first


def test_a_state_that_is_published_again_with_another_problem_keeps_what_follows_it() -> None:
    assumed = applied(changes.PodAssumed(guaranteed_pod("first", 1), ("a",), 1.0), to=BEFORE)
    before = assumed.publications["a"]
    after = applied(changes.Published(before.state, "9", problem="its agent says so"), to=assumed).publications["a"]
    assert after.state_with_assumed() is before.state_with_assumed()


def test_few_later_states_are_remembered_and_those_that_are_not_are_worked_out_again() -> None:
    state, later = node_state(), LaterStates()
    pods = [guaranteed_pod(f"p{number}", 1) for number in range(3 * MAX_LATER_STATES)]
    states = [later.with_pod(state, pod, UNLIMITED) for pod in pods]
    assert len(later._states) <= MAX_LATER_STATES
    assert later.with_pod(state, pods[-1], UNLIMITED) is states[-1]
    assert later.with_pod(state, pods[0], UNLIMITED) == states[0]
    assert later.without_pod(states[0], ("ns", "p0")) == state
    assert later.without_pod(states[0], ("ns", "p0")) is later.without_pod(states[0], ("ns", "p0"))
