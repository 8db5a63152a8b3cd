"""The nearest amounts that would be admitted: true, and none nearer, on random nodes and on a few known ones."""

import time
from itertools import chain, count
from random import Random

import pytest
from tests.builders import node_state, pod
from tests.seeds import SEED, cases
from verify.nearest.counterfactual import RefusedPod, faults, refused_pods
from verify.oracle.cases import node_state as verify_node_state
from verify.oracle.random_cases.generate import random_case

from topomend.explain.nearest.nearest_amounts import NearestAmount, nearest_amounts
from topomend.model.nodes.node_state import NodeState
from topomend.replay.admission import admit, is_admitted
from topomend.replay.effort import Overspent, Shares
from topomend.wire.pods.pod import read_pod

REFUSED_PODS = cases(70, 200)
GIB = 1 << 30
EIGHT = "sockets:2 numa:4 cores:8 threads:2 memory:64Gi"


def wrong(refused: RefusedPod, random: Random, samples: int) -> list[str]:
    return faults(refused, nearest_amounts(refused.state, refused.pod), random, samples)


@pytest.mark.parametrize("seed", [SEED])
def test_each_named_amount_is_admitted_and_none_nearer_is(seed: int) -> None:
    checked = 0
    for number in count(seed):
        for refused in refused_pods(number):
            assert wrong(refused, Random(number), samples=12) == [], (number, refused.pod)
            checked += 1
        if checked >= REFUSED_PODS:
            return


@pytest.mark.parametrize("seed", [SEED])
def test_an_admission_without_a_trace_has_the_answer_of_one_with_it(seed: int) -> None:
    """The search and its check ask in this way."""
    for number in range(seed, seed + cases(20, 60)):
        case = random_case(Random(number))
        state = verify_node_state(case)
        for step in case["steps"]:
            if "admit" not in step:
                break
            asked = read_pod(step["admit"])
            verdict, after = admit(state, asked)
            assert is_admitted(state, asked) == verdict.admitted, (number, asked)
            state = after


def nearest(state: NodeState, *containers: str) -> list[tuple[str, int, int]]:
    asked = pod("p", *containers)
    assert not admit(state, asked)[0].admitted
    return [(amount.resource, amount.asked, amount.admitted) for amount in nearest_amounts(state, asked)]


def test_fewer_cpus_or_more_memory_agree_on_an_empty_node() -> None:
    state = node_state(EIGHT, "restricted", memory_manager="Static")
    assert nearest(state, "cpu=24 memory=20Gi") == [("cpu", 24, 16), ("memory", 20 * GIB, 64 * GIB + (64 << 20))]


def test_of_two_equally_near_amounts_the_smaller_is_named() -> None:
    """Whole cores of two CPUs: 3 are refused, 2 and 4 are admitted."""
    state = node_state("sockets:2 cores:4 threads:2 memory:8Gi", "none", cpu_options="full-pcpus-only=true")
    assert nearest(state, "cpu=3 memory=1Gi") == [("cpu", 3, 2)]


def test_no_single_amount_helps_where_two_resources_are_too_large() -> None:
    state = node_state(f"{EIGHT} device:vendor.com/gpu@0=1", "single-numa-node")
    assert nearest(state, "cpu=17 memory=1Gi vendor.com/gpu=2") == []


def test_no_amount_is_named_for_a_pod_that_is_on_the_node_already() -> None:
    state = node_state()
    _, after = admit(state, pod("p", "cpu=2 memory=1Gi"))
    assert nearest(after, "cpu=5 memory=1Gi") == []


def test_cpus_that_an_uneven_machine_takes_with_their_cores_are_found() -> None:
    """A hybrid machine under best-effort, whose init containers take a reserved CPU that the others may then reuse."""
    refusal = {refused.pod.name: refused for refused in refused_pods(3845627110)}["p0"]
    assert [amount.admitted for amount in nearest_amounts(refusal.state, refusal.pod) if amount.resource == "cpu"] == [
        33
    ] * 4
    assert wrong(refusal, Random(0), samples=40) == []


def test_devices_that_a_pod_as_a_whole_is_not_given_at_admission_refuse_nothing() -> None:
    refusal = {refused.pod.name: refused for refused in refused_pods(2172050054)}["p3"]
    assert NearestAmount("c0", "memory", 256 << 20, 192 << 20) in nearest_amounts(refusal.state, refusal.pod)
    assert wrong(refusal, Random(0), samples=40) == []


@pytest.mark.parametrize(("seed", "pod_name"), [(3028122055, "p0"), (3028149432, "p8")])
def test_the_search_ends_where_a_numa_node_has_less_memory_than_is_set_aside_on_it(seed: int, pod_name: str) -> None:
    """The kubelet then counts nearly 16Ei as allocatable there; more than the machine has is not searched."""
    refusal = {refused.pod.name: refused for refused in refused_pods(seed)}[pod_name]
    begin = time.thread_time()
    nearest_amounts(refusal.state, refusal.pod)
    assert time.thread_time() - begin < 10  # milliseconds; the search of 16Ei takes hours
    assert wrong(refusal, Random(0), samples=12) == []


def test_under_policy_none_only_amounts_of_the_manager_that_refuses_are_tried() -> None:
    """Nothing ties managers together there. Trying all amounts of five containers takes half a minute."""
    state = node_state(f"{EIGHT} device:vendor.com/gpu@0=2", "none", memory_manager="Static")
    containers = ["cpu=8 memory=40Gi"] * 4 + ["cpu=4 memory=10Gi vendor.com/gpu=3"]
    begin = time.thread_time()
    assert nearest(state, *containers) == [("vendor.com/gpu", 3, 2)]
    assert time.thread_time() - begin < 1


def test_no_amount_is_named_where_the_node_has_too_little_of_two_resources_in_all() -> None:
    state = node_state("sockets:2 cores:4 memory:8Gi device:vendor.com/gpu@0=2", "best-effort")
    assert nearest(state, "cpu=4 memory=1Gi vendor.com/gpu=2", "cpu=4 memory=1Gi vendor.com/gpu=1") == []


def test_the_search_keeps_to_the_share_of_its_node() -> None:
    state = node_state(EIGHT, "none", memory_manager="Static")
    clock = chain([0, 0, 0], count(10))  # three looks at the start, then every look ten seconds later
    effort = Shares(lambda: next(clock))
    with effort.working_on(state.name, 1), pytest.raises(Overspent):
        nearest_amounts(state, pod("p", "cpu=8 memory=600Gi"), effort)


def test_a_container_of_several_is_named() -> None:
    amounts = nearest_amounts(node_state(), pod("p", "cpu=1 memory=1Gi", "cpu=5 memory=1Gi"))
    assert amounts == (NearestAmount("c1", "cpu", 5, 4),)


def test_memory_without_a_hint_may_be_given_where_an_init_container_broke_its_group() -> None:
    """A kept case: under best-effort the init container gets one NUMA node of a group of two."""
    refused = next(refused for refused in refused_pods(1629559903) if refused.pod.name == "p2")
    nearest = NearestAmount("c0", "memory", 8 << 30, 4 << 30)
    assert nearest_amounts(refused.state, refused.pod) == (nearest,)
