"""The fast path answers as ``admit`` does, on every node and for every pod.

A failing random test shows its seed in its name; TOPOMEND_SEED runs it again.
"""

import json
import random
from dataclasses import replace
from functools import reduce
from operator import or_
from pathlib import Path

import pytest
from hypothesis import given, settings
from tests.builders import TWO_NUMA_NODES, TWO_NUMA_NODES_SMT, node_state, pod
from tests.replay.test_properties import any_pods, any_states, odd_but_running
from tests.seeds import SEED, cases
from verify.oracle.cases import node_state as state_of_case
from verify.oracle.kept import KEPT
from verify.oracle.random_cases.generate import random_case

from topomend.model.nodes.node_state import NodeState, unavailable_cpus
from topomend.model.pods.pod import Pod
from topomend.model.verdict import Preference, ResourceTrace
from topomend.replay.admission import admit, release
from topomend.replay.errors import KUBELET_WOULD_HANG
from topomend.replay.errors import TOPOLOGY_AFFINITY_ERROR as ERROR
from topomend.replay.fast_path import admission
from topomend.replay.fast_path.admission import MAX_ANSWERS, FastAdmission, FastPlacement, FastRefusal
from topomend.wire.pods.pod import read_pod


def answer_from_free_capacity(state: NodeState, asking: Pod) -> bool | None:
    return FastAdmission(asking)._from_free_capacity(state)


def has_outcome(state: NodeState, asking: Pod) -> bool:
    """Whether the fast path has an outcome of its own. Fails the test unless that is the outcome of ``admit``."""
    outcome = FastAdmission(asking).outcome(state)
    if outcome is None:
        return False
    verdict, after = admit(state, asking)
    assert verdict.admitted == isinstance(outcome, FastPlacement)
    if isinstance(outcome, FastPlacement):
        standing = reduce(or_, [container.affinity or 0 for container in verdict.containers])
        assert outcome.numa_nodes == standing
        assert outcome.preferred == all(container.preferred for container in verdict.containers)
        taken = unavailable_cpus(after) & ~unavailable_cpus(state)
        assert outcome.cpus == taken.bit_count()
        where = sum(1 << numa for numa, cpus in state.machine.cpus_of_numa_node.items() if cpus & taken)
        assert not standing or not where & ~standing
    else:
        merge = verdict.merges[-1]
        assert (verdict.reason, merge.admitted, verdict.failure) == (outcome.reason, False, None)
        merged = [trace for trace in merge.resources if trace.preference != Preference.NONE]
        lacking = [trace.resource for trace in merged if not _fits_a_node(trace)]
        assert outcome.lacking == tuple(lacking or [trace.resource for trace in merged])
    return True


def _fits_a_node(trace: ResourceTrace) -> bool:
    return trace.preference == Preference.HINTS and any(amount >= trace.requested for _, amount in trace.free)


@settings(max_examples=cases(130, 400), deadline=None)
@given(any_states | odd_but_running(), any_pods)
def test_it_answers_as_admit_does_on_the_oddest_nodes_and_pods(state: NodeState, asked: Pod) -> None:
    assert FastAdmission(asked).admits(state) == admit(state, asked)[0].admitted
    has_outcome(state, asked)


@pytest.mark.parametrize("policy", ["best-effort", "restricted"])
def test_admit_answers_where_the_kubelet_would_walk_its_hints_for_hours(policy: str) -> None:
    kinds = [f"example.com/d{number}" for number in range(5)]
    shape = "numa:8 cores:4 " + " ".join(f"device:{kind}@" + ",".join(f"{n}=1" for n in range(8)) for kind in kinds)
    state, asked = node_state(shape, policy), pod("p", "cpu=2 memory=1Gi " + " ".join(f"{kind}=1" for kind in kinds))
    assert admit(state, asked)[0].reason == KUBELET_WOULD_HANG
    assert not FastAdmission(asked).admits(state)
    assert FastAdmission(asked).outcome(state) is None
    assert admit(state, pod("p", f"cpu=2 memory=1Gi {kinds[0]}=1"))[0].admitted


LEAST_PLACED = 10


@pytest.mark.parametrize("seed", [SEED])
def test_it_answers_as_admit_does_where_an_allocation_strategy_chooses(seed: int) -> None:
    """At least so many cases, and as many as it takes for pods that are placed: one seed in three has few of them."""
    placed = number = 0
    while number < cases(20, 60) or placed <= LEAST_PLACED:
        assert number < 1_000, "hardly any pod is placed"
        case = random_case(random.Random(seed + number))
        state = state_of_case(case)
        strategic = replace(
            state.kubelet,
            topology_manager_policy_options={"numa-allocation-strategy": "least-allocated"},
            feature_gates={"TopologyManagerPolicyAlphaOptions": True},
        )
        state = replace(state, kubelet=strategic)
        for asking in [read_pod(step["admit"]) for step in case["steps"] if "admit" in step]:
            assert FastAdmission(asking).admits(state) == admit(state, asking)[0].admitted, (seed + number, asking)
            placed += has_outcome(state, asking)
            state = admit(state, asking)[1]
        number += 1


@pytest.mark.parametrize("seed", [SEED])
def test_it_answers_as_admit_does_wherever_free_capacity_decides(seed: int) -> None:
    """Nodes and pods as the comparison with the kubelet makes them; after every step every pod is asked about."""
    asked = answered = outcomes = 0
    for number in range(cases(40, 120)):
        case = random_case(random.Random(seed + number))
        state = state_of_case(case)
        pods = [read_pod(step["admit"]) for step in case["steps"] if "admit" in step]
        alone = [replace(one, name=f"{one.name}-alone", containers=one.containers[-1:]) for one in pods]
        for step in case["steps"]:
            if "admit" in step:
                state = admit(state, read_pod(step["admit"]))[1]
            elif "end" in step:
                state = release(state, step["end"]["namespace"], step["end"]["name"])
            for asking in (*pods, *alone):
                answer = answer_from_free_capacity(state, asking)
                asked += 1
                if answer is not None:
                    answered += 1
                    assert answer == admit(state, asking)[0].admitted, (seed + number, state, asking)
                outcomes += has_outcome(state, asking)
    assert answered > asked / 4, (answered, asked)
    assert outcomes > asked / 6, (outcomes, asked)


GPU = f"{TWO_NUMA_NODES} device:v.com/gpu@0=2"
ASKING = pod("p", "cpu=2 memory=1Gi v.com/gpu=1")


@pytest.mark.parametrize("memory_manager", ["None", "Static"])
@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_free_capacity_decides_common_pods(policy: str, memory_manager: str) -> None:
    state = node_state(GPU, policy, memory_manager=memory_manager)
    assert answer_from_free_capacity(state, ASKING) is True
    full = admit(state, pod("q", "cpu=3 memory=1Gi"))[1]
    assert answer_from_free_capacity(full, ASKING) is (None if policy == "best-effort" else False)
    assert answer_from_free_capacity(full, pod("p", "cpu=500m memory=1Gi")) is True
    assert answer_from_free_capacity(full, pod("p", "request:cpu=500m v.com/gpu=3")) is False


def test_a_pod_that_the_node_holds_is_left_to_admission() -> None:
    state = admit(node_state(GPU), ASKING)[1]
    assert answer_from_free_capacity(state, ASKING) is None
    assert FastAdmission(ASKING).admits(state)


def test_an_answer_is_remembered_until_the_node_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    state = node_state(GPU)
    asking = FastAdmission(ASKING)
    assert asking.admits(state)
    full = admit(state, pod("q", "cpu=3 memory=1Gi"))[1]
    assert not asking.admits(full)
    assert asking.admits(state)
    monkeypatch.setattr(asking, "_from_free_capacity", lambda _: pytest.fail("asked again"))
    assert asking.admits(state)


def test_answers_to_the_last_kinds_of_pods_are_remembered_whatever_their_names() -> None:
    state = node_state(GPU)
    for memory in range(1, 3 * MAX_ANSWERS):
        assert FastAdmission(pod("p", f"cpu=1 memory={memory}Mi")).admits(state)
        assert FastAdmission(pod("q", f"cpu=1 memory={memory}Mi")).admits(state)
    assert len(state.kept(admission._Answers)) == MAX_ANSWERS


@pytest.mark.parametrize(
    ("state", "asking", "outcome"),
    [
        (node_state(GPU), ASKING, FastPlacement(1, preferred=True, cpus=2)),
        (node_state(GPU, "none"), ASKING, FastPlacement(0, preferred=False, cpus=2)),
        (node_state("cores:4 memory:8Gi"), pod("p", "cpu=2 memory=1Gi"), FastPlacement(0, preferred=True, cpus=2)),
        (node_state(GPU), pod("p", "cpu=2 memory=1Gi v.com/gpu=3"), FastRefusal(ERROR, ("v.com/gpu",))),
        (node_state(GPU), pod("p", "cpu=5 memory=1Gi v.com/gpu=1"), FastRefusal(ERROR, ("cpu",))),
        (
            admit(node_state(GPU), pod("q", "cpu=3 memory=1Gi"))[1],
            pod("p", "cpu=2 memory=1Gi v.com/gpu=1"),
            FastRefusal(ERROR, ("v.com/gpu", "cpu")),
        ),
    ],
    ids=["a place", "no alignment", "the only NUMA node", "too few devices", "too few CPUs", "no common NUMA node"],
)
def test_an_outcome_names_its_place_or_its_reason(
    state: NodeState, asking: Pod, outcome: FastPlacement | FastRefusal
) -> None:
    assert FastAdmission(asking).outcome(state) == outcome
    assert has_outcome(state, asking)


ONE_POD = admit(node_state(), pod("q", "cpu=2 memory=1Gi"))[1]


def spread(policy: str = "single-numa-node") -> NodeState:
    """A node that places pods where least is allocated."""
    state = node_state(
        policy=policy,
        options="numa-allocation-strategy=least-allocated",
        gates="TopologyManagerPolicyAlphaOptions",
    )
    return admit(state, pod("q", "cpu=1 memory=1Gi"))[1]


GROUPED = admit(node_state(GPU, "restricted", memory_manager="Static"), pod("q", "cpu=5 memory=10Gi"))[1]


@pytest.mark.parametrize(
    ("state", "asking"),
    [
        (replace(ONE_POD, cpu_pool=ONE_POD.machine.cpus), pod("p", "cpu=2 memory=1Gi")),
        (
            node_state(options="prefer-most-allocated-numa-node=true", gates="TopologyManagerPolicyAlphaOptions"),
            pod("p", "cpu=2 memory=1Gi"),
        ),
        (spread(), pod("p", "cpu=2 memory=1Gi")),
        (spread("restricted"), pod("p", "cpu=2 memory=1Gi")),
        (GROUPED, pod("p", "cpu=1 memory=20Gi v.com/gpu=3")),
    ],
    ids=[
        "a pool that holds CPUs of a pod",
        "the most allocated NUMA node",
        "the least allocated NUMA node",
        "the least allocated NUMA node under restricted",
        "memory of a group",
    ],
)
def test_an_outcome_that_takes_more_than_counting_is_left_to_admission(state: NodeState, asking: Pod) -> None:
    assert FastAdmission(asking).outcome(state) is None
    assert answer_from_free_capacity(state, asking) in {None, admit(state, asking)[0].admitted}


@pytest.mark.parametrize("path", KEPT, ids=[path.stem for path in KEPT])
def test_it_answers_as_admit_does_for_every_container_of_a_kept_case(path: Path) -> None:
    case = json.loads(path.read_text())
    state = state_of_case(case)
    pods = [read_pod(step["admit"]) for step in case["steps"] if "admit" in step]
    alone = [
        replace(whole, name=f"{whole.name}-{container.name}", uid="", containers=(container,), resources=None)
        for whole in pods
        for container in whole.containers
    ]
    for step in case["steps"]:
        for asking in (*pods, *alone):
            assert answer_from_free_capacity(state, asking) in {None, admit(state, asking)[0].admitted}, asking
            has_outcome(state, asking)
        if "admit" in step:
            state = admit(state, read_pod(step["admit"]))[1]
        elif "end" in step:
            state = release(state, step["end"]["namespace"], step["end"]["name"])


UNHEALTHY = replace(node_state(GPU), devices=tuple(replace(gpu, healthy=False) for gpu in node_state(GPU).devices))


@pytest.mark.parametrize(
    ("state", "asking"),
    [
        (
            node_state(TWO_NUMA_NODES_SMT, "none", cpu_options="full-pcpus-only=true", reserved_cpus="0-1"),
            pod("p", "cpu=6 memory=1Gi"),
        ),
        (UNHEALTHY, pod("p", "v.com/gpu=0")),
        (UNHEALTHY, pod("p", "v.com/gpu=1")),
    ],
    ids=["cores with a reserved CPU", "none of unhealthy devices", "unhealthy devices"],
)
def test_a_pod_that_free_capacity_cannot_hold_is_refused(state: NodeState, asking: Pod) -> None:
    assert answer_from_free_capacity(state, asking) is False
    assert not admit(state, asking)[0].admitted


def test_cpus_of_one_socket_are_left_to_admission_where_they_count_as_aligned() -> None:
    state = node_state(
        "sockets:2 numa:2 cores:2 memory:8Gi",
        "restricted",
        cpu_options="align-by-socket=true",
        gates="CPUManagerPolicyAlphaOptions",
        reserved_cpus="0,2,4,6",
    )
    asking = pod("p", "cpu=2 memory=1Gi")
    assert answer_from_free_capacity(state, asking) is None
    assert FastAdmission(asking).admits(state)


def test_cpus_that_are_spread_are_left_to_admission_which_may_never_end() -> None:
    state = node_state("sockets:32 cores:4 memory:1Gi", "none", cpu_options="distribute-cpus-across-numa=true")
    asking = pod("p", "cpu=66 memory=1Gi")
    assert answer_from_free_capacity(state, asking) is None
    assert not FastAdmission(asking).admits(state)
