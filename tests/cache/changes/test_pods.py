"""Which pods the snapshot keeps, and until when."""

from typing import Any

import pytest
from tests.builders import applied, refused_pod, watched_pod

from topomend.cache import changes
from topomend.model.pods.scheduling import Owner, WatchedPod
from topomend.wire.group import RELAUNCH_FINALIZER, RELAUNCH_GATE


def test_a_refusal_keeps_the_version_and_time_at_which_it_was_first_seen() -> None:
    snapshot = applied(
        changes.PodUpdated(refused_pod(version="5"), 1.0), changes.PodUpdated(refused_pod(version="9"), 2.0)
    )
    refusal = snapshot.refused["p"]
    assert (refusal.version, refusal.first_seen, refusal.pod.version) == ("5", 1.0, "9")


def test_a_refused_pod_still_belongs_to_a_controller_that_is_deleted() -> None:
    owned = refused_pod(owner=Owner("Job", "train", "9"))
    snapshot = applied(changes.PodUpdated(owned, 10.0), changes.PodUpdated(refused_pod(version="6"), 11.0))
    assert snapshot.refused["p"].pod.owner == owned.owner
    assert applied(changes.PodUpdated(refused_pod(), 10.0)).refused["p"].pod.owner is None


def test_a_pod_whose_container_failed_is_not_a_refusal() -> None:
    assert not applied(changes.PodUpdated(watched_pod(phase="Failed", reason="Error"), 1.0)).refused


def test_a_gated_pod_is_kept_until_its_gate_is_removed() -> None:
    snapshot = applied(changes.PodUpdated(watched_pod(gates=(RELAUNCH_GATE,)), 1.0))
    assert snapshot.gated
    assert set(snapshot.gated_since.values()) == {1.0}
    updated = applied(changes.PodUpdated(watched_pod(gates=(RELAUNCH_GATE,), version="9"), 2.0), to=snapshot)
    assert set(updated.gated_since.values()) == {1.0}
    gone = applied(changes.PodUpdated(watched_pod(), 2.0), to=snapshot)
    assert not gone.gated
    assert not gone.gated_since


def test_a_list_replaces_every_pod_that_is_not_newer_than_it() -> None:
    snapshot = applied(
        changes.PodUpdated(refused_pod(uid="1", version="5"), 1.0),
        changes.PodUpdated(refused_pod(uid="2", version="8"), 1.0),
    )
    snapshot = applied(changes.PodsListed((refused_pod(uid="3", version="6"),), "7", 2.0), to=snapshot)
    assert set(snapshot.refused) == {"2", "3"}


def test_every_pod_that_ceases_to_wait_is_counted_and_no_other() -> None:
    waiting = (
        changes.PodUpdated(watched_pod(name="g", uid="g", gates=(RELAUNCH_GATE,), version="5"), 1.0),
        changes.PodUpdated(refused_pod(name="r", uid="r", version="5"), 1.0),
    )
    snapshot = applied(*waiting, *waiting)
    assert snapshot.departures == 0
    assert applied(changes.PodUpdated(watched_pod(name="g", uid="g", version="6"), 2.0), to=snapshot).departures == 1
    assert applied(changes.PodRemoved("ns", "g", "g", 2.0), to=snapshot).departures == 1
    assert applied(changes.PodRemoved("ns", "g", "another", 2.0), to=snapshot).departures == 0
    assert applied(changes.PodRemoved("ns", "r", "r", 2.0), to=snapshot).departures == 1
    assert (
        applied(changes.PodsListed((refused_pod(name="r", uid="r", version="5"),), "9", 2.0), to=snapshot).departures
        == 1
    )
    assert applied(changes.PodsListed((), "9", 2.0), to=snapshot).departures == 2


def stuck(**fields: Any) -> WatchedPod:
    return watched_pod(**{"narrowed": True, "unschedulable": True, **fields})


def test_an_ungated_pod_that_the_scheduler_cannot_bind_is_unbound_since_it_was_first_seen_so() -> None:
    snapshot = applied(changes.PodUpdated(stuck(version="5"), 1.0), changes.PodUpdated(stuck(version="6"), 2.0))
    unbound = snapshot.unbound["ns", "p"]
    assert (unbound.pod.version, unbound.since) == ("6", 1.0)
    assert applied(changes.PodUpdated(stuck(uid="another"), 3.0), to=snapshot).unbound["ns", "p"].since == 3.0
    assert not applied(changes.PodUpdated(stuck(unschedulable=False), 3.0), to=snapshot).unbound
    assert not applied(changes.PodRemoved("ns", "p", unbound.pod.uid, 3.0), to=snapshot).unbound
    assert applied(changes.PodRemoved("ns", "p", "another", 3.0), to=snapshot).unbound
    assert not applied(changes.PodsListed((), "9", 3.0), to=snapshot).unbound


@pytest.mark.parametrize(
    "fields",
    [{"narrowed": False}, {"node": "a"}, {"gates": ("other.io/gate",)}, {"deleting": True}, {"phase": "Failed"}],
)
def test_a_pod_that_is_bound_gated_or_ending_is_not_unbound(fields: dict[str, Any]) -> None:
    assert not applied(changes.PodUpdated(stuck(**fields), 1.0)).unbound


@pytest.mark.parametrize(
    ("fields", "is_kept"),
    [
        ({"node": "a"}, True),
        ({"node": "a", "phase": "Failed"}, True),
        ({"deleting": True}, True),
        ({"deleting": True, "narrowed": False}, True),
        ({"deleting": True, "finalizers": ("other.io/finalizer",)}, False),
        ({"deleting": True, "owner": Owner("ReplicaSet", "rs", "2", "apps/v1")}, False),
        ({"narrowed": False}, False),
    ],
)
def test_an_unbound_pod_that_has_our_finalizer_is_kept_after_it_was_bound_or_deleted(
    fields: dict[str, Any], is_kept: bool
) -> None:
    claimed = stuck(**{"finalizers": (RELAUNCH_FINALIZER,), **fields})
    assert bool(applied(changes.PodUpdated(claimed, 1.0)).unbound) is is_kept
    refused = refused_pod(finalizers=(RELAUNCH_FINALIZER,), deleting=True)
    assert not applied(changes.PodUpdated(refused, 1.0)).unbound
