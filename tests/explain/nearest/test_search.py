"""How many admissions a search replays: those that a cheaper condition does not exclude, and none of them twice."""

import pytest
from tests.builders import node_state, pod

from topomend.explain.nearest.nearest_amounts import nearest_amounts
from topomend.explain.nearest.refused_pod import RefusedPod
from topomend.explain.nearest.varied_amount import VariedAmount
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod, requests_of
from topomend.model.quantity import MilliQuantity
from topomend.replay.admission import admit
from topomend.replay.scopes import Admission

EIGHT = "sockets:2 numa:4 cores:8 threads:2 memory:64Gi device:vendor.com/gpu@{gpus}"
SOME, MANY = "0=2", ",".join(f"{node}=2" for node in range(8))


def replayed(monkeypatch: pytest.MonkeyPatch, state: NodeState, asked: Pod) -> list[Pod]:
    """The pods that the search for the nearest amounts replays."""
    assert not admit(state, asked)[0].admitted
    pods: list[Pod] = []
    admission_with = RefusedPod.admission_with

    def recorded(refused: RefusedPod, amount: VariedAmount, quantity: MilliQuantity) -> Admission | None:
        pods.append(amount.put_into(refused.pod, quantity))
        return admission_with(refused, amount, quantity)

    monkeypatch.setattr(RefusedPod, "admission_with", recorded)
    nearest_amounts(state, asked)
    return pods


@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_a_container_that_is_too_large_takes_one_replay_for_each_amount(
    policy: str, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = node_state(EIGHT.format(gpus=MANY), policy, scope=scope, memory_manager="Static")
    asked = pod("p", "cpu=40 memory=20Gi vendor.com/gpu=1")
    assert len(replayed(monkeypatch, state, asked)) <= 3


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
def test_where_a_resource_is_short_in_all_only_its_amounts_are_replayed(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = node_state(EIGHT.format(gpus=SOME), policy, memory_manager="Static")
    asked = pod("p", *["cpu=4 memory=1Gi vendor.com/gpu=1"] * 3)
    pods = replayed(monkeypatch, state, asked)
    assert {(requests_of(tried)["cpu"], requests_of(tried)["memory"]) for tried in pods} <= {
        (requests_of(asked)["cpu"], requests_of(asked)["memory"])
    }


def test_a_need_of_the_whole_pod_that_is_refused_is_replayed_in_one_container_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first container needs memory of two NUMA nodes, and each has some of another pod: so CPUs do not help."""
    fillers = [pod(f"f{number}", "cpu=12 memory=10Gi") for number in range(8)]
    state = node_state(EIGHT.format(gpus=MANY), "best-effort", scope="pod", memory_manager="Static", pods=fillers)
    asked = pod("p", "cpu=2 memory=100Gi", "cpu=3 memory=1Gi", "cpu=4 memory=1Gi")
    cpus = [requests_of(tried)["cpu"] for tried in replayed(monkeypatch, state, asked)]
    others = [number for number in cpus if number != requests_of(asked)["cpu"]]
    assert others
    assert len(others) == len(set(others))
