"""The kubelet's reasons and words for a refusal, and NUMA nodes that do not fit its masks."""

from dataclasses import replace

import pytest
from tests.builders import node_state, pod
from tests.replay.verdicts import verdict_line

from topomend.model.machine import Core, Machine, NUMANode
from topomend.model.nodes.node_state import NodeState
from topomend.replay.admission import admit
from topomend.replay.errors import (
    Rejection,
    affinity_error,
    empty_pod_shared_pool,
    pod_level_affinity_error,
    smt_alignment,
    unexpected,
)


@pytest.mark.parametrize(
    ("rejection", "expected"),
    [
        (affinity_error(), Rejection("TopologyAffinityError", "Resources cannot be allocated with Topology locality")),
        (pod_level_affinity_error("pod failed"), Rejection("TopologyAffinityError", "Pod Scope pod failed")),
        (smt_alignment("half a core"), Rejection("SMTAlignmentError", "half a core", "half a core")),
        (empty_pod_shared_pool("none left"), Rejection("EmptyPodSharedPoolError", "none left", "none left")),
        (
            unexpected("no room"),
            Rejection("UnexpectedAdmissionError", "Allocate failed due to no room, which is unexpected", "no room"),
        ),
    ],
)
def test_a_refusal_has_the_kubelets_reason_and_words(rejection: Rejection, expected: Rejection) -> None:
    assert rejection == expected


def test_the_message_in_a_pods_status_has_the_kubelets_prefix() -> None:
    verdict, _ = admit(node_state(), pod("p", "cpu=6 memory=1Gi"))
    assert verdict.message == "Pod was rejected: Resources cannot be allocated with Topology locality"


def on_numa_ids(*ids: int, policy: str) -> NodeState:
    machine = Machine(
        tuple(NUMANode(number, 4 << 30) for number in ids),
        tuple(Core(0b1111 << 4 * index, index, number, None) for index, number in enumerate(ids)),
    )
    return replace(node_state(policy=policy), machine=machine)


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_a_numa_id_over_63_crashes_the_topology_manager(policy: str) -> None:
    for ids in ((0, 64), (64,), (5, 99)):
        verdict, _ = admit(on_numa_ids(*ids, policy=policy), pod("p", "cpu=1 memory=1Gi"))
        assert (verdict.admitted, verdict.reason) == (False, "KubeletWouldCrash")
        assert f"NUMA nodes {ids[-1]} do not fit the kubelet's masks" in verdict.message


def test_a_numa_id_of_63_is_one_as_any_other() -> None:
    verdict, _ = admit(on_numa_ids(0, 63, policy="single-numa-node"), pod("p", "cpu=4 memory=1Gi"))
    assert verdict_line(verdict) == "[63] cpus 4-7"
