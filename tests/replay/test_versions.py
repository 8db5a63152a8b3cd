"""Differences between kubelet versions in the treatment of a pod or a configuration, each with its source."""

from dataclasses import replace

import pytest
from tests.builders import TWO_NUMA_NODES, TWO_NUMA_NODES_SMT, node_state, pod
from tests.replay.verdicts import REFUSED, admit_all, unexpected, verdict_line

from topomend.model.bitmask import parse_id_list
from topomend.model.machine import Core
from topomend.model.nodes.node_state import NodeState
from topomend.model.shapes.shape import parse_shape
from topomend.replay.admission import admit, start_refusal
from topomend.replay.cpu.assignment import AssignmentError, Strategy, take
from topomend.replay.cpu.topology import discover
from topomend.replay.errors import KUBELET_WOULD_CRASH, KUBELET_WOULD_HANG, KubeletBreaks
from topomend.replay.gates import NEXT

OF_ONE = "cpu=1 memory=64Mi"
OF_TWO = "cpu=2 memory=64Mi"


def refusal(state: NodeState) -> str:
    return start_refusal(state) or "starts"


@pytest.mark.parametrize(
    ("version", "option", "expected"),
    [
        (
            "v1.30.14",
            "max-allowable-numa-nodes=8",
            'unknown Topology Manager Policy option: "max-allowable-numa-nodes"',
        ),
        (
            "v1.31.14",
            "prefer-closest-numa-nodes=true",
            'Topology Manager Policy Beta-level Options not enabled, but option "prefer-closest-numa-nodes" provided',
        ),
        (
            "v1.34.4",
            "max-allowable-numa-nodes=8",
            'topology manager policy beta-level options not enabled, but option "max-allowable-numa-nodes" provided',
        ),
        ("v1.32.13", "prefer-closest-numa-nodes=true", "starts"),
        ("v1.35.4", "max-allowable-numa-nodes=8", "starts"),
    ],
)
def test_beta_options_of_the_topology_manager_need_their_gate(version: str, option: str, expected: str) -> None:
    """topologymanager/policy_options.go:CheckPolicyOptionAvailable of v1.30.14, v1.31.14, v1.33.13, v1.35.4."""
    state = node_state(version=version, options=option)
    off = replace(state.kubelet, feature_gates={"TopologyManagerPolicyBetaOptions": False})
    assert refusal(replace(state, kubelet=off)) == expected


def test_options_need_the_gate_of_all_options() -> None:
    """cmd/kubelet/app/server.go:run of v1.32.13 and v1.37.1."""
    off = {"CPUManagerPolicyOptions": False, "TopologyManagerPolicyOptions": False}
    state = node_state(policy="none", version="v1.32.13", cpu_options="full-pcpus-only=true")
    assert refusal(replace(state, kubelet=replace(state.kubelet, feature_gates=off))) == (
        "CPU Manager policy options map[full-pcpus-only:true] require feature gates "
        '"CPUManager", "CPUManagerPolicyOptions" enabled'
    )
    state = node_state(policy="none", version="v1.37.1", options="prefer-closest-numa-nodes=true")
    assert refusal(replace(state, kubelet=replace(state.kubelet, feature_gates=off))) == (
        "topology manager policy options map[prefer-closest-numa-nodes:true] require feature gates "
        '"TopologyManagerPolicyOptions" enabled'
    )
    state = node_state(policy="none")
    assert refusal(replace(state, kubelet=replace(state.kubelet, feature_gates=off))) == "starts"


@pytest.mark.parametrize(("version", "expected"), [("v1.31.14", "starts"), ("v1.32.13", "no cpus provided")])
def test_a_machine_of_offline_cores_ends_the_start_where_nobody_pins_cpus(version: str, expected: str) -> None:
    """cpumanager/cpu_manager.go:NewManager of v1.31.14 and v1.32.13."""
    state = node_state(policy="none", version=version, cpu_manager="none", reserved_cpus="")
    cores = (*state.machine.cores, Core(0, 0, 0))
    assert refusal(replace(state, machine=replace(state.machine, cores=cores))) == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1.31.14", 'unknown policy: "BestEffort"'),
        ("v1.32.13", 'policy "BestEffort" is not available for platform "linux"'),
    ],
)
def test_the_memory_policy_of_windows(version: str, expected: str) -> None:
    """memorymanager/memory_manager.go:NewManager of v1.31.14 and v1.32.13."""
    state = node_state(version=version)
    assert refusal(replace(state, kubelet=replace(state.kubelet, memory_manager_policy="BestEffort"))) == expected


@pytest.mark.parametrize(("version", "pinned"), [("v1.31.14", False), ("v1.32.13", True)])
def test_gate_memory_manager_counts_until_1_31(version: str, pinned: bool) -> None:
    """cm/container_manager_linux.go:NewContainerManager of v1.31.14; kube_features.go of v1.32.13."""
    state = node_state(version=version, memory_manager="Static")
    off = replace(state, kubelet=replace(state.kubelet, feature_gates={"MemoryManager": False}))
    assert ("memory 64Mi on 0" in verdict_line(admit(off, pod("p", OF_ONE))[0])) == pinned


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1.31.14", "[0-1] cpus 2,4-7 memory 9000Mi on 0-1"),
        ("v1.32.13", "UnexpectedAdmissionError"),
    ],
)
def test_a_group_takes_a_numa_node_that_is_in_use(version: str, expected: str) -> None:
    """memorymanager/policy_static.go:Allocate of v1.31.14 and v1.32.13: isAffinityViolatingNUMAAllocations."""
    state = node_state(policy="restricted", version=version, memory_manager="Static")
    _, state = admit_all(state, [pod("first", OF_ONE)])
    assert verdict_line(admit(state, pod("second", "cpu=5 memory=9000Mi"))[0]).startswith(expected)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1.31.14", "SMTAlignmentError: SMT Alignment Error: requested 2 cpus not multiple cpus per core = 2"),
        (
            "v1.32.13",
            (
                "SMTAlignmentError: SMT Alignment Error: not enough free physical CPUs: "
                "available physical CPUs = 0, requested CPUs = 2, CPUs per core = 2"
            ),
        ),
    ],
)
def test_that_no_core_is_free_is_reported_since_1_32(version: str, expected: str) -> None:
    """cpumanager/policy_static.go:SMTAlignmentError.Error of v1.31.14 and v1.32.13."""
    state = node_state(TWO_NUMA_NODES_SMT, "none", version=version, cpu_options="full-pcpus-only=true")
    verdicts, _ = admit_all(state, [pod("first", "cpu=6 memory=64Mi"), pod("second", OF_TWO)])
    assert verdict_line(verdicts[1]) == expected


@pytest.mark.parametrize(("version", "admitted"), [("v1.36.3", False), ("v1.37.1", True)])
def test_a_restart_keeps_cpus_that_are_no_whole_cores_since_1_37(version: str, admitted: bool) -> None:
    """cpumanager/policy_static.go:Allocate of v1.36.3, allocateForAdd of v1.37.1."""
    state = node_state(TWO_NUMA_NODES_SMT, version=version)
    _, state = admit(state, pod("p", OF_ONE))
    state = replace(state, kubelet=replace(state.kubelet, cpu_manager_policy_options={"full-pcpus-only": "true"}))
    assert admit(state, pod("p", OF_ONE))[0].admitted == admitted


@pytest.mark.parametrize(("version", "cpus"), [("v1.33.13", "1-2,5"), ("v1.34.4", "2-3,6")])
def test_a_cache_gives_a_core_in_part_since_1_34(version: str, cpus: str) -> None:
    """cpumanager/cpu_assignment.go:takePartialUncore of v1.33.13 and v1.34.4: the request fits the second cache."""
    state = node_state(
        "sockets:1 cores:4 threads:2 l3:2 memory:8Gi",
        "none",
        version=version,
        reserved_cpus="0,4",
        cpu_options="prefer-align-cpus-by-uncorecache=true",
        gates="CPUManagerPolicyAlphaOptions",
    )
    assert verdict_line(admit(state, pod("p", "cpu=3 memory=64Mi"))[0]) == f"(any) cpus {cpus}"


def test_the_distribution_gives_no_more_than_a_numa_node_has_since_1_37() -> None:
    """cpumanager/cpu_assignment.go:takeByTopologyNUMADistributed of v1.36.3 and v1.37.1.

    The combination that was found is overwritten by one with a NUMA node that has fewer CPUs. The older one notices
    that CPUs are missing; the newer one takes fewer of each and then has no NUMA node to take the remainder from.
    """
    topology = discover(parse_shape("sockets:3 numa:3 cores:3 memory:2Gi").machine())
    assert not isinstance(topology, str)
    free = parse_id_list("0,2-3,5-6,8,10-11,13-15,17-19,21-23,26")
    older = take(topology, free, 16, Strategy(group=1))
    assert older == AssignmentError("accounting error, not enough CPUs allocated, remaining: 2")
    with pytest.raises(KubeletBreaks) as broken:
        take(topology, free, 16, Strategy(group=1, bounded=True))
    assert broken.value.reason == KUBELET_WOULD_HANG


def test_the_distribution_stays_on_a_socket_since_1_37() -> None:
    """cpumanager/cpu_assignment.go:takeByTopologyNUMADistributed of v1.37.1 with align-by-socket."""
    taken = []
    for version in ("v1.36.3", "v1.37.1"):
        state = node_state(
            "sockets:2 numa:2 cores:4 memory:2Gi",
            "none",
            version=version,
            reserved_cpus="0",
            cpu_options="distribute-cpus-across-numa=true align-by-socket=true",
            gates="CPUManagerPolicyAlphaOptions",
        )
        taken.append(verdict_line(admit(state, pod("p", "cpu=6 memory=64Mi"))[0]))
    assert taken == ["(any) cpus 4-6,8-10", "(any) cpus 8-10,12-14"]


POD_LEVEL = "cpu=2 memory=256Mi"


@pytest.mark.parametrize(
    ("version", "gates", "expected"),
    [
        ("v1.31.14", "", "[0] cpus 1"),
        ("v1.33.13", "", "[0] cpus 1"),
        ("v1.33.13", "PodLevelResources", "[0] cpus 1"),
        ("v1.34.4", "", "[0-1]"),
        ("v1.37.1", "", "[0-1]"),
    ],
)
def test_pods_with_pod_level_resources_are_pinned_before_1_34(version: str, gates: str, expected: str) -> None:
    """cpumanager/policy_static.go:Allocate of v1.33.13 and v1.34.4."""
    state = node_state(policy="restricted", version=version, gates=gates)
    assert verdict_line(admit(state, pod("p", OF_ONE, resources=POD_LEVEL))[0]) == expected


@pytest.mark.parametrize(("version", "expected"), [("v1.36.3", "[0-1]"), ("v1.37.1", "[0] cpus 1")])
def test_pod_level_resources_that_name_nothing_decide_no_class_since_1_37(version: str, expected: str) -> None:
    """pkg/apis/core/v1/helper/qos/qos.go:ComputePodQOS of v1.36.3 and v1.37.1."""
    state = node_state(policy="restricted", version=version)
    assert verdict_line(admit(state, pod("p", OF_ONE, resources=""))[0]) == expected


@pytest.mark.parametrize(
    ("version", "expected"), [("v1.36.3", "[0] cpus 1; [0] cpus 2-3"), ("v1.37.1", "[0-1]; [0-1]")]
)
def test_each_container_must_be_guaranteed_by_itself_since_1_37(version: str, expected: str) -> None:
    """pkg/apis/core/v1/helper/qos/qos.go:ComputePodQOS of v1.36.3 and v1.37.1, for a pod that no API server takes."""
    made = pod("p", OF_ONE, OF_TWO)
    one, two = made.containers
    swapped = replace(
        made,
        containers=(
            replace(one, resources=replace(one.resources, limits=two.resources.limits)),
            replace(two, resources=replace(two.resources, limits=one.resources.limits)),
        ),
    )
    assert verdict_line(admit(node_state(policy="restricted", version=version), swapped)[0]) == expected


@pytest.mark.parametrize(("version", "served"), [("v1.36.3", True), ("v1.37.1", False)])
def test_a_container_that_asks_for_no_memory_is_left_alone_since_1_37(version: str, served: bool) -> None:
    """memorymanager/policy_static.go:Allocate of v1.36.3 and v1.37.1.

    Under a policy without affinity the older one looks for NUMA nodes for nothing and finds none.
    """
    state = node_state(policy="none", version=version, memory_manager="Static", gates="PodLevelResourceManagers")
    told_of = verdict_line(admit(state, pod("p", "request:cpu=1", resources=POD_LEVEL))[0])
    assert ("failed to get the default NUMA affinity" in told_of) == served, told_of


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_a_numa_id_beyond_63_ends_the_kubelet_with_the_first_pod(policy: str) -> None:
    """topologymanager/bitmask/bitmask.go:NewBitMask, policy.go:HintMerger.Merge."""
    state = _with_last_id(node_state(policy=policy), 64)
    verdict, after = admit(state, pod("p", OF_ONE))
    assert verdict.reason == KUBELET_WOULD_CRASH
    assert verdict.message == "NUMA nodes 64 do not fit the kubelet's masks, which end at 63"
    assert after == state
    assert admit(_with_last_id(node_state(policy=policy), 63), pod("p", OF_ONE))[0].admitted


def test_a_numa_id_beyond_63_matters_under_policy_none_only_to_memory() -> None:
    """memorymanager/policy_static.go:calculateHints."""
    assert admit(_with_last_id(node_state(policy="none"), 64), pod("p", OF_ONE))[0].admitted
    state = _with_last_id(node_state(policy="none", memory_manager="Static"), 64)
    assert admit(state, pod("p", OF_ONE))[0].reason == KUBELET_WOULD_CRASH


# The next release: v1.38.0-beta.0

NEWEST = "v1.37.2"
LEAVES_ROOM = "cpu=3 memory=256Mi"
FAILED_WHOLE = "TopologyAffinityError: Pod Scope pod with pod-level resources failed admission under"


def on_pods(version: str) -> NodeState:
    """A node whose managers know pods with resources of their own."""
    return node_state(version=version, scope="pod", memory_manager="Static", gates="PodLevelResourceManagers")


@pytest.mark.parametrize(("version", "cpus"), [(NEWEST, "cpus 8-11"), (NEXT, "cpus 1-2,8-9")])
def test_the_next_release_spreads_cpus_over_the_numa_nodes_of_the_affinity(version: str, cpus: str) -> None:
    """cpumanager/cpu_assignment.go:rangeNUMANodesNeededToSatisfy. The two devices are on two NUMA nodes."""
    machine = "sockets:2 cores:8 memory:8Gi device:v.com/gpu@0=1,1=1"
    state = node_state(machine, "best-effort", version=version, cpu_options="distribute-cpus-across-numa=true")
    assert cpus in verdict_line(admit(state, pod("p", "cpu=4 memory=1Gi v.com/gpu=2"))[0])


@pytest.mark.parametrize(
    ("version", "again"),
    [(NEWEST, FAILED_WHOLE), (NEXT, "[0] cpus 1 memory 64Mi on 0; [0] cpus 2-3 memory 192Mi on 0")],
)
def test_the_next_release_keeps_what_a_pod_holds_that_it_admits_again(version: str, again: str) -> None:
    """cpumanager/policy_static.go:restorePodAllocation, memorymanager/policy_static.go:AllocatePod."""
    asked = pod("p", OF_ONE, "", resources=LEAVES_ROOM)
    _, held = admit(on_pods(version), asked)
    verdict, after = admit(held, asked)
    assert verdict_line(verdict).startswith(again)
    assert (after == held) == verdict.admitted


def test_the_next_release_refuses_a_pod_again_that_holds_another_number_of_cpus() -> None:
    """cpumanager/policy_static.go:getPodTopologyHintsForAdd."""
    _, held = admit(on_pods(NEXT), pod("p", OF_ONE, "", resources=LEAVES_ROOM))
    verdict, after = admit(held, pod("p", OF_ONE, "", resources="cpu=2 memory=256Mi"))
    assert verdict_line(verdict).startswith(FAILED_WHOLE)
    assert after.pods == ()


def test_the_next_release_completes_what_an_interrupted_admission_began() -> None:
    """cpumanager/policy_static.go:partitionPodCPUs: a container keeps its share, those after it get theirs."""
    asked = pod("p", "init " + OF_TWO, OF_ONE, OF_ONE, "", resources=LEAVES_ROOM)
    _, complete = admit(on_pods(NEXT), asked)
    (held,) = complete.pods
    for count in range(5):
        begun = replace(complete, pods=(replace(held, containers=held.containers[:count]),))
        shares = [container.cpus for container in admit(begun, asked)[1].pods[0].containers]
        assert shares == [container.cpus for container in held.containers]


@pytest.mark.parametrize(("version", "left"), [(NEWEST, "cpus 3"), (NEXT, "cpus 1-3")])
def test_the_next_release_returns_cpus_that_cannot_be_divided(version: str, left: str) -> None:
    """cpumanager/policy_static.go:allocatePodForAdd. The containers ask for more than their pod has."""
    asked = pod("p", OF_TWO, OF_ONE, resources="cpu=2 memory=256Mi")
    _, after = admit(replace(on_pods(version), cpu_pool=parse_id_list("0-3")), asked)
    verdict, _ = admit(after, pod("q", f"cpu={1 if version == NEWEST else 3} memory=1Gi"))
    assert left in verdict_line(verdict)


def test_the_next_release_gives_up_what_it_cannot_complete() -> None:
    """cpumanager/policy_static.go:restorePodAllocation: one container's share is all that the pod has."""
    asked = pod("p", OF_ONE, OF_ONE, resources="cpu=2 memory=256Mi")
    _, complete = admit(on_pods(NEXT), asked)
    (held,) = complete.pods
    first = replace(held.containers[0], cpus=held.cpus)
    verdict, after = admit(replace(complete, pods=(replace(held, containers=(first,)),)), asked)
    assert verdict_line(verdict) == unexpected("not enough cpus available to satisfy request: requested=1, available=0")
    assert after.pods == ()


def test_the_next_release_drops_what_an_interrupted_end_left() -> None:
    """cpumanager/policy_static.go:assignmentsFormSpecPrefix: no admission gives a share before those of the first."""
    asked = pod("p", OF_ONE, OF_TWO, resources=LEAVES_ROOM)
    _, complete = admit(on_pods(NEXT), asked)
    (held,) = complete.pods
    last = replace(held.containers[1], cpus=parse_id_list("1-2"))
    _, after = admit(replace(complete, pods=(replace(held, containers=(last,)),)), asked)
    shares = {container.name: container.cpus for container in after.pods[0].containers}
    assert shares == {"c0": parse_id_list("1"), "c1": parse_id_list("2-3")}


def test_the_next_release_drops_cpus_that_are_in_the_shared_pool_too() -> None:
    """cpumanager/policy_static.go:podAllocationStaleness: another pod has CPU 1 by now, so the pod gets others."""
    asked = pod("p", OF_ONE, OF_TWO, resources=LEAVES_ROOM)
    _, complete = admit(replace(on_pods(NEXT), cpu_pool=parse_id_list("0-7")), asked)
    _, after = admit(replace(complete, cpu_pool=parse_id_list("0,2-7")), asked)
    assert after.pods[0].cpus == parse_id_list("2-4")
    assert after.cpu_pool == parse_id_list("0,5-7")


@pytest.mark.parametrize(("version", "again"), [(NEWEST, "[0-1] memory"), (NEXT, "[0] memory")])
def test_the_next_release_compares_memory_with_its_own_container(version: str, again: str) -> None:
    """memorymanager/policy_static.go:GetPodTopologyHints: older ones compare it with the pod's, and give no hint."""
    state = node_state(policy="best-effort", scope="pod", version=version, memory_manager="Static", cpu_manager="none")
    asked = pod("p", "cpu=1 memory=3Gi", "cpu=1 memory=4Gi")
    verdict, _ = admit(admit(state, asked)[1], asked)
    assert verdict_line(verdict).startswith(again)


@pytest.mark.parametrize(("version", "expected"), [(NEWEST, "[0] cpus 1"), (NEXT, REFUSED)])
def test_the_next_release_counts_huge_pages_that_only_an_init_container_asks_for(version: str, expected: str) -> None:
    """memorymanager/policy_static.go:getPodRequestedResources. A NUMA node has half of the huge pages."""
    state = node_state(f"{TWO_NUMA_NODES} hugepages-2Mi:4", scope="pod", version=version, memory_manager="Static")
    asked = pod("p", "init cpu=1 memory=1Gi hugepages-2Mi=16Mi", OF_ONE)
    assert verdict_line(admit(state, asked)[0]).startswith(expected)


def _with_last_id(state: NodeState, number: int) -> NodeState:
    """The node with its second NUMA node's id changed."""
    first, second = state.machine.numa_nodes
    cores = tuple(replace(core, numa_node=number) if core.numa_node == 1 else core for core in state.machine.cores)
    machine = replace(state.machine, numa_nodes=(first, replace(second, id=number)), cores=cores)
    return replace(state, machine=machine)
