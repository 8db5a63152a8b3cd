"""The short answer of a node is the long one's yes or no, on every node and pod.

A failing random test shows its seed in its name; TOPOMEND_SEED runs it again.
"""

import gc
import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from tests.oracle.cases import node_state
from tests.oracle.generate import random_case
from tests.replay.nodes import TWO, TWO_SMT, node, pod
from tests.replay.test_properties import any_pods, any_states, odd_but_running

from topomend.model.node_state import NodeState
from topomend.model.pod import Pod
from topomend.replay import fit
from topomend.replay.admission import admit, release
from topomend.replay.fit import Fit
from topomend.wire.pod import read_pod

SEED = int(os.environ.get("TOPOMEND_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


def quick(state: NodeState, asking: Pod) -> bool | None:
    return Fit(asking)._told_by_what_is_free(state)


@settings(max_examples=400, deadline=None)
@given(any_states | odd_but_running(), any_pods)
def test_it_is_admits_answer_on_the_oddest_nodes_and_pods(state: NodeState, asked: Pod) -> None:
    assert Fit(asked).admits(state) == admit(state, asked)[0].admitted


@pytest.mark.parametrize("seed", [SEED])
def test_it_is_admits_answer_wherever_it_is_told_by_what_is_free(seed: int) -> None:
    """Nodes and pods as the comparison with the kubelet makes them; after every step every pod is asked about."""
    asked = told = 0
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
                    told += 1
                    assert answer == admit(state, each)[0].admitted, (seed + number, state, each)
    assert told > asked / 4, (told, asked)


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
    assert Fit(ASKING).admits(state)


def test_an_answer_is_remembered_until_the_node_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    state = node(GPU)
    asking = Fit(ASKING)
    assert asking.admits(state)
    full = admit(state, pod("q", "cpu=3 memory=1Gi"))[1]
    assert not asking.admits(full)
    assert asking.admits(state)
    monkeypatch.setattr(asking, "_told_by_what_is_free", lambda _: pytest.fail("asked again"))
    assert asking.admits(state)


def test_what_was_free_is_forgotten_with_the_state() -> None:
    before = len(fit._remembered)
    state = replace(node(GPU))
    Fit(ASKING).admits(state)
    assert len(fit._remembered) == before + 1
    del state
    gc.collect()
    assert len(fit._remembered) == before


KEPT = sorted((Path(__file__).parents[1] / "oracle" / "cases").glob("*.json"))


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
    assert Fit(asking).admits(state)


def test_cpus_that_are_spread_are_left_to_admission_which_may_never_end() -> None:
    state = node("sockets:32 cores:4 memory:1Gi", "none", cpu_options="distribute-cpus-across-numa=true")
    asking = pod("p", "cpu=66 memory=1Gi")
    assert quick(state, asking) is None
    assert not Fit(asking).admits(state)
