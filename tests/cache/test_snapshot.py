"""Which publication is newer, and when the topology of the cluster has changed."""

import pytest
from tests.builders import applied, guaranteed_pod, node, node_state, snapshot_of

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot, is_newer, topology_changed

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
