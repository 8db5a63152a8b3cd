"""The plan for a refused pod, to relaunch it on nodes that admit it or to wait, and the explanation of its refusal."""

from dataclasses import replace

import pytest
from tests.builders import (
    TWO_NUMA_NODES,
    gated_pod,
    guaranteed_pod,
    node,
    node_state,
    pod,
    refused_pod,
    snapshot_of,
    watched_pod,
)

from topomend.cache import changes
from topomend.cache.changes import apply
from topomend.cache.entries import Refusal
from topomend.cache.snapshot import Snapshot
from topomend.decide import plan as plans
from topomend.decide.diagnosis.feasibility import diagnose
from topomend.decide.diagnosis.node_status import RejectedBy, insufficient
from topomend.decide.eligibility import Limits
from topomend.decide.queue.order import Reservation
from topomend.explain.explanation import explain
from topomend.model.narrowing import Narrowing
from topomend.model.nodes.node import HOSTNAME_LABEL
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import NodeSelectorTerm, Placement, Requirement, WatchedPod
from topomend.replay.admission import admit

LIMITS = Limits()


def planned(snapshot: Snapshot, pod: WatchedPod, limits: Limits = LIMITS) -> plans.Plan:
    return plans.plan(snapshot, Refusal(pod, pod.version, 10.0), limits)


def state(name: str, *cpus: int) -> NodeState:
    """A node on which pods of so many CPUs run."""
    return node_state(name=name, pods=[guaranteed_pod(f"running-{number}", count) for number, count in enumerate(cpus)])


FRAGMENTED = state("a", 2, 2)
"""One CPU is free on NUMA node 0, two on NUMA node 1."""


def test_a_bare_pod_is_relaunched_on_the_nodes_that_admit_it() -> None:
    plan = planned(snapshot_of(FRAGMENTED, node_state(name="b"), node_state(name="c")), refused_pod())
    assert isinstance(plan, plans.RelaunchOn)
    assert set(plan.nodes) == {"b", "c"}


def test_a_refused_pod_is_not_relaunched_on_numa_nodes_that_pods_have_left_for_another() -> None:
    urgent = gated_pod("urgent", 4, priority=10)
    snapshot = snapshot_of(FRAGMENTED, node_state(name="b"), pods=[urgent])
    refusal = Refusal(refused_pod(), "5", 10.0)
    held = [Reservation(urgent, "b", 0b11)]
    assert isinstance(plans.plan(snapshot, refusal, LIMITS), plans.RelaunchOn)
    assert isinstance(plans.plan(snapshot, refusal, LIMITS, reservations=held), plans.Wait)


def test_the_smallest_hole_is_taken_so_that_big_ones_stay_whole() -> None:
    plan = planned(snapshot_of(FRAGMENTED, node_state(name="b"), state("c", 1), state("d", 3)), refused_pod())
    assert isinstance(plan, plans.RelaunchOn)
    # On b it leaves no CPU of NUMA 0; on d and c one of NUMA 1, and d has less besides.
    assert plan.nodes == ("b", "d", "c")
    assert plan.reason == "b NUMA 0 admits it by replay"


def test_a_pod_that_the_scheduler_judges_by_more_than_its_node_may_go_to_every_node_that_admits_it() -> None:
    snapshot = snapshot_of(FRAGMENTED, *(node_state(name=name) for name in "bcdef"))
    named = planned(snapshot, refused_pod(scheduler_rules=("affinity",)))
    assert isinstance(named, plans.RelaunchOn)
    assert {candidate.hostname for candidate in named.candidates} == set("bcdef")
    assert named.narrowing.excluded == ("a",)
    few = planned(snapshot, refused_pod())
    assert isinstance(few, plans.RelaunchOn)
    assert few.narrowing == Narrowing(named.narrowing.hosts[: plans.MAX_NAMED_NODES])


def _full(snapshot: Snapshot, name: str) -> Snapshot:
    """The snapshot in which other pods leave nothing of the node in total."""
    full = replace(snapshot.nodes[name], used={"cpu": 7_000})
    return replace(snapshot, nodes={**snapshot.nodes, name: full})


def _at(*hosts: str) -> Placement:
    """That of a pod whose volume these nodes have."""
    return Placement(volumes=((NodeSelectorTerm((Requirement(HOSTNAME_LABEL, "In", hosts),)),),))


def test_a_pod_waits_for_the_node_that_has_its_volume_whatever_others_admit() -> None:
    snapshot = snapshot_of(FRAGMENTED, node_state(name="b"), node_state(name="c"))
    waits = plans.choose(snapshot, refused_pod(scheduler_rules=("volumes",), placement=_at("a")), None)
    assert isinstance(waits, plans.Wait)
    assert "2 of 3 nodes do not suit it (VolumeNodeAffinity)" in waits.reason
    goes = plans.choose(snapshot, refused_pod(scheduler_rules=("volumes",), placement=_at("a", "b")), None)
    assert isinstance(goes, plans.RelaunchOn)
    assert goes.nodes == ("b",)


def test_a_pod_of_unknown_volumes_is_kept_from_those_nodes_alone_that_would_refuse_it() -> None:
    """The volume may be on the full node, where kube-scheduler makes room, or on the one without an agent."""
    states = [FRAGMENTED, node_state(name="b"), node_state(name="c"), node_state(name="full")]
    snapshot = _full(apply(snapshot_of(*states), changes.NodeUpdated(node("no-agent"))), "full")
    unknown = refused_pod(scheduler_rules=("volumes",), placement=Placement(volumes=None))
    chosen = plans.choose(snapshot, unknown, None)
    assert isinstance(chosen, plans.RelaunchOn)
    assert set(chosen.nodes) == {"b", "c"}
    assert chosen.narrowing.excluded == ("a",)
    assert chosen.without(["b"]).narrowing.excluded == ("a", "b")
    known = plans.choose(snapshot, replace(unknown, placement=_at("b", "full", "no-agent")), None)
    assert isinstance(known, plans.RelaunchOn)
    assert known.narrowing == Narrowing(("b",))


def test_a_pod_of_unknown_volumes_that_no_node_would_refuse_is_not_narrowed() -> None:
    snapshot = _full(snapshot_of(node_state(name="b"), node_state(name="full")), "full")
    unknown = refused_pod(scheduler_rules=("volumes",), placement=Placement(volumes=None))
    chosen = plans.choose(snapshot, unknown, None)
    assert isinstance(chosen, plans.RelaunchOn)
    assert not chosen.narrowing


def test_the_shorter_list_is_written_of_the_nodes_that_admit_the_pod_and_of_the_others() -> None:
    names = ["b", "c", "d", "e", "f"]
    snapshot = snapshot_of(FRAGMENTED, *(node_state(name=name) for name in names))
    gated = refused_pod(scheduler_rules=("affinity",), placement=Placement({"zone": "x"}))
    for name in (*names, "a"):
        snapshot = apply(
            snapshot, changes.NodeUpdated(node(name, labels={HOSTNAME_LABEL: f"host-{name}", "zone": "x"}))
        )
    elsewhere = apply(snapshot, changes.NodeUpdated(node("g", labels={HOSTNAME_LABEL: "host-g"})))
    chosen = plans.choose(elsewhere, gated, None)
    assert isinstance(chosen, plans.RelaunchOn)
    assert chosen.narrowing.excluded == ("host-a",)
    assert chosen.narrowing.hosts[0] == f"host-{chosen.candidates[0].node}"
    assert chosen.without(["b"]).narrowing.excluded == ("host-a", "host-b")
    assert chosen.without(["b", "c", "d"]).narrowing.excluded == ()
    assert set(chosen.without(["b", "c", "d"]).narrowing.hosts) == {"host-e", "host-f"}
    unnamed = apply(snapshot, changes.NodeUpdated(node("h", labels={"zone": "x"})))
    listed = plans.choose(unnamed, gated, None)
    assert isinstance(listed, plans.RelaunchOn)
    assert not listed.narrowing.excluded
    assert set(listed.narrowing.hosts) == {f"host-{name}" for name in names}


def test_a_pod_whose_devices_a_claim_provides_goes_to_every_node_that_admits_its_cpus() -> None:
    snapshot = snapshot_of(FRAGMENTED, *(node_state(name=name) for name in "bcdef"))
    gated = refused_pod(pod=guaranteed_pod(cpus=3, gpu=1))
    assert isinstance(plans.choose(snapshot, gated, None), plans.Wait)
    mapped = apply(snapshot, changes.DeviceClassesListed(frozenset({"vendor.com/gpu"})))
    chosen = plans.choose(mapped, gated, None)
    assert isinstance(chosen, plans.RelaunchOn)
    assert set(chosen.nodes) == set("bcdef")


def test_a_pod_that_no_kubelet_aligns_is_not_narrowed_unless_one_refused_it() -> None:
    snapshot = snapshot_of(node_state(name="a"), node_state(name="b"))
    burstable = pod("p", "request:cpu=1")
    gated = refused_pod(pod=burstable)
    anywhere = plans.choose(snapshot, gated, None)
    assert isinstance(anywhere, plans.RelaunchOn)
    assert anywhere.nodes
    assert not anywhere.narrowing
    elsewhere = plans.choose(snapshot, gated, RejectedBy("a", "9"))
    assert isinstance(elsewhere, plans.RelaunchOn)
    assert elsewhere.narrowing.hosts == ("b",)


def test_the_refusing_node_is_asked_again_only_after_it_has_published() -> None:
    emptied = node_state(name="a")
    assert isinstance(planned(snapshot_of(emptied, version="4"), refused_pod()), plans.Wait)
    again = planned(snapshot_of(emptied, version="6"), refused_pod())
    assert isinstance(again, plans.RelaunchOn)
    assert again.nodes == ("a",)


def test_the_refusing_node_comes_last_where_its_publication_may_be_older_than_the_refusal() -> None:
    answers = diagnose(
        snapshot_of(node_state(name="a"), node_state(name="b")),
        guaranteed_pod(cpus=3),
        Placement(),
        RejectedBy("a", None),
    )
    assert [candidate.node for candidate in answers.candidates] == ["b", "a"]


def test_no_two_pods_are_sent_to_one_hole() -> None:
    snapshot = snapshot_of(FRAGMENTED, state("b", 4))  # b has one hole of three CPUs
    assert isinstance(planned(snapshot, refused_pod()), plans.RelaunchOn)
    snapshot = apply(snapshot, changes.PodAssumed(guaranteed_pod("first", 3), ("b",), 10.0))
    assert isinstance(planned(snapshot, refused_pod()), plans.Wait)


def test_a_node_whose_totals_are_used_up_is_no_candidate() -> None:
    snapshot = snapshot_of(FRAGMENTED, node_state(name="b"), node_state(name="c"))
    plan = plans.plan(snapshot, Refusal(refused_pod(), "5", 10.0), LIMITS, {"b": insufficient("b", "cpu")})
    assert isinstance(plan, plans.RelaunchOn)
    assert plan.nodes == ("c",)
    assert plan.diagnosis.counts() == {"Admits": 1, "JustRefused": 1, "InsufficientResources": 1}


def used(snapshot: Snapshot, name: str, cpus: int) -> Snapshot:
    """The snapshot in which the pods of the node take so many CPUs."""
    listed = changes.NodePodsListed(name, 1, "9", {"cpu": 1000 * cpus, "pods": 1000}, {})
    return apply(apply(snapshot, changes.ListBegun(name, 1)), listed)


def test_a_node_that_is_full_by_totals_is_no_candidate_and_one_whose_totals_suffice_comes_first() -> None:
    snapshot = snapshot_of(state("b", 1), node_state(name="c"), node_state(name="d"))
    best_first = planned(snapshot, refused_pod())
    assert isinstance(best_first, plans.RelaunchOn)
    known = planned(used(used(snapshot, best_first.nodes[2], 1), best_first.nodes[0], 6), refused_pod())
    assert isinstance(known, plans.RelaunchOn)
    assert known.nodes == (best_first.nodes[2], best_first.nodes[1])
    assert known.diagnosis.counts() == {"Admits": 2, "InsufficientResources": 1}


def test_a_pod_stays_away_from_a_full_node_whose_kubelet_might_refuse_it_where_its_scheduler_does_not_count() -> None:
    """As where a scheduler has NodeResourcesFit disabled, or learns sooner than the operator that a pod has ended."""
    one_numa_node = "sockets:1 cores:8 memory:8Gi"
    snapshot = used(snapshot_of(node_state(one_numa_node, name="b"), node_state(one_numa_node, name="c")), "b", 6)

    def narrowing(asking: Pod, seen: Snapshot = snapshot) -> Narrowing:
        chosen = plans.choose(seen, refused_pod(pod=asking), None)
        assert isinstance(chosen, plans.RelaunchOn)
        assert chosen.nodes == ("c",)
        return chosen.narrowing

    assert narrowing(guaranteed_pod(cpus=3)).hosts == ("c",)
    assert not narrowing(pod("p", "request:cpu=3"))  # no kubelet refuses it
    small = apply(snapshot, changes.NodeUpdated(node("b", cpus=2)))
    assert not narrowing(guaranteed_pod(cpus=3), small)  # no scheduler that counts uses it, whatever ends there
    unknown = used(apply(snapshot, changes.NodeUpdated(node("d"))), "d", 6)
    assert not narrowing(pod("p", "request:cpu=3"), unknown)  # nor does a full node without an agent keep it away
    assert narrowing(guaranteed_pod(cpus=3), unknown).hosts == ("c",)


def test_a_node_whose_totals_are_known_stays_the_last_one_where_it_refused_the_pod() -> None:
    snapshot = used(snapshot_of(node_state(name="a"), node_state(name="b")), "a", 1)
    refused = refused_pod(node="a")
    plan = plans.choose(snapshot, refused, RejectedBy("a", None))
    assert isinstance(plan, plans.RelaunchOn)
    assert plan.nodes == ("b", "a")


def test_a_wait_counts_the_nodes_by_their_reason() -> None:
    snapshot = snapshot_of(FRAGMENTED, state("b", 2, 2))
    snapshot = apply(snapshot, changes.NodeUpdated(node("c")))
    plan = planned(snapshot, refused_pod())
    assert isinstance(plan, plans.Wait)
    assert plan.reason == (
        "no other node admits it now: 1 of 2 nodes does not fit its cpu on NUMA nodes; "
        "1 of 2 nodes does not publish a usable state"
    )
    assert plan.diagnosis.counts() == {"JustRefused": 1, "TopologyAffinityError": 1, "Unknown": 1}


@pytest.mark.parametrize(("mismatches", "is_candidate"), [(2, True), (3, False)])
def test_a_node_with_three_mismatches_in_a_row_is_no_candidate(mismatches: int, is_candidate: bool) -> None:
    snapshot = snapshot_of(FRAGMENTED, node_state(name="b"))
    for number in range(mismatches):
        snapshot = apply(snapshot, changes.MismatchDetected("b", f"uid-{number}", 10.0))
    plan = planned(snapshot, refused_pod())
    assert isinstance(plan, plans.RelaunchOn) == is_candidate
    assert is_candidate or plan.reason == "no other node admits it now: 1 of 1 node does not decide as replay does"


def test_a_refusal_is_explained_with_what_was_asked_and_free_on_each_numa_node() -> None:
    asked = guaranteed_pod(cpus=3)
    verdict, _ = admit(FRAGMENTED, asked)
    assert explain(verdict, FRAGMENTED, asked) == (
        "a refuses container c0: cpu requests 3 and fits no NUMA node: free 1 on NUMA 0, 2 on NUMA 1, lacks 1 "
        "(single-numa-node)"
    )


def test_resources_that_fit_different_numa_nodes_are_named_with_them() -> None:
    state, asked = node_state(f"{TWO_NUMA_NODES} device:vendor.com/gpu@0=1"), guaranteed_pod(cpus=4, gpu=1)
    verdict, _ = admit(state, asked)
    assert explain(verdict, state, asked) == (
        "a refuses container c0: vendor.com/gpu fits NUMA 0 only, cpu fits NUMA 1 only (single-numa-node)"
    )


def explained(snapshot: Snapshot, now: float) -> object:
    return plans.explain_refusal(snapshot, Refusal(refused_pod(), "5", 10.0), now)


def test_a_refusal_that_replay_agrees_with_is_explained_at_once() -> None:
    explanation = explained(snapshot_of(FRAGMENTED), 10.0)
    assert isinstance(explanation, plans.Explained)
    assert explanation.text.startswith("a refuses container c0: cpu requests 3")


def test_a_refusal_that_an_older_state_admits_waits_for_the_next_one_and_is_then_a_mismatch() -> None:
    snapshot = snapshot_of(node_state(name="a"))
    until = 10.0 + plans.PUBLICATION_SECONDS
    assert explained(snapshot, 10.0) == plans.AwaitsPublication(until)
    assert isinstance(explained(snapshot, until), plans.ReplayMismatch)
    assert isinstance(explained(apply(snapshot, changes.Published(FRAGMENTED, "6")), 11.0), plans.Explained)
    newer = explained(apply(snapshot, changes.Published(state("a", 1), "6")), 11.0)
    assert newer == plans.Explained("a refused p (TopologyAffinityError) and would admit it now: its state has changed")


def test_a_refusal_for_lack_of_room_that_a_pod_has_left_since_is_no_mismatch() -> None:
    ended = watched_pod("running-1", 2, version="6", phase="Succeeded", node="a")
    snapshot = apply(snapshot_of(FRAGMENTED), changes.PodUpdated(ended, 10.5))
    assert explained(snapshot, 20.0) == plans.Explained(
        "a refused p (TopologyAffinityError) and would admit it now: its state has changed"
    )


def test_a_refusal_for_devices_that_are_not_back_is_explained_at_once() -> None:
    """After a reboot the node publishes no such device, and replay of what it publishes admits the pod."""
    error = "no healthy devices present; cannot allocate unhealthy devices vendor.com/gpu"
    pod = refused_pod(
        reason="UnexpectedAdmissionError",
        message=f"Pod was rejected: Allocate failed due to {error}, which is unexpected",
    )
    snapshot = snapshot_of(node_state(name="a"))
    assert plans.explain_refusal(snapshot, Refusal(pod, "5", 10.0), 10.0) == plans.Explained(
        f"a refused p: {error}: their plugin is not back yet, or reports a fault; "
        "check the device plugin's pod on the node",
        ("vendor.com/gpu",),
    )
    other = replace(pod, message="Pod was rejected: Allocate failed due to something else, which is unexpected")
    assert isinstance(plans.explain_refusal(snapshot, Refusal(other, "5", 10.0), 10.0), plans.AwaitsPublication)


def test_what_the_kubelet_says_of_devices_counts_more_than_what_replay_finds_since() -> None:
    """The refused pod's CPUs have gone to others since: replay would name them."""
    error = "no healthy devices present; cannot allocate unhealthy devices vendor.com/gpu"
    refused = refused_pod(
        reason="UnexpectedAdmissionError",
        message=f"Pod was rejected: Allocate failed due to {error}, which is unexpected",
    )
    refused = replace(refused, pod=pod("p", "init cpu=3 memory=1Gi vendor.com/gpu=1", "cpu=3 memory=1Gi"))
    explanation = plans.explain_refusal(snapshot_of(FRAGMENTED), Refusal(refused, "5", 10.0), 10.0)
    assert explanation == plans.Explained(
        f"a refused p: {error}: their plugin is not back yet, or reports a fault; a kubelet that restarts asks for the "
        "devices of init container c0 again, though it has ended; check the device plugin's pod on the node",
        ("vendor.com/gpu",),
    )


def test_a_refusal_by_a_node_without_an_agent_says_so() -> None:
    explanation = explained(Snapshot(), 10.0)
    assert explanation == plans.Explained(
        "a refused p (TopologyAffinityError); the cause is unknown: no agent publishes its state"
    )
