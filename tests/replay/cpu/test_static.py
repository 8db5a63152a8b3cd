"""Which containers get exclusive CPUs, and which CPUs these are."""

from dataclasses import replace

import pytest
from tests.builders import TWO_NUMA_NODES_SMT, guaranteed_pod, kubelet_settings, node_state, pod
from tests.replay.verdicts import REFUSED, Case, of, unexpected, verdict_line

from topomend.model.bitmask import mask_of
from topomend.model.machine import Core
from topomend.model.nodes.node_state import NodeState
from topomend.replay.admission import admit, start_refusal
from topomend.replay.cpu.static import CPUManager, start
from topomend.replay.cpu.topology import CPUTopology, discover
from topomend.replay.gates import read_gates
from topomend.replay.qos import CPU

CASES = [
    Case("three CPUs fit the first NUMA node", node_state(), [pod("p", of(3))], "[0] cpus 1-3"),
    Case("a second pod takes the other NUMA node", node_state(), [pod("p", of(3)), pod("q", of(3))], "[1] cpus 4-6"),
    Case(
        "free CPUs on two NUMA nodes do not add up",
        node_state(),
        [pod("p", of(2)), pod("q", of(2)), pod("r", of(3))],
        REFUSED,
    ),
    Case(
        "restricted prefers two NUMA nodes where one would not do",
        node_state(policy="restricted"),
        [pod("p", of(6))],
        "[0-1] cpus 1-2,4-7",
    ),
    Case(
        "a reserved CPU counts for the preferred width (ran)",
        node_state("cores:4 memory:8Gi", "restricted"),
        [pod("p", of(4))],
        REFUSED,
    ),
    Case(
        "no CPUs at all are left under policy none",
        node_state(policy="none"),
        [pod("p", of(8))],
        unexpected("not enough cpus available to satisfy request: requested=8, available=7"),
    ),
    Case(
        "the second search names its own numbers",
        node_state(policy="best-effort"),
        [pod("p", of(8))],
        unexpected("not enough cpus available to satisfy request: requested=1, available=0"),
    ),
    Case("fractions share", node_state(policy="restricted"), [pod("p", "cpu=1500m memory=1Gi")], "[0-1]"),
    Case("burstable pods share", node_state(), [pod("p", "request:cpu=2 memory=1Gi")], "[any]"),
    Case("an init container without limits unpins the pod", node_state(), [pod("p", "init", of(2))], "[any]; [any]"),
    Case(
        "only the container with whole CPUs is pinned",
        node_state(),
        [pod("p", of(2), "cpu=1500m memory=1Gi")],
        "[0] cpus 1-2; [any]",
    ),
    Case(
        "the status' class wins over the computed one", node_state(), [pod("p", of(2), qos_class="Burstable")], "[any]"
    ),
    Case(
        "an app container reuses the init container's CPUs",
        node_state(),
        [pod("p", "init " + of(3), of(3))],
        "[0] cpus 1-3; [0] cpus 1-3",
    ),
    Case("a sidecar keeps its CPUs", node_state(), [pod("p", "sidecar " + of(3), of(3))], "[0] cpus 1-3; [1] cpus 4-6"),
    Case(
        "a sidecar uses up what an init container left",
        node_state(),
        [pod("p", "init " + of(3), "sidecar " + of(2), of(1))],
        "[0] cpus 1-3; [0] cpus 1-2; [0] cpus 3",
    ),
    Case(
        "CPUs left for reuse bind the next container to their NUMA node",
        node_state(),
        [pod("p", "init " + of(3), "sidecar " + of(2), of(2))],
        REFUSED,
    ),
    Case(
        "init CPUs that the app does not need stay allocated",
        node_state(),
        [pod("p", "init " + of(3), of(1)), pod("q", of(3)), pod("r", of(2))],
        REFUSED,
    ),
    Case(
        "half a core is refused",
        node_state(TWO_NUMA_NODES_SMT, cpu_options="full-pcpus-only=true"),
        [pod("p", of(1))],
        "SMTAlignmentError: SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2",
    ),
    Case(
        "a reserved CPU's sibling is not free",
        node_state(TWO_NUMA_NODES_SMT, "none", cpu_options="full-pcpus-only=true"),
        [pod("p", of(8))],
        (
            "SMTAlignmentError: SMT Alignment Error: not enough free physical CPUs: available "
            "physical CPUs = 6, requested CPUs = 8, CPUs per core = 2"
        ),
    ),
    Case(
        "whole cores are given",
        node_state(TWO_NUMA_NODES_SMT, cpu_options="full-pcpus-only=true"),
        [pod("p", of(4))],
        "[1] cpus 2-3,6-7",
    ),
    Case(
        "CPUs of an init container do not count as free (ran)",
        node_state("cores:3 threads:2 memory:8Gi", "none", cpu_options="full-pcpus-only=true"),
        [pod("p", "init " + of(4), of(4))],
        (
            "SMTAlignmentError: SMT Alignment Error: not enough free physical CPUs: available "
            "physical CPUs = 0, requested CPUs = 4, CPUs per core = 2"
        ),
    ),
    Case(
        "without the option they are reused (ran)",
        node_state("cores:3 threads:2 memory:8Gi", "none"),
        [pod("p", "init " + of(4), of(4))],
        "(any) cpus 1-2,4-5; (any) cpus 1-2,4-5",
    ),
    Case(
        "an odd request breaks a core last",
        node_state(TWO_NUMA_NODES_SMT, reserved_cpus="0,4"),
        [pod("p", of(3))],
        "[1] cpus 2-3,6",
    ),
    *(
        Case(
            f"{cpus} CPUs over {count} NUMA nodes are spread (ran)",
            node_state(f"sockets:{count} cores:4 memory:8Gi", "none", cpu_options="distribute-cpus-across-numa=true"),
            [pod("p", of(cpus))],
            f"(any) cpus {given}",
        )
        for count, cpus, given in (
            (8, 16, "4-15,28-31"),
            (8, 24, "4-23,28-31"),
            (6, 16, "4-15,20-23"),
            (8, 8, "4-11"),
            (8, 12, "4-15"),
            (8, 20, "4-23"),
            (8, 28, "4-31"),
            (5, 16, "4-19"),
        )
    ),
    Case(
        "six CPUs are spread three and three",
        node_state(policy="restricted", cpu_options="distribute-cpus-across-numa=true"),
        [pod("p", of(6))],
        "[0-1] cpus 1-6",
    ),
    Case(
        "threads are spread over cores",
        node_state(
            "cores:4 threads:2 memory:8Gi",
            "none",
            cpu_options="distribute-cpus-across-cores=true",
            gates="CPUManagerPolicyAlphaOptions",
        ),
        [pod("p", of(3))],
        "(any) cpus 1-3",
    ),
    Case(
        "a socket counts as aligned",
        node_state(
            "sockets:2 numa:2 cores:2 memory:8Gi",
            "restricted",
            reserved_cpus="0,2",
            cpu_options="align-by-socket=true",
            gates="CPUManagerPolicyAlphaOptions",
        ),
        [pod("p", of(2)), pod("q", of(2)), pod("r", of(2))],
        "[0-1] cpus 1,3",
    ),
    Case(
        "without align-by-socket it does not",
        node_state("sockets:2 numa:2 cores:2 memory:8Gi", "restricted", reserved_cpus="0,2"),
        [pod("p", of(2)), pod("q", of(2)), pod("r", of(2))],
        REFUSED,
    ),
    Case(
        "a cache is filled rather than split",
        node_state("cores:8 l3:2 memory:8Gi", "none", cpu_options="prefer-align-cpus-by-uncorecache=true"),
        [pod("p", of(4))],
        "(any) cpus 4-7",
    ),
    Case(
        "without the option the lowest CPUs are taken",
        node_state("cores:8 l3:2 memory:8Gi", "none"),
        [pod("p", of(4))],
        "(any) cpus 1-4",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_kubelet_answers(case: Case) -> None:
    assert case.answer() == case.expected


REFUSALS = [
    (
        "no reserved CPUs",
        node_state(reserved_cpus=""),
        "[cpumanager] unable to determine reserved CPU resources for static policy",
    ),
    (
        "a reserved CPU that is not there",
        node_state(reserved_cpus="99"),
        (
            "new static policy error: [cpumanager] unable to build the reserved physical CPUs "
            "from the reserved set: unknown CPU ID: 99"
        ),
    ),
    (
        "too few CPUs to reserve",
        replace(node_state(), kubelet=replace(node_state().kubelet, reserved_cpus=None, reserved_cpu_millis=9000)),
        (
            "new static policy error: [cpumanager] unable to reserve the required amount of CPUs "
            "(size of  did not equal 9)"
        ),
    ),
]


@pytest.mark.parametrize(("state", "why"), [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS])
def test_the_kubelet_would_not_start_with(state: NodeState, why: str) -> None:
    assert start_refusal(state) == why


def test_reserved_cpus_are_taken_by_the_policys_own_rules() -> None:
    kubelet = replace(node_state(TWO_NUMA_NODES_SMT).kubelet, reserved_cpus=None, reserved_cpu_millis=1500)
    verdict, _ = admit(replace(node_state(TWO_NUMA_NODES_SMT), kubelet=kubelet), pod("p", of(2)))
    assert verdict_line(verdict) == "[0] cpus 1,5"
    assert mask_of([0, 4]) & verdict.containers[0].cpus == 0


@pytest.mark.parametrize(("cores", "is_told"), [((0b0011, 0b1100), True), ((0b0111, 0b1000), False)])
def test_on_uneven_cores_no_number_of_cpus_is_said_to_be_too_many(cores: tuple[int, ...], is_told: bool) -> None:
    """The kubelet may take reserved CPUs as well, with cores that it counts as whole."""
    settings = kubelet_settings()
    machine = replace(node_state(TWO_NUMA_NODES_SMT).machine, cores=tuple(Core(threads, 0, 0) for threads in cores))
    topology = discover(machine)
    assert isinstance(topology, CPUTopology)
    policy = start(settings, topology, "none", read_gates(settings))
    manager, asking = CPUManager(policy, policy.pool, {}, 0), guaranteed_pod(cpus=4)
    assert manager.lacks(asking) == ({CPU} if is_told else set())
    assert manager.has_enough(asking, asking.containers[0]) != is_told
