"""Which NUMA nodes a container's memory comes from."""

from dataclasses import replace

import pytest
from tests.builders import TWO_NUMA_NODES, node_state, pod
from tests.replay.verdicts import POLICIES, REFUSED, Case, of, unexpected, verdict_line

from topomend.model.machine import NUMANode
from topomend.model.nodes.kubelet import MemoryReservation
from topomend.model.nodes.node_state import NodeState
from topomend.replay.admission import admit, start_refusal

CASES = [
    Case(
        "memory is pinned where the CPUs are",
        node_state(memory_manager="Static"),
        [pod("p", of(3))],
        "[0] cpus 1-3 memory 1024Mi on 0",
    ),
    Case(
        "CPUs go where the memory is",
        node_state(memory_manager="Static"),
        [pod("p", of(1, "7Gi")), pod("q", of(1, "2Gi"))],
        "[1] cpus 4 memory 2048Mi on 1",
    ),
    Case(
        "memory that fits nowhere passes the merge and fails (ran)",
        node_state(policy="restricted", memory_manager="Static"),
        [pod("p", of(2, "20Gi"))],
        unexpected("[memorymanager] failed to find NUMA nodes to extend the current topology hint"),
    ),
    Case(
        "the same without affinity",
        node_state(policy="none", memory_manager="Static"),
        [pod("p", of(2, "20Gi"))],
        unexpected(
            "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
        ),
    ),
    Case(
        "CPUs on two NUMA nodes and memory on one are never preferred",
        node_state(policy="restricted", memory_manager="Static"),
        [pod("p", of(6))],
        REFUSED,
    ),
    Case(
        "a NUMA node in use joins no group (ran)",
        node_state(policy="restricted", memory_manager="Static"),
        [pod("p", of(1)), pod("q", of(5, "9Gi"))],
        unexpected("[memorymanager] preferred hint violates NUMA node allocation"),
    ),
    Case(
        "a group serves again the same group",
        node_state(policy="restricted", memory_manager="Static"),
        [pod("p", of(5, "9Gi")), pod("q", "cpu=500m memory=9Gi")],
        unexpected("[memorymanager] failed to find NUMA nodes to extend the current topology hint"),
    ),
    Case(
        "a NUMA node of a group serves nobody alone",
        node_state(policy="restricted", memory_manager="Static"),
        [pod("p", of(5, "9Gi")), pod("q", "cpu=500m memory=1Gi")],
        REFUSED,
    ),
    Case(
        "thousandths of a byte cannot be pinned",
        node_state(memory_manager="Static"),
        [pod("p", "cpu=1 memory=1500m")],
        unexpected("[memorymanager] failed to represent quantity as int64"),
    ),
    Case(
        "huge pages are pinned too",
        node_state(f"{TWO_NUMA_NODES} hugepages-2Mi:512", memory_manager="Static"),
        [pod("p", of(1, rest="hugepages-2Mi=1Gi")), pod("q", of(1, rest="hugepages-2Mi=1Gi"))],
        "[1] cpus 4 hugepages-2Mi 1024Mi on 1 memory 1024Mi on 1",
    ),
    Case(
        "a size of huge pages that the machine lacks ends the kubelet (ran)",
        node_state(memory_manager="Static"),
        [pod("p", of(1, rest="hugepages-1Gi=1Gi"))],
        "KubeletWouldCrash: NUMA node 0 has no hugepages-1Gi; the Memory Manager reads it without a check",
    ),
    Case(
        "an init container's memory is reused and its block shrinks (ran)",
        node_state(memory_manager="Static"),
        [pod("p", "init " + of(2), of(2))],
        "[0] cpus 1-2 memory 0Mi on 0; [0] cpus 1-2 memory 1024Mi on 0",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_kubelet_answers(case: Case) -> None:
    assert case.answer() == case.expected


def test_huge_pages_without_memory_crash_the_memory_manager() -> None:
    huge = node_state(f"{TWO_NUMA_NODES} hugepages-2Mi:512", "none", memory_manager="Static")
    verdict, after = admit(huge, pod("p", "cpu=1 hugepages-2Mi=2Mi", qos_class="Guaranteed"))
    assert verdict_line(verdict) == (
        "KubeletWouldCrash: the Memory Manager reads the hints of memory although the pod requests none"
    )
    assert after is huge


@pytest.mark.parametrize("policy", POLICIES)
def test_huge_pages_that_no_numa_node_has_crash_the_memory_manager(policy: str) -> None:
    """It reads the table of the size for its free amount, and there is no table (policy_static.go:getDefaultHint)."""
    state = node_state(policy=policy, memory_manager="Static")
    verdict, after = admit(state, pod("p", "cpu=1 memory=1Gi hugepages-1Gi=1Gi"))
    assert (verdict.admitted, verdict.reason) == (False, "KubeletWouldCrash")
    assert "hugepages-1Gi" in verdict.message
    assert after is state


def test_huge_pages_that_no_numa_node_has_do_not_matter_without_the_memory_manager() -> None:
    verdict, _ = admit(node_state(), pod("p", "cpu=1 memory=1Gi hugepages-1Gi=1Gi"))
    assert verdict_line(verdict) == "[0] cpus 1"


def test_a_numa_node_without_cpus_gives_memory() -> None:
    state = node_state(policy="best-effort", memory_manager="Static")
    machine = replace(state.machine, numa_nodes=(*state.machine.numa_nodes, NUMANode(2, 32 << 30)))
    verdict, _ = admit(replace(state, machine=machine), pod("p", of(2, "20Gi")))
    assert verdict_line(verdict) == "(0) cpus 1-2 memory 20480Mi on 0,2"


def test_a_container_that_holds_cpus_alone_gets_memory_when_it_is_admitted_again() -> None:
    _, before = admit(node_state(), pod("p", of(2)))
    pinning = replace(before, kubelet=node_state(memory_manager="Static").kubelet)
    assert verdict_line(admit(pinning, pod("p", of(2)))[0]) == "[0] cpus 1-2 memory 1024Mi on 0"


REFUSALS = [
    (
        "no reserved memory",
        replace(node_state(), kubelet=replace(node_state(memory_manager="Static").kubelet, reserved_memory=())),
        "[memorymanager] you should specify the system reserved memory",
    ),
    (
        "memory reserved on a NUMA node that is not there",
        replace(
            node_state(),
            kubelet=replace(
                node_state(memory_manager="Static").kubelet, reserved_memory=(MemoryReservation(7, "memory", 1),)
            ),
        ),
        "the reserved memory configuration references a NUMA node 7 that does not exist on this machine",
    ),
]


@pytest.mark.parametrize(("state", "why"), [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS])
def test_the_kubelet_would_not_start_with(state: NodeState, why: str) -> None:
    assert start_refusal(state) == why
