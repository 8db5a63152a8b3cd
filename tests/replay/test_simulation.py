"""A kubelet put together from what is known of its node."""

from dataclasses import replace

import pytest
from tests.builders import node_state, pod

from topomend.explain.cause import Kind
from topomend.explain.explanation import cause_of
from topomend.model.bitmask import parse_id_list
from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import ContainerAllocation, PodAllocation
from topomend.model.pods.bound_pod import BoundPod
from topomend.model.pods.scheduling import Placement
from topomend.replay.simulation import Simulation, simulation_of

CHOOSY = Placement(node_selector={"pool": "gpu"})


def bound(name: str, *containers: str, **facts: object) -> BoundPod:
    return BoundPod(pod(name, *containers), **facts)  # type: ignore[arg-type]


def node(**labels: str) -> Node:
    amounts = {"cpu": 7000, "memory": (15 << 30) * 1000, "pods": 110_000}
    return Node("a", labels=labels, allocatable=amounts)


def reason(simulation: Simulation, given: BoundPod) -> str:
    return simulation.answer(given)[0].reason


def test_of_pods_that_are_not_known_what_they_hold_exclusively_counts() -> None:
    state = node_state(pods=[pod("held", "cpu=3 memory=1Gi vendor.com/gpu=0")])
    assert reason(simulation_of(state, pods=None), bound("p", "request:cpu=5")) == "OutOfcpu"
    assert reason(simulation_of(state, pods=None), bound("p", "request:cpu=4")) == ""


def test_what_init_containers_hold_beside_the_others_is_no_further_request() -> None:
    """Its init container has CPUs 1-3 and its container CPUs 4-6: it requests three CPUs."""
    init = ContainerAllocation("i", init=True, cpus=parse_id_list("1-3"))
    app = ContainerAllocation("c", cpus=parse_id_list("4-6"))
    state = replace(node_state(), pods=(PodAllocation("ns", "held", "held", (init, app)),))
    assert reason(simulation_of(state, pods=None), bound("p", "request:cpu=4")) == ""
    assert reason(simulation_of(state, pods=None), bound("p", "request:cpu=5")) == "OutOfcpu"


def test_a_pod_that_is_given_counts_by_its_requests_and_once() -> None:
    state = node_state(pods=[pod("held", "cpu=3 memory=1Gi")])
    given = simulation_of(state, pods=(bound("held", "cpu=3 memory=1Gi", node="a"), bound("more", "request:cpu=2")))
    verdict, _ = given.answer(bound("p", "request:cpu=3"))
    assert "used: 5000" in verdict.message


def test_what_is_not_known_refuses_nobody_and_is_said() -> None:
    unknown = simulation_of(node_state(), pods=None)
    choosy = bound("p", "request:ephemeral-storage=1Gi request:memory=1Gi", placement=CHOOSY, strict_groups=True)
    assert reason(unknown, choosy) == ""
    assert list(unknown.not_checked(choosy)) == [
        "node affinity",
        "the node's support of supplementalGroupsPolicy",
        "ephemeral-storage",
        "taints",
        "memory that kubeReserved and systemReserved set aside",
        "what other pods on the node request beyond their exclusive resources",
    ]


def test_an_extended_resource_that_the_node_is_not_known_to_have_is_said_not_to_be_checked() -> None:
    """The kubelet passes over it, and leaves it to the scheduler."""
    simulation = simulation_of(node_state("numa:2 cores:4 memory:8Gi device:v.com/gpu@0=1"))
    asked = bound("p", "v.com/gpu=1 v.com/gpus=2 memory=1Gi")
    assert reason(simulation, asked) == ""
    assert list(simulation.not_checked(asked)) == ["v.com/gpus, which the node is not known to have"]
    by_claim = replace(asked, by_claim=frozenset({(asked.pod.containers[0].name, "v.com/gpus")}))
    assert simulation.missing(by_claim) == []
    has_it = Node("a", allocatable={"cpu": 8000, "memory": 8 << 40, "pods": 110_000, "v.com/gpus": 0})
    known = simulation_of(simulation.kubelet.state, has_it, ())
    assert (reason(known, asked), known.missing(asked)) == ("OutOfv.com/gpus", [])


def test_what_is_known_is_checked() -> None:
    known = simulation_of(node_state(), node(pool="cpu"), ())
    choosy = bound("p", "", placement=CHOOSY)
    verdict, _ = known.answer(choosy)
    assert (verdict.reason, list(known.not_checked(choosy))) == ("NodeAffinity", [])
    cause = cause_of(verdict, known.kubelet.state, choosy.pod)
    assert (cause.kind, cause.sentence) == (
        Kind.NODE_DOES_NOT_MATCH,
        "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    )


def test_the_node_that_a_manifest_names_is_the_one_that_is_asked() -> None:
    assert reason(simulation_of(node_state(), node(), ()), bound("p", "", node="elsewhere")) == ""


def test_all_totals_that_are_exceeded_are_told() -> None:
    simulation = simulation_of(node_state())
    asked = bound("p", "request:cpu=7500m request:memory=20Gi")
    cause = cause_of(simulation.answer(asked)[0], simulation.kubelet.state, asked.pod)
    assert cause.kind is Kind.NOT_ENOUGH_IN_TOTAL
    assert cause.sentence.startswith(
        "too little is left in total: cpu requests 7500m, left 7 of 7; memory requests 20Gi"
    )


def test_a_kubelet_with_more_pods_than_the_default_has_another_limit() -> None:
    shared = simulation_of(
        node_state("sockets:1 cores:130 memory:900Gi", pods=[pod(f"p{n}", "cpu=1 memory=1Gi") for n in range(111)]),
        pods=None,
    )
    assert reason(shared, bound("p", "")) == ""
    assert "the number of pods" in list(shared.not_checked(bound("p", "")))


def test_a_kubelet_that_does_not_start_answers_every_pod_so() -> None:
    broken = replace(simulation_of(node_state()), would_not_start="flag is wrong")
    verdict, after = broken.answer(bound("p", ""))
    assert (verdict.reason, verdict.message, after) == ("KubeletWouldNotStart", "flag is wrong", broken)


@pytest.mark.parametrize("gone", [True, False])
def test_a_pod_that_is_gone_in_another_state_requests_nothing(gone: bool) -> None:
    state = node_state(pods=[pod("held", "cpu=3 memory=1Gi")])
    simulation = simulation_of(state)
    verdict = simulation.answer_in(node_state() if gone else state, bound("p", "request:cpu=5"))
    assert verdict.admitted is gone
