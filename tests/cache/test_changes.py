from dataclasses import replace

import pytest

from topomend.cache import changes
from topomend.cache.changes import apply
from topomend.cache.snapshot import Snapshot
from topomend.model.bitmask import parse_id_list
from topomend.model.cluster import Node, Owner, WatchedPod
from topomend.model.kubelet import KubeletSettings
from topomend.model.node_state import ContainerAllocation, NodeState, PodAllocation
from topomend.model.pod import Container, ContainerKind, Pod, Resources
from topomend.model.relaunch import Relaunch, Step
from topomend.model.shape import parse_shape
from topomend.replay.admission import admit
from topomend.wire.group import RELAUNCH_GATE

SETTINGS = KubeletSettings(
    topology_manager_policy="single-numa-node", cpu_manager_policy="static", reserved_cpus=parse_id_list("0")
)
STATE = NodeState("a", parse_shape("numa:2 cores:4").machine(), SETTINGS)


def asking(cpus: int, name: str = "p", uid: str = "1") -> Pod:
    amounts = {"cpu": cpus * 1000, "memory": 1 << 40}
    container = Container("main", ContainerKind.APP, Resources(amounts, amounts))
    return Pod("ns", name, uid, (container,))


def watched(cpus: int = 2, *, uid: str = "1", version: str = "5", **fields: object) -> WatchedPod:
    return replace(WatchedPod("ns", "p", uid, version, asking(cpus, uid=uid)), **fields)  # type: ignore[arg-type]


def refused(uid: str = "1", version: str = "5") -> WatchedPod:
    reason = "TopologyAffinityError"
    return watched(
        uid=uid, version=version, phase="Failed", reason=reason, message=f"Pod was rejected: {reason}", node="a"
    )


def folded(*seen: changes.Change, snapshot: Snapshot = Snapshot()) -> Snapshot:  # noqa: B008  a frozen value
    for each in seen:
        snapshot = apply(snapshot, each)
    return snapshot


def held(snapshot: Snapshot, node: str = "a") -> list[str]:
    return [pod.name for pod in snapshot.publications[node].state_with_assumed.pods]


PUBLISHED = changes.Published(STATE, "3")


def test_a_refusal_keeps_the_version_and_time_of_its_first_sight() -> None:
    snapshot = folded(changes.PodUpdated(refused(version="5"), 1.0), changes.PodUpdated(refused(version="9"), 2.0))
    refusal = snapshot.refused["1"]
    assert (refusal.version, refusal.seen, refusal.pod.version) == ("5", 1.0, "9")


def test_a_refused_pod_that_its_controller_leaves_behind_stays_that_controllers() -> None:
    owned = replace(refused(), owner=Owner("Job", "train", "9"))
    snapshot = folded(changes.PodUpdated(owned, 10.0), changes.PodUpdated(refused(version="6"), 11.0))
    assert snapshot.refused["1"].pod.owner == owned.owner
    assert folded(changes.PodUpdated(refused(), 10.0)).refused["1"].pod.owner is None


def test_a_pod_that_failed_by_itself_is_no_refusal() -> None:
    assert not folded(changes.PodUpdated(watched(phase="Failed", reason="Error"), 1.0)).refused


def test_a_gated_replacement_is_known_until_its_gate_goes() -> None:
    snapshot = folded(changes.PodUpdated(watched(gates=(RELAUNCH_GATE,)), 1.0))
    assert snapshot.gated
    assert set(snapshot.gated_since.values()) == {1.0}
    seen_again = folded(changes.PodUpdated(watched(gates=(RELAUNCH_GATE,), version="9"), 2.0), snapshot=snapshot)
    assert set(seen_again.gated_since.values()) == {1.0}
    gone = folded(changes.PodUpdated(watched(), 2.0), snapshot=snapshot)
    assert not gone.gated
    assert not gone.gated_since


def test_a_released_pod_takes_its_place_on_every_node_it_may_go_to() -> None:
    other = changes.Published(replace(STATE, name="b"), "4")
    snapshot = folded(PUBLISHED, other, changes.PodAssumed(asking(2), ("a", "b"), 1.0))
    assert (held(snapshot, "a"), held(snapshot, "b")) == (["p"], ["p"])
    snapshot = folded(changes.PodUpdated(watched(node="b"), 2.0), snapshot=snapshot)
    assert (held(snapshot, "a"), held(snapshot, "b")) == ([], ["p"])


def test_a_pod_that_any_scheduler_bound_takes_its_place_until_it_is_published() -> None:
    snapshot = folded(PUBLISHED, changes.PodUpdated(watched(node="a"), 1.0))
    assert held(snapshot) == ["p"]
    shown = PodAllocation("ns", "p", "", (ContainerAllocation("main", cpus=parse_id_list("1-2")),))
    snapshot = folded(changes.Published(replace(STATE, pods=(shown,)), "4"), snapshot=snapshot)
    assert held(snapshot) == ["p"]
    assert not snapshot.assumed


def test_a_bound_pod_that_holds_nothing_exclusively_takes_no_place() -> None:
    shared = replace(watched(node="a"), pod=Pod("ns", "p", "1", (Container("main", ContainerKind.APP),)))
    assert not folded(PUBLISHED, changes.PodUpdated(shared, 1.0)).assumed


def test_a_pod_that_left_the_watch_keeps_its_place_for_a_while() -> None:
    snapshot = folded(PUBLISHED, changes.PodUpdated(watched(node="a"), 1.0), changes.PodRemoved("ns", "p", "1", 2.0))
    assert held(folded(changes.TimePassed(11.9), snapshot=snapshot)) == ["p"]
    assert held(folded(changes.TimePassed(12.0), snapshot=snapshot)) == []


def test_a_replacement_keeps_its_place_while_the_refused_pod_of_its_name_goes() -> None:
    snapshot = folded(PUBLISHED, changes.PodUpdated(refused(), 1.0), changes.PodAssumed(asking(2, uid=""), ("a",), 1.0))
    snapshot = folded(
        changes.PodUpdated(refused(version="6"), 1.1), changes.PodRemoved("ns", "p", "1", 1.2), snapshot=snapshot
    )
    assert held(folded(changes.TimePassed(20.0), snapshot=snapshot)) == ["p"]
    assert held(folded(changes.TimePassed(31.0), snapshot=snapshot)) == []


def test_a_refused_pod_gives_its_place_back_at_once() -> None:
    snapshot = folded(PUBLISHED, changes.PodUpdated(watched(node="a"), 1.0), changes.PodUpdated(refused(), 2.0))
    assert held(snapshot) == []


def test_a_place_is_given_back_when_the_release_is_withdrawn() -> None:
    assert held(folded(PUBLISHED, changes.PodAssumed(asking(2), ("a",), 1.0), changes.PodForgotten("ns", "p"))) == []


def holding(*names: str) -> NodeState:
    state = STATE
    for name in names:
        state = admit(state, asking(2, name))[1]
    return state


def ended(version: str = "5", phase: str = "Succeeded") -> changes.PodUpdated:
    return changes.PodUpdated(watched(version=version, phase=phase, node="a"), 20.0)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_gives_its_place_back_before_its_agent_looks(phase: str) -> None:
    snapshot = folded(changes.Published(holding("p", "q"), "3"), ended(phase=phase))
    assert held(snapshot) == ["q"]
    assert (
        snapshot.publications["a"].state_with_assumed
        is folded(ended(version="6"), snapshot=snapshot).publications["a"].state_with_assumed
    )


def test_what_the_agent_says_after_a_pods_end_is_believed() -> None:
    state = holding("p", "q")
    assert held(folded(changes.Published(state, "6"), ended(version="5"))) == ["p", "q"]
    over = folded(changes.Published(state, "3"), ended(version="5"))
    assert held(folded(changes.Published(state, "6"), snapshot=over)) == ["p", "q"]
    assert held(folded(changes.Published(holding("p"), "6"), snapshot=over)) == ["p"]


def test_a_pod_that_is_still_published_ten_seconds_after_its_end_holds_its_place_again() -> None:
    snapshot = folded(changes.Published(holding("p", "q"), "3"), ended())
    assert held(folded(changes.TimePassed(29.9), snapshot=snapshot)) == ["q"]
    assert held(folded(changes.TimePassed(30.0), snapshot=snapshot)) == ["p", "q"]


def test_a_refused_pod_held_nothing_that_another_of_its_name_holds() -> None:
    snapshot = folded(changes.Published(holding("p"), "3"), changes.PodUpdated(refused(), 20.0))
    assert held(snapshot) == ["p"]


def test_the_next_pod_of_an_ended_ones_name_takes_its_own_place() -> None:
    next_one = watched(3, uid="2", version="7", node="a")
    snapshot = folded(changes.Published(holding("p"), "3"), ended(), changes.PodUpdated(next_one, 21.0))
    assert [pod.uid for pod in snapshot.publications["a"].assumed_pods] == ["2"]
    assert snapshot.publications["a"].state_with_assumed == admit(STATE, next_one.pod)[1]
    again = folded(changes.TimePassed(30.0), snapshot=snapshot)
    assert held(again) == ["p"]


def test_an_older_publication_changes_nothing() -> None:
    snapshot = folded(changes.Published(STATE, "10"))
    assert (
        folded(changes.Published(replace(STATE, pods=(PodAllocation("ns", "x"),)), "9"), snapshot=snapshot) is snapshot
    )


def test_an_unreadable_publication_takes_the_readable_one_away_until_the_next() -> None:
    snapshot = folded(PUBLISHED, changes.Unreadable("a", "no machine"))
    assert (dict(snapshot.publications), dict(snapshot.unreadable)) == ({}, {"a": "no machine"})
    assert not folded(changes.Published(STATE, "4"), snapshot=snapshot).unreadable


def test_a_list_replaces_what_was_known_but_for_what_is_newer_than_it() -> None:
    snapshot = folded(changes.PodUpdated(refused("1", "5"), 1.0), changes.PodUpdated(refused("2", "8"), 1.0))
    snapshot = folded(changes.PodsListed((refused("3", "6"),), "7", 2.0), snapshot=snapshot)
    assert set(snapshot.refused) == {"2", "3"}


def test_listed_nodes_and_publications_replace_those_known() -> None:
    snapshot = folded(
        PUBLISHED, changes.NodeUpdated(Node("a", version="1")), changes.NodeUpdated(Node("new", version="9"))
    )
    snapshot = folded(
        changes.NodesListed((Node("b", version="2"),), "5"), changes.PublicationsListed((), "5"), snapshot=snapshot
    )
    assert set(snapshot.nodes) == {"b", "new"}
    assert not snapshot.publications


def test_a_node_that_changed_in_its_version_alone_changes_nothing() -> None:
    snapshot = folded(changes.NodeUpdated(Node("a", version="1")))
    assert folded(changes.NodeUpdated(Node("a", version="2")), snapshot=snapshot).nodes is snapshot.nodes


def test_only_open_records_are_kept() -> None:
    record = Relaunch("ns", "p-1", "p", "1", "a", "TopologyAffinityError", "", 1, {}, version="3")
    snapshot = folded(changes.RelaunchUpdated(record))
    assert set(snapshot.relaunches) == {("ns", "p-1")}
    assert not folded(changes.RelaunchUpdated(replace(record, step=Step.LAUNCHED)), snapshot=snapshot).relaunches
    assert not folded(changes.RelaunchesListed((), "4"), snapshot=snapshot).relaunches


def disagreed(count: int, snapshot: Snapshot) -> Snapshot:
    return folded(*(changes.MismatchDetected("a", f"uid-{number}", 10.0) for number in range(count)), snapshot=snapshot)


def test_a_mismatch_reported_twice_counts_once_and_lasts_no_longer() -> None:
    mismatches = [changes.MismatchDetected("a", "uid", now) for now in (10.0, 500.0)]
    snapshot = folded(*mismatches, snapshot=folded(PUBLISHED))
    assert len(snapshot.mismatches["a"].pods) == 1
    assert not folded(changes.TimePassed(10.0 + changes.MISMATCH_SECONDS), snapshot=snapshot).mismatches


def test_a_disagreement_counts_once_for_a_pod_and_is_forgotten_after_ten_minutes() -> None:
    snapshot = disagreed(2, folded(PUBLISHED))
    assert disagreed(2, snapshot) == snapshot
    assert len(snapshot.mismatches["a"].pods) == 2
    assert folded(changes.TimePassed(609.0), snapshot=snapshot).mismatches
    assert not folded(changes.TimePassed(610.0), snapshot=snapshot).mismatches


def test_a_doubt_ends_when_the_nodes_topology_changes_and_not_when_its_pods_do() -> None:
    snapshot = disagreed(3, folded(PUBLISHED))
    used = replace(STATE, pods=(PodAllocation("ns", "other", "", (ContainerAllocation("main", cpus=6),)),))
    assert folded(changes.Published(used, "4"), snapshot=snapshot).mismatches
    larger = replace(STATE, machine=parse_shape("numa:2 cores:8").machine())
    assert not folded(changes.Published(larger, "4"), snapshot=snapshot).mismatches


def test_a_doubt_ends_when_the_node_admits_a_pod_as_predicted() -> None:
    snapshot = disagreed(3, folded(PUBLISHED))
    snapshot = folded(changes.PodAssumed(asking(2), ("a",), 11.0), snapshot=snapshot)
    shown = replace(STATE, pods=(PodAllocation("ns", "p", "", (ContainerAllocation("main", cpus=6),)),))
    assert not folded(changes.Published(shown, "4"), snapshot=snapshot).mismatches


# Heartbeats


def confirmed(version: str, time: str, now: float, age: float = 0.0, state: NodeState = STATE) -> changes.Published:
    return changes.Published(state, version, heartbeat=changes.Heartbeat(time, age, now))


def problem(snapshot: Snapshot) -> str:
    return snapshot.publications["a"].problem


def test_an_agent_that_confirms_nothing_for_half_an_hour_is_no_longer_believed() -> None:
    snapshot = folded(confirmed("3", "t1", 100.0), changes.TimePassed(100.0 + changes.SILENT_SECONDS - 1))
    assert problem(snapshot) == ""
    snapshot = folded(changes.TimePassed(100.0 + changes.SILENT_SECONDS), snapshot=snapshot)
    assert problem(snapshot) == changes.SILENT
    assert folded(changes.TimePassed(9999.0), snapshot=snapshot) is snapshot


def test_a_heartbeat_keeps_the_publication_its_version_and_what_is_expected() -> None:
    snapshot = folded(confirmed("3", "t1", 100.0), changes.PodAssumed(asking(2), ("a",), 110.0))
    beaten = folded(confirmed("9", "t2", 700.0, state=replace(STATE)), snapshot=snapshot)
    before, after = snapshot.publications["a"], beaten.publications["a"]
    assert after.state is before.state
    assert after.state_with_assumed is before.state_with_assumed
    assert (after.version, after.confirmed, after.heard) == ("3", "9", 700.0)
    assert folded(confirmed("9", "t2", 800.0), snapshot=beaten) is beaten
    assert problem(folded(changes.TimePassed(700.0 + changes.SILENT_SECONDS - 1), snapshot=beaten)) == ""


def test_an_agent_that_is_heard_again_is_believed_again() -> None:
    snapshot = folded(confirmed("3", "t1", 100.0), changes.TimePassed(100.0 + changes.SILENT_SECONDS))
    assert problem(folded(confirmed("4", "t2", 2500.0), snapshot=snapshot)) == ""


def test_what_a_dead_agent_left_is_not_believed_at_the_first_sight_of_it() -> None:
    assert problem(folded(confirmed("3", "t1", 5.0, age=changes.SILENT_SECONDS))) == changes.SILENT
    snapshot = folded(confirmed("3", "t1", 5.0, age=1000.0))
    assert problem(snapshot) == ""
    assert problem(folded(changes.TimePassed(5.0 + 800.0), snapshot=snapshot)) == changes.SILENT


def test_a_heartbeat_that_is_seen_to_come_counts_whatever_the_agents_clock_says() -> None:
    slow = folded(confirmed("3", "t1", 5.0, age=7200.0))
    assert problem(slow) == changes.SILENT
    assert problem(folded(confirmed("4", "t2", 605.0, age=7200.0), snapshot=slow)) == ""
    fast = folded(confirmed("3", "t1", 5.0, age=-7200.0))
    assert problem(folded(changes.TimePassed(5.0 + changes.SILENT_SECONDS), snapshot=fast)) == changes.SILENT


def test_an_agent_without_heartbeats_is_believed_as_long_as_its_object_is_there() -> None:
    assert problem(folded(PUBLISHED, changes.TimePassed(1e9))) == ""


def test_what_the_agent_itself_says_is_wrong_stays_said() -> None:
    snapshot = folded(changes.Published(STATE, "3", "not ready", changes.Heartbeat("t1", 9999.0, 1.0)))
    assert problem(folded(changes.TimePassed(1e9), snapshot=snapshot)) == "not ready"
