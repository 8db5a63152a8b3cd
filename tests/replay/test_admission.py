"""Whole admissions: what the kubelet answers, container by container, word for word.

Cases are short data: a node, pods in order, and what is told of the last one. Numbers marked "ran" were seen on the
kubelet's own v1.36.3 managers.
"""

from dataclasses import dataclass, replace

import pytest
from tests.replay.nodes import TWO, TWO_SMT, admit_all, node, pod, told

from topomend.model.bitmask import mask_of, parse_id_list
from topomend.model.kubelet import MemoryReservation
from topomend.model.machine import NUMANode
from topomend.model.node_state import ContainerAllocation, Device, MemoryBlock, NodeState, PodAllocation
from topomend.model.pod import Pod
from topomend.model.verdict import Failure, Preference
from topomend.replay.admission import admit, release, shared_pool, start_refusal

REFUSED = "TopologyAffinityError: Resources cannot be allocated with Topology locality"

GPU = f"{TWO} device:v.com/gpu@0=2,1=2"
GPU_ON_0 = f"{TWO} device:v.com/gpu@0=2"


def unexpected(error: str) -> str:
    return f"UnexpectedAdmissionError: Allocate failed due to {error}, which is unexpected"


@dataclass(frozen=True)
class Case:
    name: str
    state: NodeState
    pods: list[Pod]
    told: str


def of(cpu: int, memory: str = "1Gi", rest: str = "") -> str:
    return f"cpu={cpu} memory={memory} {rest}"


CASES = [
    Case("three CPUs fit the first NUMA node", node(TWO), [pod("p", of(3))], "[0] cpus 1-3"),
    Case("a second pod takes the other NUMA node", node(TWO), [pod("p", of(3)), pod("q", of(3))], "[1] cpus 4-6"),
    Case(
        "free CPUs on two NUMA nodes do not add up",
        node(TWO),
        [pod("p", of(2)), pod("q", of(2)), pod("r", of(3))],
        REFUSED,
    ),
    Case(
        "restricted prefers two NUMA nodes where one would not do",
        node(TWO, "restricted"),
        [pod("p", of(6))],
        "[0-1] cpus 1-2,4-7",
    ),
    Case(
        "a reserved CPU counts for the preferred width (ran)",
        node("cores:4 memory:8Gi", "restricted"),
        [pod("p", of(4))],
        REFUSED,
    ),
    Case(
        "no CPUs at all are left under policy none",
        node(TWO, "none"),
        [pod("p", of(8))],
        unexpected("not enough cpus available to satisfy request: requested=8, available=7"),
    ),
    Case(
        "the second search names its own numbers",
        node(TWO, "best-effort"),
        [pod("p", of(8))],
        unexpected("not enough cpus available to satisfy request: requested=1, available=0"),
    ),
    Case("policy none has no affinity", node(TWO, "none"), [pod("p", of(3))], "(any) cpus 1-3"),
    Case("fractions share", node(TWO, "restricted"), [pod("p", "cpu=1500m memory=1Gi")], "[0-1]"),
    Case(
        "a shared container has no affinity under single-numa-node",
        node(TWO),
        [pod("p", "cpu=500m memory=1Gi")],
        "[any]",
    ),
    Case(
        "one NUMA node is no affinity under single-numa-node",
        node("cores:4 memory:8Gi"),
        [pod("p", of(2))],
        "[any] cpus 1-2",
    ),
    Case("burstable pods share", node(TWO), [pod("p", "request:cpu=2 memory=1Gi")], "[any]"),
    Case("an init container without limits unpins the pod", node(TWO), [pod("p", "init", of(2))], "[any]; [any]"),
    Case(
        "only the container with whole CPUs is pinned",
        node(TWO),
        [pod("p", of(2), "cpu=1500m memory=1Gi")],
        "[0] cpus 1-2; [any]",
    ),
    Case("the status' class wins over the computed one", node(TWO), [pod("p", of(2), qos_class="Burstable")], "[any]"),
    # devices
    Case(
        "CPUs and device meet on one NUMA node",
        node(GPU),
        [pod("p", of(3)), pod("q", of(2, rest="v.com/gpu=1"))],
        "[1] cpus 4-5 1 v.com/gpu on 1",
    ),
    Case(
        "a device without room beside it is refused",
        node(GPU_ON_0),
        [pod("p", of(3)), pod("q", of(2, rest="v.com/gpu=1"))],
        REFUSED,
    ),
    Case("a burstable pod is refused for its devices alone", node(GPU), [pod("p", "v.com/gpu=3")], REFUSED),
    Case(
        "devices from both NUMA nodes are preferred under restricted",
        node(GPU, "restricted"),
        [pod("p", "v.com/gpu=3")],
        "[0-1] 3 v.com/gpu on 0-1",
    ),
    Case(
        "a device on NUMA node 0 narrows six CPUs under best-effort (ran)",
        node(GPU_ON_0, "best-effort"),
        [pod("p", of(6, rest="v.com/gpu=1"))],
        "(0) cpus 1-6 1 v.com/gpu on 0",
    ),
    Case(
        "before 1.36 the device's masks were wider",
        node(GPU_ON_0, "best-effort", version="v1.35.0"),
        [pod("p", of(6, rest="v.com/gpu=1"))],
        "(0-1) cpus 1-2,4-7 1 v.com/gpu on 0",
    ),
    Case(
        "a limit of no device steers the container (ran)",
        node(f"{TWO} device:v.com/gpu@1=1"),
        [pod("p", of(2, rest="v.com/gpu=0"))],
        "[1] cpus 4-5",
    ),
    Case(
        "more devices than there are, under best-effort",
        node(GPU, "best-effort"),
        [pod("p", "v.com/gpu=5")],
        unexpected("requested number of devices unavailable for v.com/gpu. Requested: 5, Available: 4"),
    ),
    Case("a resource that no plugin offers is nobody's business", node(TWO), [pod("p", "x.com/y=1")], "[any]"),
    Case(
        "container scope may place containers apart", node(GPU), [pod("p", of(3), of(3))], "[0] cpus 1-3; [1] cpus 4-6"
    ),
    Case("pod scope may not", node(GPU, scope="pod"), [pod("p", of(3), of(3))], REFUSED),
    Case(
        "pod scope places all containers on one NUMA node",
        node(GPU, scope="pod"),
        [pod("p", of(2), of(2))],
        "[1] cpus 4-5; [1] cpus 6-7",
    ),
    Case(
        "pod scope counts an init container beside the others, not on top",
        node(TWO, scope="pod"),
        [pod("p", "init " + of(4), of(2), of(2))],
        "[1] cpus 4-7; [1] cpus 4-5; [1] cpus 6-7",
    ),
    # init containers and sidecars
    Case(
        "an app container reuses the init container's CPUs",
        node(TWO),
        [pod("p", "init " + of(3), of(3))],
        "[0] cpus 1-3; [0] cpus 1-3",
    ),
    Case("a sidecar keeps its CPUs", node(TWO), [pod("p", "sidecar " + of(3), of(3))], "[0] cpus 1-3; [1] cpus 4-6"),
    Case(
        "a sidecar uses up what an init container left",
        node(TWO),
        [pod("p", "init " + of(3), "sidecar " + of(2), of(1))],
        "[0] cpus 1-3; [0] cpus 1-2; [0] cpus 3",
    ),
    Case(
        "CPUs left for reuse bind the next container to their NUMA node",
        node(TWO),
        [pod("p", "init " + of(3), "sidecar " + of(2), of(2))],
        REFUSED,
    ),
    Case(
        "init CPUs that the app does not need stay held",
        node(TWO),
        [pod("p", "init " + of(3), of(1)), pod("q", of(3)), pod("r", of(2))],
        REFUSED,
    ),
    Case(
        "an app container reuses the init container's device",
        node(f"{TWO} device:v.com/gpu@1=1"),
        [pod("p", "init v.com/gpu=1", "v.com/gpu=1")],
        "[1] 1 v.com/gpu on 1; [1] 1 v.com/gpu on 1",
    ),
    # full-pcpus-only
    Case(
        "half a core is refused",
        node(TWO_SMT, cpu_options="full-pcpus-only=true"),
        [pod("p", of(1))],
        "SMTAlignmentError: SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2",
    ),
    Case(
        "a reserved CPU's sibling is not free",
        node(TWO_SMT, "none", cpu_options="full-pcpus-only=true"),
        [pod("p", of(8))],
        (
            "SMTAlignmentError: SMT Alignment Error: not enough free physical CPUs: available "
            "physical CPUs = 6, requested CPUs = 8, CPUs per core = 2"
        ),
    ),
    Case(
        "whole cores are given",
        node(TWO_SMT, cpu_options="full-pcpus-only=true"),
        [pod("p", of(4))],
        "[1] cpus 2-3,6-7",
    ),
    Case(
        "CPUs of an init container do not count as free (ran)",
        node("cores:3 threads:2 memory:8Gi", "none", cpu_options="full-pcpus-only=true"),
        [pod("p", "init " + of(4), of(4))],
        (
            "SMTAlignmentError: SMT Alignment Error: not enough free physical CPUs: available "
            "physical CPUs = 0, requested CPUs = 4, CPUs per core = 2"
        ),
    ),
    Case(
        "without the option they are reused (ran)",
        node("cores:3 threads:2 memory:8Gi", "none"),
        [pod("p", "init " + of(4), of(4))],
        "(any) cpus 1-2,4-5; (any) cpus 1-2,4-5",
    ),
    Case("an odd request breaks a core last", node(TWO_SMT, reserved="0,4"), [pod("p", of(3))], "[1] cpus 2-3,6"),
    # distribute-cpus-across-numa
    *(
        Case(
            f"{cpus} CPUs over {count} NUMA nodes are spread (ran)",
            node(f"sockets:{count} cores:4 memory:8Gi", "none", cpu_options="distribute-cpus-across-numa=true"),
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
        node(TWO, "restricted", cpu_options="distribute-cpus-across-numa=true"),
        [pod("p", of(6))],
        "[0-1] cpus 1-6",
    ),
    # other CPU options
    Case(
        "threads are spread over cores",
        node(
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
        node(
            "sockets:2 numa:2 cores:2 memory:8Gi",
            "restricted",
            reserved="0,2",
            cpu_options="align-by-socket=true",
            gates="CPUManagerPolicyAlphaOptions",
        ),
        [pod("p", of(2)), pod("q", of(2)), pod("r", of(2))],
        "[0-1] cpus 1,3",
    ),
    Case(
        "without align-by-socket it does not",
        node("sockets:2 numa:2 cores:2 memory:8Gi", "restricted", reserved="0,2"),
        [pod("p", of(2)), pod("q", of(2)), pod("r", of(2))],
        REFUSED,
    ),
    Case(
        "a cache is filled rather than split",
        node("cores:8 l3:2 memory:8Gi", "none", cpu_options="prefer-align-cpus-by-uncorecache=true"),
        [pod("p", of(4))],
        "(any) cpus 4-7",
    ),
    Case(
        "without the option the lowest CPUs are taken",
        node("cores:8 l3:2 memory:8Gi", "none"),
        [pod("p", of(4))],
        "(any) cpus 1-4",
    ),
    # closest NUMA nodes
    Case(
        "the closest NUMA nodes are preferred",
        node(
            "sockets:2 numa:2 cores:2 memory:8Gi",
            "best-effort",
            reserved="0,2",
            options="prefer-closest-numa-nodes=true",
        ),
        [pod("p", of(4))],
        "[2-3] cpus 4-7",
    ),
    Case(
        "nine NUMA nodes need an option",
        node("sockets:9 cores:2 memory:1Gi"),
        [pod("p", of(1))],
        "KubeletWouldNotStart: unsupported on machines with more than 8 NUMA Nodes",
    ),
    Case(
        "and start with it",
        node("sockets:9 cores:2 memory:1Gi", options="max-allowable-numa-nodes=9"),
        [pod("p", of(2))],
        "[1] cpus 2-3",
    ),
    # memory
    Case(
        "memory is pinned where the CPUs are",
        node(TWO, memory=True),
        [pod("p", of(3))],
        "[0] cpus 1-3 memory 1024Mi on 0",
    ),
    Case(
        "CPUs go where the memory is",
        node(TWO, memory=True),
        [pod("p", of(1, "7Gi")), pod("q", of(1, "2Gi"))],
        "[1] cpus 4 memory 2048Mi on 1",
    ),
    Case(
        "memory that fits nowhere passes the merge and fails (ran)",
        node(TWO, "restricted", memory=True),
        [pod("p", of(2, "20Gi"))],
        unexpected("[memorymanager] failed to find NUMA nodes to extend the current topology hint"),
    ),
    Case(
        "the same without affinity",
        node(TWO, "none", memory=True),
        [pod("p", of(2, "20Gi"))],
        unexpected(
            "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
        ),
    ),
    Case(
        "CPUs on two NUMA nodes and memory on one are never preferred",
        node(TWO, "restricted", memory=True),
        [pod("p", of(6))],
        REFUSED,
    ),
    Case(
        "a NUMA node in use joins no group (ran)",
        node(TWO, "restricted", memory=True),
        [pod("p", of(1)), pod("q", of(5, "9Gi"))],
        unexpected("[memorymanager] preferred hint violates NUMA node allocation"),
    ),
    Case(
        "a group serves again the same group",
        node(TWO, "restricted", memory=True),
        [pod("p", of(5, "9Gi")), pod("q", "cpu=500m memory=9Gi")],
        unexpected("[memorymanager] failed to find NUMA nodes to extend the current topology hint"),
    ),
    Case(
        "a NUMA node of a group serves nobody alone",
        node(TWO, "restricted", memory=True),
        [pod("p", of(5, "9Gi")), pod("q", "cpu=500m memory=1Gi")],
        REFUSED,
    ),
    Case(
        "thousandths of a byte cannot be pinned",
        node(TWO, memory=True),
        [pod("p", "cpu=1 memory=1500m")],
        unexpected("[memorymanager] failed to represent quantity as int64"),
    ),
    Case(
        "huge pages are pinned too",
        node(f"{TWO} hugepages-2Mi:512", memory=True),
        [pod("p", of(1, rest="hugepages-2Mi=1Gi")), pod("q", of(1, rest="hugepages-2Mi=1Gi"))],
        "[1] cpus 4 hugepages-2Mi 1024Mi on 1 memory 1024Mi on 1",
    ),
    Case(
        "a size of huge pages that the machine lacks ends the kubelet (ran)",
        node(TWO, memory=True),
        [pod("p", of(1, rest="hugepages-1Gi=1Gi"))],
        "KubeletWouldCrash: NUMA node 0 has no hugepages-1Gi; the Memory Manager reads it without asking",
    ),
    Case(
        "an init container's memory is reused and its block shrinks (ran)",
        node(TWO, memory=True),
        [pod("p", "init " + of(2), of(2))],
        "[0] cpus 1-2 memory 0Mi on 0; [0] cpus 1-2 memory 1024Mi on 0",
    ),
    # pod-level resources
    Case(
        "managers skip a pod with pod-level resources",
        node(TWO, memory=True),
        [pod("p", of(2), resources="cpu=3 memory=2Gi")],
        "[any]",
    ),
    Case("its devices still align", node(GPU), [pod("p", "v.com/gpu=3", resources="cpu=3 memory=2Gi")], REFUSED),
    Case(
        "pod-level managers give the pod one set of CPUs",
        node(TWO, scope="pod", gates="PodLevelResourceManagers"),
        [pod("p", of(2), "", resources="cpu=3 memory=2Gi")],
        "[0] cpus 1-2; [0] cpus 3",
    ),
    Case(
        "containers that share must be left something",
        node(TWO, scope="pod", gates="PodLevelResourceManagers"),
        [pod("p", of(3), "", resources="cpu=3 memory=2Gi")],
        (
            "TopologyAffinityError: Pod Scope pod with pod-level resources failed admission under "
            "pod-scope topology manager"
        ),
    ),
    Case(
        "best-effort leaves that to the allocation",
        node(TWO, "best-effort", scope="pod", gates="PodLevelResourceManagers"),
        [pod("p", of(3), "", resources="cpu=3 memory=2Gi")],
        (
            "EmptyPodSharedPoolError: pod rejected, sum of exclusive container cpu requests "
            "equals pod budget, leaving no cpus for shared containers"
        ),
    ),
    Case(
        "container scope has its own words",
        node(TWO, gates="PodLevelResourceManagers"),
        [pod("p", of(5), resources="cpu=6 memory=2Gi")],
        (
            "TopologyAffinityError: Pod Scope pod with pod-level resources failed admission with "
            "a container-level topology manager"
        ),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_kubelet_answers(case: Case) -> None:
    verdicts, _ = admit_all(case.state, case.pods)
    assert told(verdicts[-1]) == case.told


# What a node is left with


def test_a_refused_pod_leaves_nothing_behind() -> None:
    state = node(GPU, memory=True)
    verdict, after = admit(state, pod("p", of(3, rest="v.com/gpu=1"), of(3, rest="v.com/gpu=2"), of(3)))
    assert not verdict.admitted
    assert after == state


def test_a_released_pod_leaves_nothing_behind() -> None:
    state = node(GPU, "best-effort", memory=True)
    first, taken = admit(state, pod("p", of(2, rest="v.com/gpu=1")))
    again, retaken = admit(release(taken, "d", "p"), pod("p", of(2, rest="v.com/gpu=1")))
    assert again == first
    assert retaken == taken
    assert release(taken, "d", "p").pods == ()


def test_releasing_an_unknown_pod_changes_nothing() -> None:
    state = node(TWO)
    assert release(state, "d", "nobody") is state


def test_a_pod_that_holds_something_is_admitted_to_the_same_again() -> None:
    state = node(GPU, memory=True)
    asked = pod("p", of(2, rest="v.com/gpu=1"), of(1))
    first, taken = admit(state, asked)
    again, retaken = admit(taken, asked)
    assert again.containers == first.containers
    assert retaken.pods == taken.pods


def test_a_running_pod_that_is_refused_after_a_restart_loses_everything() -> None:
    state = node(TWO)
    _, taken = admit(state, pod("p", of(2)))
    verdict, after = admit(taken, pod("p", of(3)))
    assert told(verdict) == REFUSED
    assert after.pods == ()


def test_a_pod_of_the_same_name_and_another_uid_inherits_nothing() -> None:
    verdicts, _ = admit_all(node(TWO), [pod("p", of(3), uid="old"), pod("p", of(3), uid="new")])
    assert [told(each) for each in verdicts] == ["[0] cpus 1-3", "[1] cpus 4-6"]


def test_the_shared_pool_is_what_nobody_holds() -> None:
    _, taken = admit(node(TWO), pod("p", of(3)))
    assert shared_pool(taken) == parse_id_list("0,4-7")
    _, strict = admit(node(TWO, cpu_options="strict-cpu-reservation=true"), pod("p", of(3)))
    assert shared_pool(strict) == parse_id_list("4-7")


def holding(state: NodeState, **held: object) -> NodeState:
    """The node with one pod, as an agent tells it that cannot see the kubelet's own pool and book."""
    return replace(state, pods=(replace(PodAllocation("d", "q", "q"), **held),))  # type: ignore[arg-type]


def test_what_containers_hold_is_not_in_a_pool_that_nobody_tells() -> None:
    taken = holding(node(TWO), containers=(ContainerAllocation("c0", cpus=parse_id_list("1-2")),))
    assert shared_pool(taken) == parse_id_list("0,3-7")
    assert told(admit(taken, pod("p", of(3)))[0]) == "[1] cpus 4-6"


def test_what_a_pod_holds_as_a_whole_is_not_in_a_pool_that_nobody_tells() -> None:
    taken = holding(
        node(TWO), containers=(ContainerAllocation("c0", cpus=parse_id_list("1")),), cpus=parse_id_list("1-2")
    )
    assert shared_pool(taken) == parse_id_list("0,3-7")
    assert told(admit(taken, pod("p", of(3)))[0]) == "[1] cpus 4-6"


def test_what_a_pod_holds_as_a_whole_is_in_a_book_that_nobody_tells() -> None:
    share, whole = MemoryBlock("memory", 1, 1 << 30), MemoryBlock("memory", 1, 6 << 30)
    taken = holding(node(TWO, memory=True), containers=(ContainerAllocation("c0", memory=(share,)),), memory=(whole,))
    verdict, _ = admit(taken, pod("p", of(1, "3Gi")))
    assert told(verdict) == "[1] cpus 4 memory 3072Mi on 1"


def test_a_container_that_holds_cpus_alone_gets_memory_when_it_is_admitted_again() -> None:
    _, before = admit(node(TWO), pod("p", of(2)))
    pinning = replace(before, kubelet=node(TWO, memory=True).kubelet)
    assert told(admit(pinning, pod("p", of(2)))[0]) == "[0] cpus 1-2 memory 1024Mi on 0"


def test_a_running_pod_that_asks_for_less_after_a_restart_is_refused() -> None:
    _, taken = admit(node(TWO), pod("p", of(3)))
    verdict, after = admit(taken, pod("p", of(1)))
    assert told(verdict) == REFUSED
    assert after.pods == ()


def test_huge_pages_without_memory_crash_the_memory_manager() -> None:
    huge = node(f"{TWO} hugepages-2Mi:512", "none", memory=True)
    verdict, after = admit(huge, pod("p", "cpu=1 hugepages-2Mi=2Mi", qos_class="Guaranteed"))
    assert told(verdict) == (
        "KubeletWouldCrash: the Memory Manager looks for the hints of memory, which was not requested"
    )
    assert after is huge


def test_a_placement_says_which_containers_are_init_ones() -> None:
    verdict, _ = admit(node(TWO), pod("p", f"init {of(1)}", f"sidecar {of(1)}", of(1)))
    assert [each.init for each in verdict.containers] == [True, False, False]


def test_pod_level_memory_is_released_as_it_was_charged() -> None:
    state = node(TWO, scope="pod", gates="PodLevelResourceManagers", memory=True)
    _, taken = admit(state, pod("p", "", "", resources="cpu=1 memory=1Gi"))
    assert taken.memory is not None
    assert [each.reserved for each in taken.memory] == [{"memory": 1 << 30}, {}]
    after = release(taken, "d", "p").memory
    assert after is not None
    assert [each.reserved for each in after] == [{}, {}]


# What is told of a verdict


def test_the_trace_tells_what_each_resource_asked_had_and_offered() -> None:
    verdict, _ = admit(node(f"{TWO} device:v.com/gpu@1=1"), pod("p", of(3, rest="v.com/gpu=1")))
    (merge,) = verdict.merges
    assert (merge.container, merge.affinity, merge.preferred, merge.admitted) == ("c0", 2, True, True)
    device, cpu = merge.resources
    assert (device.provider, device.resource, device.requested) == ("device", "v.com/gpu", 1)
    assert (device.free, device.fits) == (((1, 1),), ((2, True),))
    assert (cpu.resource, cpu.requested, cpu.free) == ("cpu", 3, ((0, 3), (1, 4)))
    assert cpu.fits == ((1, True), (2, True), (3, False))
    assert cpu.preference == Preference.HINTS


def test_the_trace_names_what_is_impossible_and_what_has_no_preference() -> None:
    verdict, _ = admit(node(TWO, memory=True), pod("p", of(9, "99Gi")))
    assert [each.preference for each in verdict.merges[0].resources] == [Preference.IMPOSSIBLE, Preference.NONE]
    assert verdict.merges[0].affinity is None


def test_a_failed_allocation_is_told_with_its_manager() -> None:
    verdict, _ = admit(node(TWO, "none"), pod("p", of(1), of(9)))
    error = "not enough cpus available to satisfy request: requested=9, available=6"
    assert verdict.failure == Failure("c1", "cpu", error)


def test_an_unknown_version_is_replayed_and_said_to_be_unknown() -> None:
    verdict, _ = admit(node(TWO, version="v1.99.0"), pod("p", of(3)))
    assert told(verdict) == "[0] cpus 1-3"
    assert verdict.unmodelled == ("kubelet version v1.99.0: the rules of v1.37 were replayed",)


def test_an_option_that_an_unknown_version_may_know_is_no_certain_refusal() -> None:
    verdict, _ = admit(node(TWO, version="v1.99.0", options="numa-allocation-strategy=true"), pod("p", of(3)))
    assert told(verdict).startswith("KubeletWouldNotStart: unknown Topology Manager Policy option")
    assert verdict.unmodelled


# Devices in odd places


def odd_devices(policy: str, *devices: Device) -> NodeState:
    return replace(node(TWO, policy), devices=devices)


def test_a_device_on_a_numa_node_that_does_not_exist_is_impossible() -> None:
    device = Device("v.com/gpu", "a", (-1,))
    assert told(admit(odd_devices("restricted", device), pod("p", "v.com/gpu=1"))[0]) == REFUSED
    verdict, _ = admit(odd_devices("best-effort", device), pod("p", of(2, rest="v.com/gpu=1")))
    assert told(verdict) == "(0) cpus 1-2 1 v.com/gpu on "


def test_a_device_without_numa_node_has_no_preference() -> None:
    verdict, _ = admit(odd_devices("single-numa-node", Device("v.com/gpu", "a")), pod("p", "v.com/gpu=1"))
    assert told(verdict) == "[any] 1 v.com/gpu on "


def test_a_device_on_two_numa_nodes_serves_either() -> None:
    state = odd_devices("single-numa-node", Device("v.com/gpu", "a", (0, 1)))
    verdicts, _ = admit_all(state, [pod("p", of(3)), pod("q", of(3, rest="v.com/gpu=1"))])
    assert told(verdicts[1]) == "[1] cpus 4-6 1 v.com/gpu on 0-1"


def test_unhealthy_devices_count_for_the_preferred_width_only() -> None:
    devices = [
        Device("v.com/gpu", "a", (0,), healthy=False),
        Device("v.com/gpu", "b", (0,)),
        Device("v.com/gpu", "c", (1,)),
    ]
    state = odd_devices("restricted", *devices)
    assert told(admit(state, pod("p", "v.com/gpu=2"))[0]) == REFUSED
    sick = odd_devices("best-effort", Device("v.com/gpu", "a", (0,), healthy=False))
    assert told(admit(sick, pod("p", "v.com/gpu=0"))[0]) == unexpected(
        "no healthy devices present; cannot allocate unhealthy devices v.com/gpu"
    )


def test_devices_are_taken_in_natural_order() -> None:
    state = odd_devices("none", *(Device("v.com/gpu", f"gpu-0-{index}", (0,)) for index in (10, 9, 2)))
    _, taken = admit(state, pod("p", "v.com/gpu=2"))
    assert taken.pods[0].containers[0].devices[0].ids == ("gpu-0-2", "gpu-0-9")


# NUMA nodes without CPUs


def test_a_numa_node_without_cpus_gives_memory() -> None:
    state = node(TWO, "best-effort", memory=True)
    machine = replace(state.machine, numa_nodes=(*state.machine.numa_nodes, NUMANode(2, 32 << 30)))
    verdict, _ = admit(replace(state, machine=machine), pod("p", of(2, "20Gi")))
    assert told(verdict) == "(0) cpus 1-2 memory 20480Mi on 0,2"


# A kubelet that does not start

REFUSALS = [
    (
        "no reserved CPUs",
        node(TWO, reserved=""),
        "[cpumanager] unable to determine reserved CPU resources for static policy",
    ),
    (
        "an unknown topology option",
        node(TWO, options="prefer-most-allocated-numa-node=true"),
        'unknown Topology Manager Policy option: "prefer-most-allocated-numa-node"',
    ),
    (
        "a bad switch",
        node(TWO, options="prefer-closest-numa-nodes=maybe"),
        'bad value for option "prefer-closest-numa-nodes": strconv.ParseBool: parsing "maybe": invalid syntax',
    ),
    (
        "a limit below eight",
        node(TWO, options="max-allowable-numa-nodes=4"),
        'the minimum value of "max-allowable-numa-nodes" should not be less than 8',
    ),
    (
        "a limit that is no number",
        node(TWO, options="max-allowable-numa-nodes=many"),
        (
            'unable to convert policy option to integer "max-allowable-numa-nodes": strconv.Atoi: '
            'parsing "many": invalid syntax'
        ),
    ),
    ("an unknown policy", node(TWO, "best"), 'unknown policy: "best"'),
    ("an unknown scope", node(TWO, scope="node"), 'unknown scope: "node"'),
    (
        "options without a policy to take them",
        node(TWO, cpu_policy="none", cpu_options="full-pcpus-only=true"),
        "new none policy error: None policy: received unsupported options=map[full-pcpus-only:true]",
    ),
    (
        "an alpha option without its gate",
        node(TWO, "restricted", cpu_options="align-by-socket=true"),
        (
            "new static policy error: CPU Manager Policy Alpha-level Options not enabled, but "
            'option "align-by-socket" provided'
        ),
    ),
    (
        "an unknown CPU option",
        node(TWO, cpu_options="turbo=true"),
        'new static policy error: unknown CPU Manager Policy option: "turbo"',
    ),
    (
        "options that exclude each other",
        node(TWO, cpu_options="distribute-cpus-across-numa=true prefer-align-cpus-by-uncorecache=true"),
        (
            "new static policy error: static policy options prefer-align-cpus-by-uncorecache and "
            "distribute-cpus-across-numa can not be used at the same time"
        ),
    ),
    (
        "align-by-socket with single-numa-node",
        node(TWO, cpu_options="align-by-socket=true", gates="CPUManagerPolicyAlphaOptions"),
        (
            "new static policy error: Topolgy manager single-numa-node policy is incompatible "
            "with CPUManager align-by-socket policy option"
        ),
    ),
    (
        "a reserved CPU that is not there",
        node(TWO, reserved="99"),
        (
            "new static policy error: [cpumanager] unable to build the reserved physical CPUs "
            "from the reserved set: unknown CPU ID: 99"
        ),
    ),
    (
        "too few CPUs to reserve",
        replace(node(TWO), kubelet=replace(node(TWO).kubelet, reserved_cpus=None, reserved_cpu_millis=9000)),
        (
            "new static policy error: [cpumanager] unable to reserve the required amount of CPUs "
            "(size of  did not equal 9)"
        ),
    ),
    (
        "no reserved memory",
        replace(node(TWO), kubelet=replace(node(TWO, memory=True).kubelet, reserved_memory=())),
        "[memorymanager] you should specify the system reserved memory",
    ),
    (
        "memory reserved on a NUMA node that is not there",
        replace(
            node(TWO),
            kubelet=replace(node(TWO, memory=True).kubelet, reserved_memory=(MemoryReservation(7, "memory", 1),)),
        ),
        "the reserved memory configuration references a NUMA node 7 that does not exist on this machine",
    ),
]


@pytest.mark.parametrize(("state", "why"), [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS])
def test_the_kubelet_would_not_start_with(state: NodeState, why: str) -> None:
    assert start_refusal(state) == why
    verdict, after = admit(state, pod("p", of(1)))
    assert (verdict.admitted, verdict.reason, verdict.message) == (False, "KubeletWouldNotStart", why)
    assert after is state


def test_policy_none_does_not_read_its_options() -> None:
    assert start_refusal(node(TWO, "none", options="nonsense=1 max-allowable-numa-nodes=1", scope="nowhere")) is None


def test_reserved_cpus_are_taken_by_the_policys_own_rules() -> None:
    kubelet = replace(node(TWO_SMT).kubelet, reserved_cpus=None, reserved_cpu_millis=1500)
    verdict, _ = admit(replace(node(TWO_SMT), kubelet=kubelet), pod("p", of(2)))
    assert told(verdict) == "[0] cpus 1,5"
    assert mask_of([0, 4]) & verdict.containers[0].cpus == 0
