"""Hints and allocation container by container, or for the whole pod at once; what each merge leaves in the trace."""

import pytest
from tests.builders import TWO_NUMA_NODES, node_state, pod
from tests.replay.verdicts import REFUSED, Case, of

from topomend.model.verdict import Failure, Preference
from topomend.replay.admission import admit

GPU = f"{TWO_NUMA_NODES} device:v.com/gpu@0=2,1=2"

CASES = [
    Case("policy none has no affinity", node_state(policy="none"), [pod("p", of(3))], "(any) cpus 1-3"),
    Case(
        "a shared container has no affinity under single-numa-node",
        node_state(),
        [pod("p", "cpu=500m memory=1Gi")],
        "[any]",
    ),
    Case(
        "one NUMA node is no affinity under single-numa-node",
        node_state("cores:4 memory:8Gi"),
        [pod("p", of(2))],
        "[any] cpus 1-2",
    ),
    Case(
        "container scope may place containers apart",
        node_state(GPU),
        [pod("p", of(3), of(3))],
        "[0] cpus 1-3; [1] cpus 4-6",
    ),
    Case("pod scope may not", node_state(GPU, scope="pod"), [pod("p", of(3), of(3))], REFUSED),
    Case(
        "pod scope places all containers on one NUMA node",
        node_state(GPU, scope="pod"),
        [pod("p", of(2), of(2))],
        "[1] cpus 4-5; [1] cpus 6-7",
    ),
    Case(
        "pod scope counts an init container beside the others, not on top",
        node_state(scope="pod"),
        [pod("p", "init " + of(4), of(2), of(2))],
        "[1] cpus 4-7; [1] cpus 4-5; [1] cpus 6-7",
    ),
    Case(
        "pod scope asks every manager about the whole pod",
        node_state(scope="pod", memory_manager="Static"),
        [pod("p", of(1, "7Gi")), pod("q", of(1), of(1, "2Gi"))],
        "[1] cpus 4 memory 1024Mi on 1; [1] cpus 5 memory 2048Mi on 1",
    ),
    Case(
        "each manager allocates on the NUMA node of the merged hint",
        node_state(GPU, memory_manager="Static"),
        [pod("p", of(3)), pod("q", of(2, rest="v.com/gpu=1"))],
        "[1] cpus 4-5 memory 1024Mi on 1 1 v.com/gpu on 1",
    ),
    Case(
        "each manager allocates the whole pod's share there too",
        node_state(scope="pod", memory_manager="Static", gates="PodLevelResourceManagers"),
        [pod("p", of(3)), pod("q", of(1), "", resources="cpu=2 memory=2Gi")],
        "[1] cpus 4 memory 1024Mi on 1; [1] cpus 5 memory 1024Mi on 1",
    ),
    Case(
        "managers skip a pod with pod-level resources",
        node_state(memory_manager="Static"),
        [pod("p", of(2), resources="cpu=3 memory=2Gi")],
        "[any]",
    ),
    Case("its devices still align", node_state(GPU), [pod("p", "v.com/gpu=3", resources="cpu=3 memory=2Gi")], REFUSED),
    Case(
        "pod-level managers give the pod one set of CPUs",
        node_state(scope="pod", gates="PodLevelResourceManagers"),
        [pod("p", of(2), "", resources="cpu=3 memory=2Gi")],
        "[0] cpus 1-2; [0] cpus 3",
    ),
    Case(
        "containers that share must be left something",
        node_state(scope="pod", gates="PodLevelResourceManagers"),
        [pod("p", of(3), "", resources="cpu=3 memory=2Gi")],
        (
            "TopologyAffinityError: Pod Scope pod with pod-level resources failed admission under "
            "pod-scope topology manager"
        ),
    ),
    Case(
        "best-effort leaves that to the allocation",
        node_state(policy="best-effort", scope="pod", gates="PodLevelResourceManagers"),
        [pod("p", of(3), "", resources="cpu=3 memory=2Gi")],
        (
            "EmptyPodSharedPoolError: pod rejected, sum of exclusive container cpu requests "
            "equals pod budget, leaving no cpus for shared containers"
        ),
    ),
    Case(
        "container scope has its own words",
        node_state(gates="PodLevelResourceManagers"),
        [pod("p", of(5), resources="cpu=6 memory=2Gi")],
        (
            "TopologyAffinityError: Pod Scope pod with pod-level resources failed admission with "
            "a container-level topology manager"
        ),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_kubelet_answers(case: Case) -> None:
    assert case.answer() == case.expected


def test_the_trace_has_the_request_the_free_amounts_and_the_hints_of_each_resource() -> None:
    verdict, _ = admit(node_state(f"{TWO_NUMA_NODES} device:v.com/gpu@1=1"), pod("p", of(3, rest="v.com/gpu=1")))
    (merge,) = verdict.merges
    assert (merge.container, merge.affinity, merge.preferred, merge.admitted) == ("c0", 2, True, True)
    device, cpu = merge.resources
    assert (device.provider, device.resource, device.requested) == ("device", "v.com/gpu", 1)
    assert (device.free, device.fits) == (((1, 1),), ((2, True),))
    assert (cpu.resource, cpu.requested, cpu.free) == ("cpu", 3, ((0, 3), (1, 4)))
    assert cpu.fits == ((1, True), (2, True), (3, False))
    assert cpu.preference == Preference.HINTS


def test_the_trace_names_what_is_impossible_and_what_has_no_preference() -> None:
    verdict, _ = admit(node_state(memory_manager="Static"), pod("p", of(9, "99Gi")))
    assert [trace.preference for trace in verdict.merges[0].resources] == [Preference.IMPOSSIBLE, Preference.NONE]
    assert verdict.merges[0].affinity is None


def test_a_failed_allocation_is_reported_with_its_manager() -> None:
    verdict, _ = admit(node_state(policy="none"), pod("p", of(1), of(9)))
    error = "not enough cpus available to satisfy request: requested=9, available=6"
    assert verdict.failure == Failure("c1", "cpu", error)
