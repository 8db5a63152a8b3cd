"""The short answer of a node is the long one's yes or no, on every node and pod.

A failing random test shows its seed in its name; TOPOMEND_SEED runs it again.
"""

import json
import os
import random
from dataclasses import replace
from functools import reduce
from operator import or_
from pathlib import Path

import pytest
from hypothesis import given, settings
from tests.oracle.cases import node_state
from tests.oracle.generate import random_case
from tests.replay.nodes import TWO, TWO_SMT, node, pod
from tests.replay.test_properties import any_pods, any_states, odd_but_running

from topomend.model.node_state import NodeState, held_cpus
from topomend.model.pod import Pod
from topomend.model.verdict import Preference, ResourceTrace
from topomend.replay.admission import admit, release
from topomend.replay.errors import KUBELET_WOULD_HANG
from topomend.replay.errors import TOPOLOGY_AFFINITY_ERROR as ERROR
from topomend.replay.fast_path import admission
from topomend.replay.fast_path.admission import MAX_ANSWERS, FastAdmission, FastPlacement, Refusal
from topomend.wire.pod import read_pod

SEED = int(os.environ.get("TOPOMEND_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


def quick(state: NodeState, asking: Pod) -> bool | None:
    return FastAdmission(asking)._from_free_capacity(state)


def told(state: NodeState, asking: Pod) -> bool:
    """Whether the outcome is told in short; then it is what admission comes to."""
    outcome = FastAdmission(asking).outcome(state)
    if outcome is None:
        return False
    verdict, after = admit(state, asking)
    assert verdict.admitted == isinstance(outcome, FastPlacement)
    if isinstance(outcome, FastPlacement):
        standing = reduce(or_, [each.affinity or 0 for each in verdict.containers])
        assert outcome.numa_nodes == standing
        assert outcome.preferred == all(each.preferred for each in verdict.containers)
        taken = held_cpus(after) & ~held_cpus(state)
        assert outcome.cpus == taken.bit_count()
        where = sum(1 << numa for numa, cpus in state.machine.cpus_of_numa_node.items() if cpus & taken)
        assert not standing or not where & ~standing
    else:
        merge = verdict.merges[-1]
        assert (verdict.reason, merge.admitted, verdict.failure) == (outcome.reason, False, None)
        merged = [each for each in merge.resources if each.preference != Preference.NONE]
        lacking = [each.resource for each in merged if not _fits_a_node(each)]
        assert outcome.lacking == tuple(lacking or [each.resource for each in merged])
    return True


def _fits_a_node(trace: ResourceTrace) -> bool:
    return trace.preference == Preference.HINTS and any(amount >= trace.requested for _, amount in trace.free)


@settings(max_examples=400, deadline=None)
@given(any_states | odd_but_running(), any_pods)
def test_it_is_admits_answer_on_the_oddest_nodes_and_pods(state: NodeState, asked: Pod) -> None:
    assert FastAdmission(asked).admits(state) == admit(state, asked)[0].admitted
    told(state, asked)


@pytest.mark.parametrize("policy", ["best-effort", "restricted"])
def test_where_the_kubelet_would_walk_its_hints_for_hours_admit_answers(policy: str) -> None:
    kinds = [f"example.com/d{number}" for number in range(5)]
    shape = "numa:8 cores:4 " + " ".join(f"device:{kind}@" + ",".join(f"{n}=1" for n in range(8)) for kind in kinds)
    state, asked = node(shape, policy), pod("p", "cpu=2 memory=1Gi " + " ".join(f"{kind}=1" for kind in kinds))
    assert admit(state, asked)[0].reason == KUBELET_WOULD_HANG
    assert not FastAdmission(asked).admits(state)
    assert FastAdmission(asked).outcome(state) is None
    assert admit(state, pod("p", f"cpu=2 memory=1Gi {kinds[0]}=1"))[0].admitted


@pytest.mark.parametrize("seed", [SEED])
def test_it_is_admits_answer_wherever_it_is_told_by_what_is_free(seed: int) -> None:
    """Nodes and pods as the comparison with the kubelet makes them; after every step every pod is asked about."""
    asked = answered = outcomes = 0
    for number in range(120):
        case = random_case(random.Random(seed + number))
        state = node_state(case)
        pods = [read_pod(step["admit"]) for step in case["steps"] if "admit" in step]
        alone = [replace(each, name=f"{each.name}-alone", containers=each.containers[-1:]) for each in pods]
        for step in case["steps"]:
            if "admit" in step:
                state = admit(state, read_pod(step["admit"]))[1]
            elif "end" in step:
                state = release(state, step["end"]["namespace"], step["end"]["name"])
            for each in (*pods, *alone):
                answer = quick(state, each)
                asked += 1
                if answer is not None:
                    answered += 1
                    assert answer == admit(state, each)[0].admitted, (seed + number, state, each)
                outcomes += told(state, each)
    assert answered > asked / 4, (answered, asked)
    assert outcomes > asked / 5, (outcomes, asked)


GPU = f"{TWO} device:v.com/gpu@0=2"
ASKING = pod("p", "cpu=2 memory=1Gi v.com/gpu=1")


@pytest.mark.parametrize("memory", [False, True], ids=["cpus", "cpus and memory"])
@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_common_pods_are_told_by_what_is_free(policy: str, memory: bool) -> None:
    state = node(GPU, policy, memory=memory)
    assert quick(state, ASKING) is True
    full = admit(state, pod("q", "cpu=3 memory=1Gi"))[1]
    assert quick(full, ASKING) is (None if policy == "best-effort" else False)
    assert quick(full, pod("p", "cpu=500m memory=1Gi")) is True
    assert quick(full, pod("p", "request:cpu=500m v.com/gpu=3")) is False


def test_a_pod_that_the_node_holds_is_left_to_admission() -> None:
    state = admit(node(GPU), ASKING)[1]
    assert quick(state, ASKING) is None
    assert FastAdmission(ASKING).admits(state)


def test_an_answer_is_remembered_until_the_node_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    state = node(GPU)
    asking = FastAdmission(ASKING)
    assert asking.admits(state)
    full = admit(state, pod("q", "cpu=3 memory=1Gi"))[1]
    assert not asking.admits(full)
    assert asking.admits(state)
    monkeypatch.setattr(asking, "_from_free_capacity", lambda _: pytest.fail("asked again"))
    assert asking.admits(state)


def test_answers_to_the_last_kinds_of_pods_are_remembered_whatever_their_names() -> None:
    state = node(GPU)
    for memory in range(1, 3 * MAX_ANSWERS):
        assert FastAdmission(pod("p", f"cpu=1 memory={memory}Mi")).admits(state)
        assert FastAdmission(pod("q", f"cpu=1 memory={memory}Mi")).admits(state)
    assert len(admission._answers.of(state)) == MAX_ANSWERS


@pytest.mark.parametrize(
    ("state", "asking", "outcome"),
    [
        (node(GPU), ASKING, FastPlacement(1, preferred=True, cpus=2)),
        (node(GPU, "none", memory=False), ASKING, FastPlacement(0, preferred=False, cpus=2)),
        (node("cores:4 memory:8Gi"), pod("p", "cpu=2 memory=1Gi"), FastPlacement(0, preferred=True, cpus=2)),
        (node(GPU), pod("p", "cpu=2 memory=1Gi v.com/gpu=3"), Refusal(ERROR, ("v.com/gpu",))),
        (node(GPU), pod("p", "cpu=5 memory=1Gi v.com/gpu=1"), Refusal(ERROR, ("cpu",))),
        (
            admit(node(GPU), pod("q", "cpu=3 memory=1Gi"))[1],
            pod("p", "cpu=2 memory=1Gi v.com/gpu=1"),
            Refusal(ERROR, ("v.com/gpu", "cpu")),
        ),
    ],
    ids=["a place", "no alignment", "the only NUMA node", "too few devices", "too few CPUs", "no common NUMA node"],
)
def test_an_outcome_is_told_with_its_place_or_its_reason(
    state: NodeState, asking: Pod, outcome: FastPlacement | Refusal
) -> None:
    assert FastAdmission(asking).outcome(state) == outcome
    assert told(state, asking)


HELD = admit(node(TWO), pod("q", "cpu=2 memory=1Gi"))[1]
GROUPED = admit(node(GPU, "restricted", memory=True), pod("q", "cpu=5 memory=10Gi"))[1]


@pytest.mark.parametrize(
    ("state", "asking"),
    [
        (replace(HELD, cpu_pool=HELD.machine.cpus), pod("p", "cpu=2 memory=1Gi")),
        (
            node(TWO, options="prefer-most-allocated-numa-node=true", gates="TopologyManagerPolicyAlphaOptions"),
            pod("p", "cpu=2 memory=1Gi"),
        ),
        (GROUPED, pod("p", "cpu=1 memory=20Gi v.com/gpu=3")),
    ],
    ids=["a pool that holds CPUs of a pod", "the most allocated NUMA node", "memory of a group"],
)
def test_an_outcome_that_takes_more_than_counting_is_left_to_admission(state: NodeState, asking: Pod) -> None:
    assert FastAdmission(asking).outcome(state) is None
    assert quick(state, asking) in {None, admit(state, asking)[0].admitted}


KEPT = sorted((Path(__file__).parents[2] / "oracle" / "cases").glob("*.json"))


@pytest.mark.parametrize("kept", KEPT, ids=[path.stem for path in KEPT])
def test_it_is_admits_answer_to_every_container_of_a_kept_case(kept: Path) -> None:
    case = json.loads(kept.read_text())
    state = node_state(case)
    pods = [read_pod(step["admit"]) for step in case["steps"] if "admit" in step]
    alone = [
        replace(each, name=f"{each.name}-{container.name}", uid="", containers=(container,), resources=None)
        for each in pods
        for container in each.containers
    ]
    for step in case["steps"]:
        for each in (*pods, *alone):
            assert quick(state, each) in {None, admit(state, each)[0].admitted}, each
            told(state, each)
        if "admit" in step:
            state = admit(state, read_pod(step["admit"]))[1]
        elif "end" in step:
            state = release(state, step["end"]["namespace"], step["end"]["name"])


SICK = replace(node(GPU), devices=tuple(replace(each, healthy=False) for each in node(GPU).devices))


@pytest.mark.parametrize(
    ("state", "asking"),
    [
        (node(TWO_SMT, "none", cpu_options="full-pcpus-only=true", reserved="0-1"), pod("p", "cpu=6 memory=1Gi")),
        (SICK, pod("p", "v.com/gpu=0")),
        (SICK, pod("p", "v.com/gpu=1")),
    ],
    ids=["cores with a reserved CPU", "none of unhealthy devices", "unhealthy devices"],
)
def test_what_is_free_is_not_enough(state: NodeState, asking: Pod) -> None:
    assert quick(state, asking) is False
    assert not admit(state, asking)[0].admitted


def test_cpus_of_one_socket_are_left_to_admission_where_they_count_as_aligned() -> None:
    state = node(
        "sockets:2 numa:2 cores:2 memory:8Gi",
        "restricted",
        cpu_options="align-by-socket=true",
        gates="CPUManagerPolicyAlphaOptions",
        reserved="0,2,4,6",
    )
    asking = pod("p", "cpu=2 memory=1Gi")
    assert quick(state, asking) is None
    assert FastAdmission(asking).admits(state)


def test_cpus_that_are_spread_are_left_to_admission_which_may_never_end() -> None:
    state = node("sockets:32 cores:4 memory:1Gi", "none", cpu_options="distribute-cpus-across-numa=true")
    asking = pod("p", "cpu=66 memory=1Gi")
    assert quick(state, asking) is None
    assert not FastAdmission(asking).admits(state)
