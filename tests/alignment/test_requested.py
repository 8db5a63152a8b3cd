"""A pod whose creator asks for one NUMA node goes only where it is placed on one, whatever the node's policy."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from tests.builders import (
    applied,
    gated_pod,
    guaranteed_pod,
    node,
    node_state,
    pod,
    pod_allocation,
    running,
    snapshot_of,
)
from tests.replay.test_properties import any_pods, any_states, odd_but_running
from tests.seeds import cases

from topomend.alignment.requested import (
    admission_of,
    aligned_numa_nodes,
    is_aligned,
    places_text,
    why_not_aligned,
    wrong_value,
)
from topomend.cache import changes
from topomend.decide import plan as plans
from topomend.decide.bind_order import admitted_in_any_order
from topomend.decide.diagnosis.feasibility import any_node_admits, diagnose, hostnames_without_agent
from topomend.decide.diagnosis.infeasible import why_infeasible
from topomend.model.narrowing import ANYWHERE
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import SINGLE_NUMA_NODE, Pod
from topomend.model.pods.scheduling import Placement
from topomend.replay.admission import admit

SHAPE = "numa:2 cores:4 memory:8Gi device:vendor.com/gpu@0=1,1=1"


def asking(asked: Pod) -> Pod:
    return replace(asked, alignment=SINGLE_NUMA_NODE)


def half_taken(policy: str, *, name: str = "a") -> NodeState:
    """Two CPUs are free on each NUMA node."""
    state = node_state(SHAPE, policy, name=name)
    return replace(state, pods=(pod_allocation("low", "1"), pod_allocation("high", "4-5")))


@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_a_node_that_admits_the_pod_over_two_numa_nodes_does_not_count(policy: str) -> None:
    snapshot, wide = snapshot_of(half_taken(policy)), guaranteed_pod(cpus=3)
    assert diagnose(snapshot, wide, Placement()).candidates
    diagnosis = diagnose(snapshot, asking(wide), Placement())
    assert not diagnosis.candidates
    assert diagnosis.lacks_alignment_alone
    assert diagnosis.summary("") == "no node admits it now: 1 of 1 node does not place it on one NUMA node"
    assert diagnosis.explanation(diagnosis.rejected[0]) == (
        "a admits p, but not on one NUMA node: container c0: cpu on NUMA 0,1"
    )


def test_a_restricted_node_does_not_count_for_a_pod_that_is_wider_than_its_numa_nodes() -> None:
    snapshot, wide = snapshot_of(node_state(SHAPE, "restricted")), guaranteed_pod(cpus=5)
    assert diagnose(snapshot, wide, Placement()).candidates
    assert diagnose(snapshot, asking(wide), Placement()).lacks_alignment_alone


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
def test_a_node_of_any_policy_that_places_it_on_one_numa_node_is_named_with_it(policy: str) -> None:
    state = running(node_state(SHAPE, policy), guaranteed_pod("low", 3))
    (candidate,) = diagnose(snapshot_of(state), asking(guaranteed_pod(cpus=4)), Placement()).candidates
    assert candidate.place == "a NUMA 1"


def test_a_node_whose_managers_pin_nothing_does_not_align() -> None:
    state = node_state(SHAPE, "best-effort", cpu_manager="none")
    diagnosis = diagnose(snapshot_of(state), asking(guaranteed_pod(cpus=1)), Placement())
    assert diagnosis.explanation(diagnosis.rejected[0]).endswith(
        "it gets neither exclusive CPUs nor devices: the CPU Manager of a has the policy none"
    )


def test_a_device_whose_cpus_are_shared_between_numa_nodes_is_not_aligned() -> None:
    burstable = asking(pod("p", "request:cpu=1 vendor.com/gpu=1"))
    verdict, after = admit(node_state(SHAPE, "single-numa-node"), burstable)
    assert verdict.admitted
    assert not is_aligned(after, burstable)
    assert why_not_aligned(after, burstable) == ("container c0: shared CPUs on NUMA 0,1, vendor.com/gpu on NUMA 0")


def test_a_container_without_exclusive_resources_does_not_count_beside_one_with_some() -> None:
    both = asking(pod("p", "cpu=2 memory=1Gi", "cpu=500m memory=1Gi"))
    after = running(node_state(SHAPE, "best-effort", memory_manager="Static"), both)
    assert is_aligned(after, both)
    assert places_text(after, both) == "container c0: cpu on NUMA 0, memory on NUMA 0"
    assert aligned_numa_nodes(after, both) == 0b01


def test_each_container_may_be_on_a_numa_node_of_its_own() -> None:
    both = asking(pod("p", "cpu=3 memory=1Gi", "cpu=4 memory=1Gi"))
    after = running(node_state(SHAPE, "best-effort"), both)
    assert is_aligned(after, both)
    assert aligned_numa_nodes(after, both) == 0b11


@settings(max_examples=cases(50, 150), deadline=None)
@given(any_states | odd_but_running(), any_pods)
def test_the_fast_answer_is_that_of_the_whole_admission(state: NodeState, asked: Pod) -> None:
    wanted = asking(asked)
    verdict, after = admit(state, wanted)
    assert admission_of(wanted).admits(state) is (verdict.admitted and is_aligned(after, wanted))
    diagnosis = diagnose(
        applied(
            changes.NodeUpdated(replace(node(state.name), by_claim=frozenset(), allocatable=_plenty(asked))),
            changes.Published(state, "3"),
        ),
        wanted,
        Placement(),
    )
    assert bool(diagnosis.candidates) is (verdict.admitted and is_aligned(after, wanted))
    if diagnosis.candidates:
        assert diagnosis.candidates[0].numa_nodes == aligned_numa_nodes(after, wanted)


def _plenty(asked: Pod) -> dict[str, int]:
    names = {
        name for container in asked.containers for name in (*container.resources.requests, *container.resources.limits)
    }
    names |= set(asked.resources.requests if asked.resources else ())
    return dict.fromkeys((*names, "pods"), 1 << 80)


def test_a_pod_is_not_sent_where_it_could_split_an_assumed_one_by_coming_first() -> None:
    """Four CPUs are free on NUMA 1, two on NUMA 0: of two pods of 3 the kubelet splits the one that comes second."""
    state = running(node_state(SHAPE, "best-effort"), guaranteed_pod("low", 1))
    first, later = guaranteed_pod("first", 3), guaranteed_pod("later", 3)
    plain = applied(changes.PodAssumed(first, ("a",), 1.0), to=snapshot_of(state))
    asked = applied(changes.PodAssumed(asking(first), ("a",), 1.0), to=snapshot_of(state))
    assert admitted_in_any_order(plain.publications["a"], later)
    assert not admitted_in_any_order(plain.publications["a"], asking(later))
    assert not admitted_in_any_order(asked.publications["a"], later)
    assert admitted_in_any_order(asked.publications["a"], guaranteed_pod("small", 1))


def test_a_pod_that_asks_and_was_sent_here_unaligned_by_others_keeps_no_pod_away() -> None:
    state = half_taken("best-effort")
    sent = applied(changes.PodAssumed(asking(guaranteed_pod("sent", 3)), ("a",), 1.0), to=snapshot_of(state))
    assert not is_aligned(sent.publications["a"].state_with_assumed(), asking(guaranteed_pod("sent", 3)))
    assert admitted_in_any_order(sent.publications["a"], guaranteed_pod(cpus=1))


@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_it_is_narrowed_to_nodes_that_align_it_and_to_no_node_that_may_join_later(policy: str) -> None:
    snapshot = snapshot_of(half_taken(policy, name="a"), node_state(SHAPE, policy, name="b"))
    waiting = gated_pod(cpus=3, scheduler_rules=("affinity",))
    waiting = replace(waiting, pod=asking(waiting.pod))
    chosen = plans.choose(snapshot, waiting, None)
    assert isinstance(chosen, plans.RelaunchOn)
    assert chosen.narrowing != ANYWHERE
    assert chosen.narrowing.hosts == ("b",)


def test_no_node_without_an_agent_is_tried_for_it() -> None:
    unknown = applied(changes.NodeUpdated(node("new")), to=snapshot_of(half_taken("none")))
    wide = guaranteed_pod(cpus=5)
    diagnosis = diagnose(unknown, asking(wide), Placement())
    assert hostnames_without_agent(unknown, asking(wide), diagnosis) == ()
    assert any_node_admits(unknown, ["new"], wide, Placement())
    assert not any_node_admits(unknown, ["new"], asking(wide), Placement())


def test_one_that_no_empty_node_aligns_is_told_so() -> None:
    snapshot = snapshot_of(node_state(SHAPE, "best-effort"))
    wide = guaranteed_pod(cpus=5)
    assert why_infeasible(snapshot, wide, Placement()) == ""
    assert why_infeasible(snapshot, asking(wide), Placement()) == (
        "no node admits p even when empty; closest: a would not place it on one NUMA node: "
        "container c0: cpu on NUMA 0,1"
    )


def test_a_wrong_value_asks_for_nothing_and_is_named() -> None:
    wrong = replace(guaranteed_pod(cpus=3), alignment="numa")
    assert wrong_value(guaranteed_pod()) == wrong_value(asking(guaranteed_pod())) == ""
    assert wrong_value(wrong) == (
        "topomend.io/alignment: 'numa' means nothing and is ignored; the one value is 'single-numa-node'"
    )
    assert diagnose(snapshot_of(half_taken("none")), wrong, Placement()).candidates
