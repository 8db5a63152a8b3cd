"""Why a pod is not pinned, rule by rule; each time replay pins it once the cause is taken away."""

import pytest
from tests.builders import node_state, pod

from topomend.alignment.pinning import why_any_memory, why_shared_cpus
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.replay.admission import admit

NODE = node_state(memory_manager="Static")
LEVEL = "PodLevelResources"

CASES = [
    (
        NODE,
        pod("p", "cpu=2"),
        "NotGuaranteed: the pod is Burstable, not Guaranteed: container c0 has no memory limit",
        True,
    ),
    (
        NODE,
        pod("p", ""),
        "NotGuaranteed: the pod is BestEffort, not Guaranteed: container c0 has no cpu and no memory limit",
        True,
    ),
    (
        NODE,
        pod("p", "cpu=2 memory=1Gi", "request:cpu=100m request:memory=1Gi"),
        "NotGuaranteed: the pod is Burstable, not Guaranteed: container c1 has no cpu and no memory limit",
        True,
    ),
    (
        NODE,
        pod("p", "cpu=2 request:cpu=1500m memory=1Gi request:memory=512Mi"),
        (
            "NotGuaranteed: the pod is Burstable, not Guaranteed: container c0 requests 1500m cpu with a limit of 2; "
            "container c0 requests 512Mi memory with a limit of 1Gi"
        ),
        True,
    ),
    (
        NODE,
        pod("p", "cpu=2 memory=1Gi", qos_class="Burstable"),
        "NotGuaranteed: the pod is Burstable, not Guaranteed: the API server says that it is Burstable",
        True,
    ),
    (
        NODE,
        pod("p", "cpu=1500m memory=1Gi"),
        "FractionalCPU: container c0 asks for 1500m CPUs, and only whole CPUs are exclusive",
        False,
    ),
    (
        node_state(cpu_manager="none"),
        pod("p", "cpu=2 memory=1Gi"),
        "CPUManagerNone: the CPU Manager of a has the policy none",
        True,
    ),
    (
        node_state(memory_manager="Static", gates=LEVEL),
        pod("p", "cpu=1 memory=1Gi", resources="cpu=2 memory=2Gi"),
        "PodLevelResources: the pod has pod-level resources, which this kubelet pins to no NUMA node",
        True,
    ),
]


@pytest.mark.parametrize(("state", "asked", "why", "memory_too"), CASES, ids=[case[2][:60] for case in CASES])
def test_each_rule_that_leaves_a_container_on_shared_cpus_has_its_words(
    state: NodeState, asked: Pod, why: str, memory_too: bool
) -> None:
    cause = why_shared_cpus(state, asked, asked.containers[-1])
    assert cause is not None
    assert f"{cause.reason}: {cause.message}" == why
    verdict, _ = admit(state, asked)
    assert verdict.admitted
    assert verdict.containers[-1].cpus == 0
    assert (why_any_memory(state, asked) is not None) == memory_too
    assert (verdict.containers[-1].memory == ()) == memory_too


def test_a_pod_that_is_pinned_has_no_reason() -> None:
    asked = pod("p", "cpu=2 memory=1Gi")
    assert why_shared_cpus(NODE, asked, asked.containers[0]) is None
    assert why_any_memory(NODE, asked) is None
    verdict, _ = admit(NODE, asked)
    assert (verdict.containers[0].cpus.bit_count(), len(verdict.containers[0].memory)) == (2, 1)


def test_a_memory_manager_that_pins_nothing_is_named() -> None:
    asked = pod("p", "cpu=2 memory=1Gi")
    cause = why_any_memory(node_state(), asked)
    assert cause is not None
    assert (cause.reason, cause.message) == ("MemoryManagerNone", "the Memory Manager of a has the policy None")


def test_amounts_that_read_alike_are_reported_to_the_byte() -> None:
    asked = pod("p", f"cpu=2 memory={(1 << 30) + 1} request:memory=1Gi")
    cause = why_shared_cpus(NODE, asked, asked.containers[0])
    assert cause is not None
    assert cause.message.endswith("requests 1073741824 memory with a limit of 1073741825")


def test_a_kubelet_that_would_not_start_is_said_to_be_unknown() -> None:
    state = node_state(reserved_cpus="", memory_manager="Static")
    asked = pod("p", "cpu=2 memory=1Gi")
    for cause in (why_shared_cpus(state, asked, asked.containers[0]), why_any_memory(state, asked)):
        assert cause is not None
        assert cause.reason == "KubeletNotKnown"
