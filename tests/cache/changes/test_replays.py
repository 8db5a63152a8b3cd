"""Refusals that replay did not predict, and until when they count against their node."""

from dataclasses import replace

from tests.builders import applied, guaranteed_pod, node_state, pod_allocation

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot

EMPTY = node_state()
PUBLISHED = changes.Published(EMPTY, "3")


def with_mismatches(count: int, snapshot: Snapshot) -> Snapshot:
    """The snapshot after node a refused this many pods that replay admits."""
    return applied(*(changes.MismatchDetected("a", f"uid-{number}", 10.0) for number in range(count)), to=snapshot)


def test_a_mismatch_reported_twice_counts_once_and_lasts_no_longer() -> None:
    mismatches = [changes.MismatchDetected("a", "uid", now) for now in (10.0, 500.0)]
    snapshot = applied(*mismatches, to=applied(PUBLISHED))
    assert len(snapshot.mismatches["a"].pods) == 1
    assert not applied(changes.TimePassed(10.0 + changes.MISMATCH_SECONDS), to=snapshot).mismatches


def test_mismatches_of_several_pods_are_forgotten_ten_minutes_after_the_last() -> None:
    snapshot = with_mismatches(2, applied(PUBLISHED))
    assert with_mismatches(2, snapshot) == snapshot
    assert len(snapshot.mismatches["a"].pods) == 2
    assert applied(changes.TimePassed(609.0), to=snapshot).mismatches
    assert not applied(changes.TimePassed(610.0), to=snapshot).mismatches


def test_mismatches_end_when_the_topology_of_the_node_changes_and_not_when_its_pods_do() -> None:
    snapshot = with_mismatches(3, applied(PUBLISHED))
    used = replace(EMPTY, pods=(pod_allocation("other", "1-2"),))
    assert applied(changes.Published(used, "4"), to=snapshot).mismatches
    larger = replace(EMPTY, machine=node_state("numa:2 cores:8").machine)
    assert not applied(changes.Published(larger, "4"), to=snapshot).mismatches


def test_mismatches_end_when_the_node_admits_a_pod_as_predicted() -> None:
    snapshot = with_mismatches(3, applied(PUBLISHED))
    snapshot = applied(changes.PodAssumed(guaranteed_pod(), ("a",), 11.0), to=snapshot)
    shown = replace(EMPTY, pods=(pod_allocation("p", "1-2"),))
    assert not applied(changes.Published(shown, "4"), to=snapshot).mismatches
