from dataclasses import replace

import pytest

from topomend.model.bitmask import parse_id_list
from topomend.model.cluster import Node, Owner, WatchedPod
from topomend.model.kubelet import KubeletSettings
from topomend.model.node_state import ContainerAllocation, NodeState, PodAllocation
from topomend.model.pod import Container, ContainerKind, Pod, Resources
from topomend.model.relaunch import Relaunch, Step
from topomend.model.shape import parse_shape
from topomend.replay.admission import admit
from topomend.watch import events
from topomend.watch.events import fold
from topomend.watch.view import ClusterView
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


def folded(*seen: events.Event, view: ClusterView = ClusterView()) -> ClusterView:  # noqa: B008  a frozen value
    for each in seen:
        view = fold(view, each)
    return view


def held(view: ClusterView, node: str = "a") -> list[str]:
    return [pod.name for pod in view.publications[node].expected.pods]


PUBLISHED = events.Published(STATE, "3")


def test_a_refusal_keeps_the_version_and_time_of_its_first_sight() -> None:
    view = folded(events.PodSeen(refused(version="5"), 1.0), events.PodSeen(refused(version="9"), 2.0))
    refusal = view.refused["1"]
    assert (refusal.version, refusal.seen, refusal.pod.version) == ("5", 1.0, "9")


def test_a_refused_pod_that_its_controller_leaves_behind_stays_that_controllers() -> None:
    owned = replace(refused(), owner=Owner("Job", "train", "9"))
    view = folded(events.PodSeen(owned, 10.0), events.PodSeen(refused(version="6"), 11.0))
    assert view.refused["1"].pod.owner == owned.owner
    assert folded(events.PodSeen(refused(), 10.0)).refused["1"].pod.owner is None


def test_a_pod_that_failed_by_itself_is_no_refusal() -> None:
    assert not folded(events.PodSeen(watched(phase="Failed", reason="Error"), 1.0)).refused


def test_a_gated_replacement_is_known_until_its_gate_goes() -> None:
    view = folded(events.PodSeen(watched(gates=(RELAUNCH_GATE,)), 1.0))
    assert view.gated
    assert set(view.gated_since.values()) == {1.0}
    seen_again = folded(events.PodSeen(watched(gates=(RELAUNCH_GATE,), version="9"), 2.0), view=view)
    assert set(seen_again.gated_since.values()) == {1.0}
    gone = folded(events.PodSeen(watched(), 2.0), view=view)
    assert not gone.gated
    assert not gone.gated_since


def test_a_released_pod_takes_its_place_on_every_node_it_may_go_to() -> None:
    other = events.Published(replace(STATE, name="b"), "4")
    view = folded(PUBLISHED, other, events.Released(asking(2), ("a", "b"), 1.0))
    assert (held(view, "a"), held(view, "b")) == (["p"], ["p"])
    view = folded(events.PodSeen(watched(node="b"), 2.0), view=view)
    assert (held(view, "a"), held(view, "b")) == ([], ["p"])


def test_a_pod_that_any_scheduler_bound_takes_its_place_until_it_is_published() -> None:
    view = folded(PUBLISHED, events.PodSeen(watched(node="a"), 1.0))
    assert held(view) == ["p"]
    shown = PodAllocation("ns", "p", "", (ContainerAllocation("main", cpus=parse_id_list("1-2")),))
    view = folded(events.Published(replace(STATE, pods=(shown,)), "4"), view=view)
    assert held(view) == ["p"]
    assert not view.on_their_way


def test_a_bound_pod_that_holds_nothing_exclusively_takes_no_place() -> None:
    shared = replace(watched(node="a"), pod=Pod("ns", "p", "1", (Container("main", ContainerKind.APP),)))
    assert not folded(PUBLISHED, events.PodSeen(shared, 1.0)).on_their_way


def test_a_pod_that_left_the_watch_keeps_its_place_for_a_while() -> None:
    view = folded(PUBLISHED, events.PodSeen(watched(node="a"), 1.0), events.PodGone("ns", "p", "1", 2.0))
    assert held(folded(events.TimePassed(11.9), view=view)) == ["p"]
    assert held(folded(events.TimePassed(12.0), view=view)) == []


def test_a_replacement_keeps_its_place_while_the_refused_pod_of_its_name_goes() -> None:
    view = folded(PUBLISHED, events.PodSeen(refused(), 1.0), events.Released(asking(2, uid=""), ("a",), 1.0))
    view = folded(events.PodSeen(refused(version="6"), 1.1), events.PodGone("ns", "p", "1", 1.2), view=view)
    assert held(folded(events.TimePassed(20.0), view=view)) == ["p"]
    assert held(folded(events.TimePassed(31.0), view=view)) == []


def test_a_refused_pod_gives_its_place_back_at_once() -> None:
    view = folded(PUBLISHED, events.PodSeen(watched(node="a"), 1.0), events.PodSeen(refused(), 2.0))
    assert held(view) == []


def test_a_place_is_given_back_when_the_release_is_withdrawn() -> None:
    assert held(folded(PUBLISHED, events.Released(asking(2), ("a",), 1.0), events.Withdrawn("ns", "p"))) == []


def holding(*names: str) -> NodeState:
    state = STATE
    for name in names:
        state = admit(state, asking(2, name))[1]
    return state


def ended(version: str = "5", phase: str = "Succeeded") -> events.PodSeen:
    return events.PodSeen(watched(version=version, phase=phase, node="a"), 20.0)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_gives_its_place_back_before_its_agent_looks(phase: str) -> None:
    view = folded(events.Published(holding("p", "q"), "3"), ended(phase=phase))
    assert held(view) == ["q"]
    assert view.publications["a"].expected is folded(ended(version="6"), view=view).publications["a"].expected


def test_what_the_agent_says_after_a_pods_end_is_believed() -> None:
    state = holding("p", "q")
    assert held(folded(events.Published(state, "6"), ended(version="5"))) == ["p", "q"]
    over = folded(events.Published(state, "3"), ended(version="5"))
    assert held(folded(events.Published(state, "6"), view=over)) == ["p", "q"]
    assert held(folded(events.Published(holding("p"), "6"), view=over)) == ["p"]


def test_a_pod_that_is_still_published_ten_seconds_after_its_end_holds_its_place_again() -> None:
    view = folded(events.Published(holding("p", "q"), "3"), ended())
    assert held(folded(events.TimePassed(29.9), view=view)) == ["q"]
    assert held(folded(events.TimePassed(30.0), view=view)) == ["p", "q"]


def test_a_refused_pod_held_nothing_that_another_of_its_name_holds() -> None:
    view = folded(events.Published(holding("p"), "3"), events.PodSeen(refused(), 20.0))
    assert held(view) == ["p"]


def test_the_next_pod_of_an_ended_ones_name_takes_its_own_place() -> None:
    next_one = watched(3, uid="2", version="7", node="a")
    view = folded(events.Published(holding("p"), "3"), ended(), events.PodSeen(next_one, 21.0))
    assert [pod.uid for pod in view.publications["a"].coming] == ["2"]
    assert view.publications["a"].expected == admit(STATE, next_one.pod)[1]
    again = folded(events.TimePassed(30.0), view=view)
    assert held(again) == ["p"]


def test_an_older_publication_changes_nothing() -> None:
    view = folded(events.Published(STATE, "10"))
    assert folded(events.Published(replace(STATE, pods=(PodAllocation("ns", "x"),)), "9"), view=view) is view


def test_an_unreadable_publication_takes_the_readable_one_away_until_the_next() -> None:
    view = folded(PUBLISHED, events.Unreadable("a", "no machine"))
    assert (dict(view.publications), dict(view.unreadable)) == ({}, {"a": "no machine"})
    assert not folded(events.Published(STATE, "4"), view=view).unreadable


def test_a_list_replaces_what_was_known_but_for_what_is_newer_than_it() -> None:
    view = folded(events.PodSeen(refused("1", "5"), 1.0), events.PodSeen(refused("2", "8"), 1.0))
    view = folded(events.PodsListed((refused("3", "6"),), "7", 2.0), view=view)
    assert set(view.refused) == {"2", "3"}


def test_listed_nodes_and_publications_replace_those_known() -> None:
    view = folded(PUBLISHED, events.NodeSeen(Node("a", version="1")), events.NodeSeen(Node("new", version="9")))
    view = folded(events.NodesListed((Node("b", version="2"),), "5"), events.PublicationsListed((), "5"), view=view)
    assert set(view.nodes) == {"b", "new"}
    assert not view.publications


def test_a_node_that_changed_in_its_version_alone_changes_nothing() -> None:
    view = folded(events.NodeSeen(Node("a", version="1")))
    assert folded(events.NodeSeen(Node("a", version="2")), view=view).nodes is view.nodes


def test_only_open_records_are_kept() -> None:
    record = Relaunch("ns", "p-1", "p", "1", "a", "TopologyAffinityError", "", 1, {}, version="3")
    view = folded(events.RelaunchSeen(record))
    assert set(view.relaunches) == {("ns", "p-1")}
    assert not folded(events.RelaunchSeen(replace(record, step=Step.LAUNCHED)), view=view).relaunches
    assert not folded(events.RelaunchesListed((), "4"), view=view).relaunches


def disagreed(count: int, view: ClusterView) -> ClusterView:
    return folded(*(events.Disagreed("a", f"uid-{number}", 10.0) for number in range(count)), view=view)


def test_a_disagreement_counts_once_for_a_pod_and_is_forgotten_after_ten_minutes() -> None:
    view = disagreed(2, folded(PUBLISHED))
    assert disagreed(2, view) == view
    assert len(view.doubts["a"].pods) == 2
    assert folded(events.TimePassed(609.0), view=view).doubts
    assert not folded(events.TimePassed(610.0), view=view).doubts


def test_a_doubt_ends_when_the_nodes_topology_changes_and_not_when_its_pods_do() -> None:
    view = disagreed(3, folded(PUBLISHED))
    used = replace(STATE, pods=(PodAllocation("ns", "other", "", (ContainerAllocation("main", cpus=6),)),))
    assert folded(events.Published(used, "4"), view=view).doubts
    larger = replace(STATE, machine=parse_shape("numa:2 cores:8").machine())
    assert not folded(events.Published(larger, "4"), view=view).doubts


def test_a_doubt_ends_when_the_node_admits_a_pod_as_predicted() -> None:
    view = disagreed(3, folded(PUBLISHED))
    view = folded(events.Released(asking(2), ("a",), 11.0), view=view)
    shown = replace(STATE, pods=(PodAllocation("ns", "p", "", (ContainerAllocation("main", cpus=6),)),))
    assert not folded(events.Published(shown, "4"), view=view).doubts


# Heartbeats


def confirmed(version: str, time: str, now: float, age: float = 0.0, state: NodeState = STATE) -> events.Published:
    return events.Published(state, version, heartbeat=events.Heartbeat(time, age, now))


def problem(view: ClusterView) -> str:
    return view.publications["a"].problem


def test_an_agent_that_confirms_nothing_for_half_an_hour_is_no_longer_believed() -> None:
    view = folded(confirmed("3", "t1", 100.0), events.TimePassed(100.0 + events.SILENT_SECONDS - 1))
    assert problem(view) == ""
    view = folded(events.TimePassed(100.0 + events.SILENT_SECONDS), view=view)
    assert problem(view) == events.SILENT
    assert folded(events.TimePassed(9999.0), view=view) is view


def test_a_heartbeat_keeps_the_publication_its_version_and_what_is_expected() -> None:
    view = folded(confirmed("3", "t1", 100.0), events.Released(asking(2), ("a",), 110.0))
    beaten = folded(confirmed("9", "t2", 700.0, state=replace(STATE)), view=view)
    before, after = view.publications["a"], beaten.publications["a"]
    assert after.state is before.state
    assert after.expected is before.expected
    assert (after.version, after.confirmed, after.heard) == ("3", "9", 700.0)
    assert folded(confirmed("9", "t2", 800.0), view=beaten) is beaten
    assert problem(folded(events.TimePassed(700.0 + events.SILENT_SECONDS - 1), view=beaten)) == ""


def test_an_agent_that_is_heard_again_is_believed_again() -> None:
    view = folded(confirmed("3", "t1", 100.0), events.TimePassed(100.0 + events.SILENT_SECONDS))
    assert problem(folded(confirmed("4", "t2", 2500.0), view=view)) == ""


def test_what_a_dead_agent_left_is_not_believed_at_the_first_sight_of_it() -> None:
    assert problem(folded(confirmed("3", "t1", 5.0, age=events.SILENT_SECONDS))) == events.SILENT
    view = folded(confirmed("3", "t1", 5.0, age=1000.0))
    assert problem(view) == ""
    assert problem(folded(events.TimePassed(5.0 + 800.0), view=view)) == events.SILENT


def test_a_heartbeat_that_is_seen_to_come_counts_whatever_the_agents_clock_says() -> None:
    slow = folded(confirmed("3", "t1", 5.0, age=7200.0))
    assert problem(slow) == events.SILENT
    assert problem(folded(confirmed("4", "t2", 605.0, age=7200.0), view=slow)) == ""
    fast = folded(confirmed("3", "t1", 5.0, age=-7200.0))
    assert problem(folded(events.TimePassed(5.0 + events.SILENT_SECONDS), view=fast)) == events.SILENT


def test_an_agent_without_heartbeats_is_believed_as_long_as_its_object_is_there() -> None:
    assert problem(folded(PUBLISHED, events.TimePassed(1e9))) == ""


def test_what_the_agent_itself_says_is_wrong_stays_said() -> None:
    view = folded(events.Published(STATE, "3", "not ready", events.Heartbeat("t1", 9999.0, 1.0)))
    assert problem(folded(events.TimePassed(1e9), view=view)) == "not ready"
