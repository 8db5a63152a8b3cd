"""The effect of each change on the snapshot."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import applied, guaranteed_pod, node, node_state, pod_allocation, refused_pod, watched_pod

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.model.cluster import Node, Owner, WatchedPod
from topomend.model.node_state import NodeState
from topomend.model.relaunch import Relaunch, Step
from topomend.wire.group import RELAUNCH_GATE

EMPTY = node_state()
PUBLISHED = changes.Published(EMPTY, "3")


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


def test_every_node_knows_the_resources_that_claims_provide_whatever_was_listed_first() -> None:
    mapped = frozenset({"vendor.com/gpu"})
    snapshot = applied(
        changes.NodeUpdated(Node("before")),
        changes.DeviceClassesListed(mapped),
        changes.NodeUpdated(Node("after", labels={"zone": "a"})),
    )
    assert {node.by_claim for node in snapshot.nodes.values()} == {mapped}
    relisted = changes.apply(snapshot, changes.NodesListed((Node("before"), Node("after", labels={"zone": "a"})), "9"))
    assert relisted is snapshot
    assert {
        node.by_claim for node in applied(changes.DeviceClassesListed(frozenset()), to=snapshot).nodes.values()
    } == {frozenset()}


def test_a_relisted_node_that_has_not_changed_stays_the_same_object_whatever_others_did() -> None:
    snapshot = applied(*(changes.NodeUpdated(node(name, version="5")) for name in "ab"))
    listed = (node("a", version="8"), node("b", version="8", unschedulable=True))
    relisted = applied(changes.NodesListed(listed, "9"), to=snapshot)
    assert relisted.nodes["a"] is snapshot.nodes["a"]
    assert relisted.nodes["b"].unschedulable
    assert applied(changes.NodesListed(listed[:1], "9"), to=relisted).nodes == {"a": node("a")}


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


def test_an_older_publication_changes_nothing() -> None:
    snapshot = applied(changes.Published(EMPTY, "10"))
    assert applied(changes.Published(replace(EMPTY, pods=(pod_allocation("x"),)), "9"), to=snapshot) is snapshot


def test_an_unreadable_publication_takes_the_readable_one_away_until_the_next() -> None:
    snapshot = applied(PUBLISHED, changes.Unreadable("a", "no machine"))
    assert (dict(snapshot.publications), dict(snapshot.unreadable)) == ({}, {"a": "no machine"})
    assert not applied(changes.Published(EMPTY, "4"), to=snapshot).unreadable


def test_a_list_replaces_every_pod_that_is_not_newer_than_it() -> None:
    snapshot = applied(
        changes.PodUpdated(refused_pod(uid="1", version="5"), 1.0),
        changes.PodUpdated(refused_pod(uid="2", version="8"), 1.0),
    )
    snapshot = applied(changes.PodsListed((refused_pod(uid="3", version="6"),), "7", 2.0), to=snapshot)
    assert set(snapshot.refused) == {"2", "3"}


def test_a_list_replaces_every_node_and_publication_that_is_not_newer_than_it() -> None:
    snapshot = applied(
        PUBLISHED, changes.NodeUpdated(Node("a", version="1")), changes.NodeUpdated(Node("new", version="9"))
    )
    snapshot = applied(
        changes.NodesListed((Node("b", version="2"),), "5"), changes.PublicationsListed((), "5"), to=snapshot
    )
    assert set(snapshot.nodes) == {"b", "new"}
    assert not snapshot.publications


def test_a_new_version_of_an_equal_node_changes_nothing() -> None:
    snapshot = applied(changes.NodeUpdated(Node("a", version="1")))
    assert applied(changes.NodeUpdated(Node("a", version="2")), to=snapshot).nodes is snapshot.nodes


def test_only_open_records_are_kept() -> None:
    record = Relaunch("ns", "p-1", "p", "1", "a", "TopologyAffinityError", "", 1, {}, version="3")
    snapshot = applied(changes.RelaunchUpdated(record))
    assert set(snapshot.relaunches) == {("ns", "p-1")}
    assert not applied(changes.RelaunchUpdated(replace(record, step=Step.LAUNCHED)), to=snapshot).relaunches
    assert not applied(changes.RelaunchesListed((), "4"), to=snapshot).relaunches


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


# Heartbeats


def heartbeat(version: str, time: str, now: float, age: float = 0.0, state: NodeState = EMPTY) -> changes.Published:
    return changes.Published(state, version, heartbeat=changes.Heartbeat(time, age, now))


def problem(snapshot: Snapshot) -> str:
    return snapshot.publications["a"].problem


def test_an_agent_that_confirms_nothing_for_half_an_hour_is_no_longer_trusted() -> None:
    snapshot = applied(heartbeat("3", "t1", 100.0), changes.TimePassed(100.0 + changes.SILENT_SECONDS - 1))
    assert problem(snapshot) == ""
    snapshot = applied(changes.TimePassed(100.0 + changes.SILENT_SECONDS), to=snapshot)
    assert problem(snapshot) == changes.SILENT
    assert applied(changes.TimePassed(9999.0), to=snapshot) is snapshot


def test_a_heartbeat_keeps_the_publication_its_version_and_its_assumed_pods() -> None:
    snapshot = applied(heartbeat("3", "t1", 100.0), changes.PodAssumed(guaranteed_pod(), ("a",), 110.0))
    confirmed = applied(heartbeat("9", "t2", 700.0, state=replace(EMPTY)), to=snapshot)
    before, after = snapshot.publications["a"], confirmed.publications["a"]
    assert after.state is before.state
    assert after.state_with_assumed is before.state_with_assumed
    assert (after.version, after.confirmed, after.heard) == ("3", "9", 700.0)
    assert applied(heartbeat("9", "t2", 800.0), to=confirmed) is confirmed
    assert problem(applied(changes.TimePassed(700.0 + changes.SILENT_SECONDS - 1), to=confirmed)) == ""


def test_an_agent_that_is_heard_again_is_trusted_again() -> None:
    snapshot = applied(heartbeat("3", "t1", 100.0), changes.TimePassed(100.0 + changes.SILENT_SECONDS))
    assert problem(applied(heartbeat("4", "t2", 2500.0), to=snapshot)) == ""


def test_an_old_publication_is_not_trusted_when_it_is_first_seen() -> None:
    assert problem(applied(heartbeat("3", "t1", 5.0, age=changes.SILENT_SECONDS))) == changes.SILENT
    snapshot = applied(heartbeat("3", "t1", 5.0, age=1000.0))
    assert problem(snapshot) == ""
    assert problem(applied(changes.TimePassed(5.0 + 800.0), to=snapshot)) == changes.SILENT


def test_a_heartbeat_that_arrives_counts_whatever_the_clock_of_the_agent_says() -> None:
    slow = applied(heartbeat("3", "t1", 5.0, age=7200.0))
    assert problem(slow) == changes.SILENT
    assert problem(applied(heartbeat("4", "t2", 605.0, age=7200.0), to=slow)) == ""
    fast = applied(heartbeat("3", "t1", 5.0, age=-7200.0))
    assert problem(applied(changes.TimePassed(5.0 + changes.SILENT_SECONDS), to=fast)) == changes.SILENT


def test_an_agent_without_heartbeats_is_trusted_as_long_as_its_object_exists() -> None:
    assert problem(applied(PUBLISHED, changes.TimePassed(1e9))) == ""


def test_a_problem_that_the_agent_reports_stays() -> None:
    snapshot = applied(changes.Published(EMPTY, "3", "not ready", changes.Heartbeat("t1", 9999.0, 1.0)))
    assert problem(applied(changes.TimePassed(1e9), to=snapshot)) == "not ready"


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
