from dataclasses import replace

import pytest

from topomend.cache import changes
from topomend.cache.changes import apply
from topomend.cache.snapshot import Refusal, Snapshot
from topomend.decide import plan as plans
from topomend.decide.eligibility import Limits, Treatment, eligibility
from topomend.decide.explanation import explain
from topomend.decide.feasibility import RejectedBy, diagnose, insufficient
from topomend.model.bitmask import parse_id_list
from topomend.model.cluster import Node, Owner, Placement, WatchedPod
from topomend.model.kubelet import KubeletSettings
from topomend.model.node_state import NodeState
from topomend.model.pod import Container, ContainerKind, Pod, Resources
from topomend.model.shape import parse_shape
from topomend.replay.admission import admit

SETTINGS = KubeletSettings(
    topology_manager_policy="single-numa-node", cpu_manager_policy="static", reserved_cpus=parse_id_list("0")
)
LIMITS = Limits()


def asking(cpus: int, name: str = "p") -> Pod:
    amounts = {"cpu": cpus * 1000, "memory": 1000 << 20}
    return Pod("ns", name, name, (Container("main", ContainerKind.APP, Resources(amounts, amounts)),))


def state(name: str, *held: int) -> NodeState:
    """A node of two NUMA nodes of four CPUs, one reserved, on which pods of so many CPUs run."""
    made = NodeState(name, parse_shape("numa:2 cores:4").machine(), SETTINGS)
    for number, cpus in enumerate(held):
        verdict, made = admit(made, asking(cpus, f"held-{number}"))
        assert verdict.admitted
    return made


def node(name: str, **fields: object) -> Node:
    labels = {"kubernetes.io/hostname": name}
    made = Node(name, labels=labels, allocatable={"cpu": 7000, "memory": 16000 << 30, "pods": 110000})
    return replace(made, **fields)  # type: ignore[arg-type]


def view_of(*states: NodeState, version: str = "3") -> Snapshot:
    snapshot = Snapshot()
    for each in states:
        snapshot = apply(snapshot, changes.NodeUpdated(node(each.name)))
        snapshot = apply(snapshot, changes.Published(each, version))
    return snapshot


def refused(cpus: int = 3, **fields: object) -> WatchedPod:
    message = "Pod was rejected: Resources cannot be allocated with Topology locality"
    made = WatchedPod("ns", "p", "1", "5", asking(cpus), "Failed", "TopologyAffinityError", message, "a")
    return replace(made, **fields)  # type: ignore[arg-type]


def planned(snapshot: Snapshot, pod: WatchedPod, limits: Limits = LIMITS) -> plans.Plan:
    return plans.plan(snapshot, Refusal(pod, pod.version, 10.0), limits)


FRAGMENTED = state("a", 2, 2)  # free: one CPU on NUMA 0, two on NUMA 1


def test_a_bare_pod_is_relaunched_on_the_nodes_that_admit_it() -> None:
    plan = planned(view_of(FRAGMENTED, state("b"), state("c")), refused())
    assert isinstance(plan, plans.RelaunchOn)
    assert set(plan.nodes) == {"b", "c"}


def test_the_smallest_hole_is_taken_so_that_big_ones_stay_whole() -> None:
    plan = planned(view_of(FRAGMENTED, state("b"), state("c", 1), state("d", 3)), refused())
    assert isinstance(plan, plans.RelaunchOn)
    # On b it leaves no CPU of NUMA 0; on d and c one of NUMA 1, and d has less besides.
    assert plan.nodes == ("b", "d", "c")
    assert plan.reason == "b NUMA 0 admits it by replay"


def test_the_refusing_node_is_asked_again_only_once_it_has_published_since() -> None:
    emptied = state("a")
    assert isinstance(planned(view_of(emptied, version="4"), refused()), plans.Wait)
    again = planned(view_of(emptied, version="6"), refused())
    assert isinstance(again, plans.RelaunchOn)
    assert again.nodes == ("a",)


def test_where_it_is_not_known_which_came_first_the_refusing_node_stands_last() -> None:
    answers = diagnose(view_of(state("a"), state("b")), asking(3), Placement(), RejectedBy("a", None))
    assert [each.node for each in answers.candidates] == ["b", "a"]


def test_no_two_pods_are_sent_to_one_hole() -> None:
    snapshot = view_of(FRAGMENTED, state("b", 4))  # b has one hole of three CPUs
    assert isinstance(planned(snapshot, refused()), plans.RelaunchOn)
    snapshot = apply(snapshot, changes.PodAssumed(asking(3, "first"), ("b",), 10.0))
    assert isinstance(planned(snapshot, refused()), plans.Wait)


def test_a_node_whose_totals_are_used_up_is_no_candidate() -> None:
    snapshot = view_of(FRAGMENTED, state("b"), state("c"))
    plan = plans.plan(snapshot, Refusal(refused(), "5", 10.0), LIMITS, {"b": insufficient("b", "cpu")})
    assert isinstance(plan, plans.RelaunchOn)
    assert plan.nodes == ("c",)
    assert plan.diagnosis.counts() == {"Admits": 1, "JustRefused": 1, "InsufficientResources": 1}


def test_a_wait_counts_the_nodes_by_what_stands_in_the_way() -> None:
    snapshot = view_of(FRAGMENTED, state("b", 2, 2))
    snapshot = apply(snapshot, changes.NodeUpdated(node("c")))
    plan = planned(snapshot, refused())
    assert isinstance(plan, plans.Wait)
    assert plan.reason == "no other node admits it now: 1 cpu, 1 unknown"
    assert plan.diagnosis.counts() == {"JustRefused": 1, "TopologyAffinityError": 1, "Unknown": 1}


@pytest.mark.parametrize(("disagreements", "is_candidate"), [(2, True), (3, False)])
def test_a_node_that_decided_three_times_in_a_row_otherwise_than_replay_is_no_candidate(
    disagreements: int, is_candidate: bool
) -> None:
    snapshot = view_of(FRAGMENTED, state("b"))
    for number in range(disagreements):
        snapshot = apply(snapshot, changes.MismatchDetected("b", f"uid-{number}", 10.0))
    plan = planned(snapshot, refused())
    assert isinstance(plan, plans.RelaunchOn) == is_candidate
    assert is_candidate or plan.reason == "no other node admits it now: 1 with replay mismatches"


@pytest.mark.parametrize(
    ("fields", "treatment", "reason"),
    [
        ({}, Treatment.RELAUNCH, "p has no controller that recreates it"),
        ({"reason": "OutOfcpu"}, Treatment.LEAVE, "p was not refused for its topology"),
        ({"message": "Resources"}, Treatment.LEAVE, "p was not refused for its topology"),
        ({"relaunch": "false"}, Treatment.LEAVE, 'topomend.io/relaunch is "false"'),
        ({"mirror": True}, Treatment.LEAVE, "p is a static pod, which only its kubelet creates"),
        ({"deleting": True}, Treatment.LEAVE, "p is being deleted"),
        ({"finalizers": ("x.io/y",)}, Treatment.LEAVE, "finalizer x.io/y on p belongs to another controller"),
        ({"finalizers": ("topomend.io/relaunch",)}, Treatment.RELAUNCH, "p has no controller that recreates it"),
        ({"owner": Owner("ReplicaSet", "rs", "2")}, Treatment.CLEAR, "ReplicaSet rs recreates its pods"),
        (
            {"owner": Owner("Job", "j", "2")},
            Treatment.LEAVE,
            "Job j counts its failed pods and creates the next one",
        ),
        (
            {"owner": Owner("DaemonSet", "d", "2")},
            Treatment.LEAVE,
            "DaemonSet d deletes its failed pods and tries the same node again",
        ),
        ({"attempt": 4}, Treatment.RELAUNCH, "p has no controller that recreates it"),
        (
            {"attempt": 5},
            Treatment.LEAVE,
            "p was relaunched 5 times of 5; topomend.io/max-attempts sets the limit",
        ),
        ({"attempt": 5, "max_attempts": 6}, Treatment.RELAUNCH, "p has no controller that recreates it"),
    ],
)
def test_who_recreates_a_pod_decides_what_is_done_about_it(
    fields: dict[str, object], treatment: Treatment, reason: str
) -> None:
    found = eligibility(replace(refused(), **fields), LIMITS)  # type: ignore[arg-type]
    assert (found.treatment, found.reason) == (treatment, reason)


@pytest.mark.parametrize(
    ("generation", "released", "treatment"),
    [
        (0, False, Treatment.RELAUNCH),  # an API server that does not count
        (1, False, Treatment.RELAUNCH),
        (2, False, Treatment.LEAVE),
        (2, True, Treatment.RELAUNCH),  # one change is the operator's own
        (3, True, Treatment.LEAVE),
    ],
)
def test_a_bare_pod_that_somebody_else_changed_is_not_recreated(
    generation: int, released: bool, treatment: Treatment
) -> None:
    answer = eligibility(refused(generation=generation, released=released), LIMITS)
    assert answer.treatment is treatment
    changed = f"p was changed after its creation (generation {generation}) and is not recreated"
    assert (changed in answer.reason) is (treatment is Treatment.LEAVE)


def test_a_namespace_opts_out_and_a_pod_in_it_opts_in_again() -> None:
    closed = Limits(relaunch=False)
    assert eligibility(refused(), closed).treatment is Treatment.LEAVE
    assert eligibility(refused(relaunch="true"), closed).treatment is Treatment.RELAUNCH


def test_a_refusal_is_explained_with_what_was_asked_and_free_on_each_numa_node() -> None:
    verdict, _ = admit(FRAGMENTED, asking(3))
    assert explain(verdict, "a", "single-numa-node") == (
        "a refuses container main: cpu asks 3 and fits no NUMA node: free 1 on NUMA 0, 2 on NUMA 1, lacks 1 "
        "(single-numa-node)"
    )


def test_resources_that_fit_different_numa_nodes_are_named_with_them() -> None:
    shape = parse_shape("numa:2 cores:4 device:vendor.com/gpu@0=1")
    machine = NodeState("a", shape.machine(), SETTINGS, shape.offered_devices())
    amounts = {"cpu": 4000, "memory": 1 << 30, "vendor.com/gpu": 1000}
    pod = Pod("ns", "p", "1", (Container("main", ContainerKind.APP, Resources(amounts, amounts)),))
    verdict, _ = admit(machine, pod)
    assert explain(verdict, "a", "single-numa-node") == (
        "a refuses container main: vendor.com/gpu fits NUMA 0 only, cpu fits NUMA 1 only (single-numa-node)"
    )


def judged(snapshot: Snapshot, now: float) -> object:
    return plans.explain_refusal(snapshot, Refusal(refused(), "5", 10.0), now)


def test_a_refusal_that_replay_shares_is_explained_at_once() -> None:
    found = judged(view_of(FRAGMENTED), 10.0)
    assert isinstance(found, plans.Explained)
    assert found.text.startswith("a refuses container main: cpu asks 3")


def test_a_refusal_that_an_older_state_admits_waits_for_the_next_one_and_is_then_a_disagreement() -> None:
    snapshot = view_of(state("a"))
    assert judged(snapshot, 10.0) == plans.AwaitsPublication(13.0)
    assert isinstance(judged(snapshot, 13.0), plans.ReplayMismatch)
    assert isinstance(judged(apply(snapshot, changes.Published(FRAGMENTED, "6")), 11.0), plans.Explained)
    newer = judged(apply(snapshot, changes.Published(state("a", 1), "6")), 11.0)
    assert newer == plans.Explained("a refused p (TopologyAffinityError) and would admit it now: its state has changed")


def test_a_kubelet_that_refused_what_a_pod_that_has_ended_meanwhile_left_no_room_for_did_not_disagree() -> None:
    ended = WatchedPod("ns", "held-1", "held-1", "6", asking(2, "held-1"), "Succeeded", node="a")
    snapshot = apply(view_of(FRAGMENTED), changes.PodUpdated(ended, 10.5))
    assert judged(snapshot, 20.0) == plans.Explained(
        "a refused p (TopologyAffinityError) and would admit it now: its state has changed"
    )


def test_a_refusal_by_a_node_without_an_agent_says_so() -> None:
    found = judged(Snapshot(), 10.0)
    assert found == plans.Explained(
        "a refused p (TopologyAffinityError); the cause is unknown: no agent publishes its state"
    )
