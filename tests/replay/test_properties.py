"""What holds for every node and every pod, found by trying many."""

from dataclasses import replace
from time import process_time

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import node_state, pod
from tests.seeds import cases

from topomend.model.bitmask import mask_of
from topomend.model.machine import Core, HugePages, Machine, NUMANode
from topomend.model.nodes.kubelet import KubeletSettings, MemoryReservation
from topomend.model.nodes.node_state import (
    ContainerAllocation,
    Device,
    DeviceAllocation,
    MemoryBlock,
    NodeState,
    NUMANodeMemory,
    PodAllocation,
    allocations,
)
from topomend.model.pods.pod import Container, ContainerKind, Pod, Resources
from topomend.model.verdict import Verdict
from topomend.replay.admission import admit, allocation_of, may_allocate, release, shared_pool, start_refusal

SECONDS = 10
"""How much of a processor's time an admission may use, however odd: none is without an end."""

# Anything at all

names = st.sampled_from(["a", "b", "c"])
resources = st.sampled_from(["cpu", "memory", "hugepages-2Mi", "hugepages-1Gi", "v.com/gpu", "v.com/nic", "pods"])
quantities = st.one_of(
    st.integers(-3000, 9000), st.sampled_from([0, 1000, 2000, 4000, 1 << 40, 1 << 70, -(1 << 70), 1500])
)
masks = st.one_of(st.integers(0, 15), st.sampled_from([1 << 5, 1 << 63, 1 << 70]))
quantity_maps = st.dictionaries(resources, quantities, max_size=4)
any_resources = st.builds(Resources, quantity_maps, quantity_maps)
any_pods = st.builds(
    Pod,
    st.just("ns"),
    names,
    st.sampled_from(["", "u", "v"]),
    st.lists(st.builds(Container, names, st.sampled_from(ContainerKind), any_resources), max_size=3).map(tuple),
    st.sampled_from(["", "Guaranteed", "Burstable", "Silver"]),
    st.none() | any_resources,
)
numa_ids = st.sampled_from([0, 1, 2, 5, 63, 64, 99])
any_machines = st.builds(
    Machine,
    st.lists(
        st.builds(
            NUMANode,
            numa_ids,
            st.sampled_from([0, 1 << 30, 8 << 30]),
            st.lists(st.builds(HugePages, st.sampled_from([2 << 20, 1 << 30]), st.integers(0, 4)), max_size=2).map(
                tuple
            ),
            st.lists(st.integers(0, 40), max_size=3).map(tuple),
        ),
        max_size=4,
        unique_by=lambda numa_node: numa_node.id,
    ).map(tuple),
    st.lists(
        st.builds(Core, st.integers(0, 255), st.integers(0, 2), numa_ids, st.none() | st.integers(0, 2)), max_size=5
    ).map(tuple),
)
switches = st.sampled_from(["true", "true", "false", "1", "64", "maybe"])
any_settings = st.builds(
    KubeletSettings,
    version=st.sampled_from(["v1.36.3", "v1.30.0", "v1.34.1", "1.99", "", "nonsense"]),
    topology_manager_policy=st.sampled_from(["none", "best-effort", "restricted", "single-numa-node", "x"]),
    topology_manager_scope=st.sampled_from(["container", "pod", "y"]),
    topology_manager_policy_options=st.dictionaries(
        st.sampled_from(
            [
                "prefer-closest-numa-nodes",
                "max-allowable-numa-nodes",
                "prefer-most-allocated-numa-node",
                "numa-allocation-strategy",
                "z",
            ]
        ),
        switches | st.sampled_from(["most-allocated", "least-allocated"]),
        max_size=1,
    ),
    cpu_manager_policy=st.sampled_from(["static", "none", "x"]),
    cpu_manager_policy_options=st.dictionaries(
        st.sampled_from(
            [
                "full-pcpus-only",
                "distribute-cpus-across-numa",
                "align-by-socket",
                "distribute-cpus-across-cores",
                "strict-cpu-reservation",
                "prefer-align-cpus-by-uncorecache",
                "x",
            ]
        ),
        switches,
        max_size=2,
    ),
    memory_manager_policy=st.sampled_from(["None", "Static", "BestEffort"]),
    reserved_cpus=st.none() | st.integers(0, 300) | st.just(1),
    reserved_cpu_millis=st.integers(-1000, 3000),
    reserved_memory=st.lists(
        st.builds(MemoryReservation, numa_ids, resources, st.sampled_from([0, 1 << 20, 9 << 30])), max_size=2
    ).map(tuple),
    feature_gates=st.dictionaries(
        st.sampled_from(
            [
                "PodLevelResourceManagers",
                "PodLevelResources",
                "CPUManagerPolicyAlphaOptions",
                "CPUManagerPolicyBetaOptions",
                "TopologyManagerPolicyAlphaOptions",
            ]
        ),
        st.booleans(),
    ),
)
any_devices = st.lists(
    st.builds(
        Device,
        st.sampled_from(["v.com/gpu", "v.com/nic"]),
        st.sampled_from(["g-1", "g-2", "g-10", ""]),
        st.none() | st.lists(st.sampled_from([-1, 0, 1, 5, 64, 999]), max_size=2).map(tuple),
        st.booleans(),
    ),
    max_size=4,
).map(tuple)
any_blocks = st.lists(st.builds(MemoryBlock, resources, masks, st.integers(0, 1 << 33)), max_size=2).map(tuple)
any_containers = st.builds(
    ContainerAllocation,
    names,
    st.booleans(),
    st.integers(0, 300),
    any_blocks,
    st.lists(
        st.builds(DeviceAllocation, st.sampled_from(["v.com/gpu", "v.com/old"]), st.just(("g-1", "gone"))), max_size=1
    ).map(tuple),
)
any_states = st.builds(
    NodeState,
    st.just("n"),
    any_machines,
    any_settings,
    any_devices,
    st.lists(
        st.builds(
            PodAllocation,
            st.just("ns"),
            names,
            st.sampled_from(["", "u"]),
            st.lists(any_containers, max_size=2).map(tuple),
            st.integers(0, 3),
            any_blocks,
        ),
        max_size=2,
    ).map(tuple),
    st.none() | st.lists(st.builds(NUMANodeMemory, numa_ids, st.integers(0, 2), masks), max_size=2).map(tuple),
    st.none() | st.integers(0, 300),
)


def check_total(state: NodeState, asked: Pod) -> None:
    begin = process_time()
    verdict, after = admit(state, asked)
    assert process_time() - begin < SECONDS
    assert isinstance(verdict, Verdict)
    assert verdict.admitted == (not verdict.reason)
    shared_pool(state)
    admit(release(after, "ns", "a"), asked)


@settings(max_examples=cases(100, 300), deadline=None)
@given(any_states, any_pods)
def test_every_node_and_pod_get_a_verdict(state: NodeState, asked: Pod) -> None:
    check_total(state, asked)


@st.composite
def odd_but_running(draw: st.DrawFn) -> NodeState:
    """A node whose kubelet starts, however odd its machine and whatever its pods are said to hold."""
    state = draw(any_states)
    nodes = state.machine.numa_nodes or (NUMANode(0, 1 << 30),)
    where = st.sampled_from([numa_node.id for numa_node in nodes])
    cores = [
        Core(draw(st.integers(1, 255)), draw(st.integers(0, 1)), draw(where)) for _ in range(draw(st.integers(1, 5)))
    ]
    machine = Machine(tuple(replace(numa_node, distances=(10, 12, 20)) for numa_node in nodes), tuple(cores))
    options = draw(
        st.sets(st.sampled_from(["full-pcpus-only", "distribute-cpus-across-numa", "strict-cpu-reservation"]))
    )
    kubelet = KubeletSettings(
        topology_manager_policy=draw(st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"])),
        topology_manager_scope=draw(st.sampled_from(["container", "pod"])),
        topology_manager_policy_options={"prefer-closest-numa-nodes": draw(st.sampled_from(["true", "false"]))},
        cpu_manager_policy="static",
        cpu_manager_policy_options=dict.fromkeys(options, "true"),
        memory_manager_policy=draw(st.sampled_from(["None", "Static"])),
        reserved_cpus=machine.cpus & -machine.cpus,
        reserved_memory=(MemoryReservation(nodes[0].id, "memory", 1 << 20),),
        feature_gates={"PodLevelResourceManagers": draw(st.booleans())},
    )
    return replace(state, machine=machine, kubelet=kubelet)


@settings(max_examples=cases(200, 600), deadline=None)
@given(odd_but_running(), any_pods)
def test_every_kubelet_that_starts_answers_or_breaks(state: NodeState, asked: Pod) -> None:
    assert start_refusal(state) is None
    check_total(state, asked)


# Nodes that run and pods that mean something

shapes = st.sampled_from(
    [
        "sockets:2 cores:4 threads:2 memory:8Gi device:v.com/gpu@0=2,1=2",
        "sockets:1 numa:2 cores:3 memory:4Gi hugepages-2Mi:512 device:v.com/gpu@1=2",
        "sockets:2 numa:2 cores:2 threads:2 l3:2 memory:4Gi device:v.com/gpu@0=1,3=1",
        "sockets:12 cores:2 memory:2Gi device:v.com/gpu@0=1,3=1",
    ]
)
cpu_options = st.sampled_from(
    ["", "", "full-pcpus-only=true", "distribute-cpus-across-numa=true", "prefer-align-cpus-by-uncorecache=1"]
)
containers = st.builds(
    "{} cpu={} memory={}Mi {}".format,
    st.sampled_from(["", "", "", "init", "sidecar"]),
    st.sampled_from(["1", "2", "3", "4", "6", "500m"]),
    st.sampled_from([64, 1024, 3000, 6000]),
    st.sampled_from(["", "", "v.com/gpu=1", "v.com/gpu=2"]),
)
running = st.builds(
    node_state,
    shapes,
    st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
    scope=st.sampled_from(["container", "pod"]),
    cpu_options=cpu_options,
    memory_manager=st.sampled_from(["None", "Static"]),
    options=st.just("max-allowable-numa-nodes=64"),
)
crowds = st.lists(st.lists(containers, min_size=1, max_size=3), min_size=1, max_size=6)


def crowd(lists: list[list[str]]) -> list[Pod]:
    order = ("init", "sidecar", "")
    return [
        pod(f"p{index}", *sorted(texts, key=lambda text: order.index(text.split(" ")[0])))
        for index, texts in enumerate(lists)
    ]


def check_holders(state: NodeState) -> None:
    """No CPU and no device has two pods, and what the book reserves is what blocks hold."""
    cpus = 0
    devices: set[tuple[str, str]] = set()
    for allocation in state.pods:
        pod_cpus = 0
        for container in allocation.containers:
            pod_cpus |= container.cpus
        assert not pod_cpus & cpus
        cpus |= pod_cpus
        ids = {
            (taken.resource, name)
            for container in allocation.containers
            for taken in container.devices
            for name in taken.ids
        }
        assert not ids & devices
        devices |= ids
    assert not cpus & ~state.machine.cpus
    assert not cpus & mask_of([0])
    assert shared_pool(state) == state.machine.cpus & ~cpus
    reserved = sum(size for page in state.memory or () for size in page.reserved.values())
    assert reserved == sum(block.size for container in allocations(state.pods) for block in container.memory)


@settings(max_examples=cases(80, 250), deadline=None)
@given(running, crowds)
def test_nothing_is_given_twice_and_all_of_it_comes_back(state: NodeState, lists: list[list[str]]) -> None:
    pods = crowd(lists)
    empty = state
    for asked in pods:
        verdict, after = admit(state, asked)
        if not verdict.admitted:
            assert after.pods == state.pods
        check_holders(after)
        state = after
    for asked in reversed(pods):
        state = release(state, asked.namespace, asked.name)
        check_holders(state)
    assert replace(state, memory=None) == replace(empty, memory=None)
    for page in state.memory or ():
        assert (page.assignments, page.cells, dict(page.reserved)) == (0, 1 << page.numa_node, {})


@settings(max_examples=cases(50, 150), deadline=None)
@given(running, crowds)
def test_the_same_question_has_the_same_answer(state: NodeState, lists: list[list[str]]) -> None:
    for asked in crowd(lists):
        first, after = admit(state, asked)
        assert (first, after) == admit(state, asked)
        state = after


@settings(max_examples=cases(100, 300), deadline=None)
@given(any_states | odd_but_running(), any_pods)
def test_a_pod_to_which_nothing_may_be_allocated_leaves_the_node_as_it_is(state: NodeState, asked: Pod) -> None:
    if allocation_of(state, asked.namespace, asked.name, asked.uid) is None and not may_allocate(state, asked):
        assert admit(state, asked)[1] == state
