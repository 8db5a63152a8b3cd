"""What a NodeResourceTopology says of each NUMA node."""

from dataclasses import replace
from random import Random

import pytest
from tests.builders import NAMESPACE, kubelet_settings, node_state, pod, pod_allocation
from tests.seeds import SEED

from topomend.discover.features.zones import placements, zones
from topomend.model.nodes.node_state import (
    ContainerAllocation,
    Device,
    DeviceAllocation,
    MemoryBlock,
    NodeState,
    NUMANodeMemory,
    PodAllocation,
)
from topomend.model.nodes.zone import ZoneResource
from topomend.model.pods.pod import Container, Pod
from topomend.replay.admission import admit, release

GIB = 1 << 30
DEVICES = (
    Device("vendor.com/gpu", "a", (0,)),
    Device("vendor.com/gpu", "b", (0, 1)),
    Device("vendor.com/gpu", "c", (0,), healthy=False),
    Device("vendor.com/nic", "d"),
)


def state(*pods: PodAllocation) -> NodeState:
    shape = "sockets:1 numa:2 cores:4 memory:8Gi hugepages-1Gi:2"
    empty = node_state(shape, memory_manager="Static", reserved_memory="1Gi")
    return replace(empty, devices=DEVICES, pods=pods)


def figures_of(state: NodeState) -> dict[int, dict[str, tuple[int, int, int]]]:
    """By NUMA node and resource: capacity, allocatable, available."""
    return {zone.numa_node: {resource.name: figures(resource) for resource in zone.resources} for zone in zones(state)}


def figures(resource: ZoneResource) -> tuple[int, int, int]:
    return resource.capacity, resource.allocatable, resource.available


def test_everything_that_is_not_reserved_is_available_on_an_idle_node() -> None:
    assert figures_of(state()) == {
        0: {
            "cpu": (4, 3, 3),
            "hugepages-1Gi": (2 * GIB, 2 * GIB, 2 * GIB),
            "memory": (8 * GIB, 5 * GIB, 5 * GIB),
            "vendor.com/gpu": (3, 2, 2),
        },
        1: {
            "cpu": (4, 4, 4),
            "hugepages-1Gi": (2 * GIB, 2 * GIB, 2 * GIB),
            "memory": (8 * GIB, 6 * GIB, 6 * GIB),
            "vendor.com/gpu": (1, 1, 1),
        },
    }


def test_what_a_container_holds_is_not_available() -> None:
    blocks = [MemoryBlock("memory", 0b01, 2 * GIB), MemoryBlock("hugepages-1Gi", 0b10, GIB)]
    running = pod_allocation("p", "1-2,5", memory=blocks, devices=[DeviceAllocation("vendor.com/gpu", ("b",))])
    assert {
        numa_node: {name: available for name, (_, _, available) in resources.items()}
        for numa_node, resources in figures_of(state(running)).items()
    } == {
        0: {"cpu": 1, "hugepages-1Gi": 2 * GIB, "memory": 3 * GIB, "vendor.com/gpu": 1},
        1: {"cpu": 3, "hugepages-1Gi": GIB, "memory": 6 * GIB, "vendor.com/gpu": 0},
    }


def test_the_memory_manager_state_counts_rather_than_the_blocks_of_pods() -> None:
    book = (NUMANodeMemory(0, 1, 0b01, {"memory": 4 * GIB}), NUMANodeMemory(1, 0, 0b10, {}))
    assert figures_of(replace(state(), memory=book))[0]["memory"] == (8 * GIB, 5 * GIB, GIB)


def test_a_resource_that_no_manager_aligns_is_in_no_zone() -> None:
    settings = kubelet_settings(cpu_manager="none")
    assert figures_of(replace(state(), kubelet=settings, devices=())) == {0: {}, 1: {}}


def test_a_numa_node_without_cpus_has_a_zone_with_no_cpus() -> None:
    machine = state().machine
    without_cpus = replace(machine, cores=tuple(core for core in machine.cores if core.numa_node == 0))
    assert figures_of(replace(state(), machine=without_cpus))[1]["cpu"] == (0, 0, 0)


def test_the_costs_of_a_zone_are_the_distances_of_the_machine() -> None:
    assert [dict(zone.distances) for zone in zones(state())] == [{0: 10, 1: 12}, {0: 12, 1: 10}]


def placed(state: NodeState, *containers: ContainerAllocation) -> list[tuple[str, int]] | None:
    """The containers of one pod by name, each with its NUMA node."""
    found = placements(replace(state, pods=(PodAllocation("default", "p", containers=containers),)))
    return None if found is None else [(placement.container, placement.numa_node) for placement in found]


ON_ONE = ContainerAllocation("on-one", cpus=1 << 5, memory=(MemoryBlock("memory", 0b10, 1),))


def test_a_container_is_placed_by_its_cpus_its_memory_or_its_devices() -> None:
    two = node_state("sockets:1 numa:2 cores:4 threads:1 memory:8Gi")
    two = replace(two, devices=(*DEVICES, Device("vendor.com/gpu", "e", (1,))))
    with_device = ContainerAllocation("gpu", devices=(DeviceAllocation("vendor.com/gpu", ("b", "e")),))
    memory_alone = ContainerAllocation("memory", memory=(MemoryBlock("memory", 0b1, 1),))
    shared, ending = ContainerAllocation("shared"), replace(ON_ONE, name="init", init=True)
    found = placed(two, ending, ON_ONE, with_device, memory_alone, shared)
    assert found == [("on-one", 1), ("gpu", 1), ("memory", 0)]


def test_a_node_with_a_container_on_two_numa_nodes_tells_no_placement() -> None:
    two = node_state("sockets:1 numa:2 cores:4 threads:1 memory:8Gi")
    assert placed(two, ON_ONE, ContainerAllocation("wide", cpus=1 << 0 | 1 << 4)) is None
    assert placed(two, ContainerAllocation("apart", cpus=1 << 0, memory=(MemoryBlock("memory", 0b10, 1),))) is None


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
def test_only_the_policy_of_which_schedulers_simulate_evictions_tells_placements(policy: str) -> None:
    assert placed(node_state("sockets:1 numa:2 cores:4 threads:1 memory:8Gi", policy=policy), ON_ONE) is None


GPU = "vendor.com/gpu"
GUARANTEED = ("cpu=1 memory=1Gi", "cpu=2 memory=512Mi", "cpu=3 memory=1Gi", "cpu=500m memory=256Mi")
WITH_DEVICE = (f"cpu=2 memory=1Gi {GPU}=1", f"cpu=500m memory=256Mi {GPU}=1", f"{GPU}=1")
KINDS = (*GUARANTEED, *WITH_DEVICE, "request:cpu=1", "")
"""By the words of their containers: the last two hold nothing exclusively."""


def filled(random: Random) -> tuple[NodeState, dict[str, Pod]]:
    """A node of both static managers, full of random pods, and the pods that it admitted."""
    shape = f"numa:{random.choice((2, 4))} cores:4 threads:2 memory:8Gi device:{GPU}@0=2,1=2"
    scope = random.choice(("container", "pod"))
    node, admitted = node_state(shape, scope=scope, memory_manager="Static", reserved_memory="512Mi"), {}
    for number in range(random.randint(2, 12)):
        asked = pod(f"p{number}", *random.choices(KINDS, k=random.choice((1, 1, 2))))
        verdict, node = admit(node, asked)
        if verdict.admitted:
            admitted[asked.name] = asked
    return node, admitted


def exclusive(pod: Pod, container: Container) -> dict[str, int]:
    """What the plugin counts as exclusive of a container's requests (resourcerequests/exclusive.go:IsExclusive)."""
    is_guaranteed = all({"cpu", "memory"} <= set(each.resources.limits) for each in pod.containers)
    whole = {each: amount // 1000 for each, amount in container.resources.requests.items() if amount % 1000 == 0}
    return {resource: amount for resource, amount in whole.items() if is_guaranteed or resource == GPU}


def test_what_the_containers_of_victims_request_and_where_they_are_tell_the_node_without_them() -> None:
    """So NodeResourceTopologyMatch simulates an eviction (preemption.go, scheduler-plugins 903da7d), by its own code
    with the same amounts on 721 random nodes. It knows the containers by what they request: of Guaranteed pods all, of
    others those with devices that a zone lists; another number of containers and it simulates none."""
    random = Random(SEED)
    for _ in range(60):
        state, pods = filled(random)
        found = {(placement.pod, placement.container): placement.numa_node for placement in placements(state) or ()}
        available = {zone.numa_node: {each.name: each.available for each in zone.resources} for zone in zones(state)}
        victims = random.sample(sorted(pods), random.randint(0, len(pods)))
        for name in victims:
            for container in pods[name].containers:
                given_back = exclusive(pods[name], container)
                assert bool(given_back) == ((name, container.name) in found)
                for resource, amount in given_back.items():
                    available[found[name, container.name]][resource] += amount
            state = release(state, NAMESPACE, name)
        assert available == {
            zone.numa_node: {each.name: each.available for each in zone.resources} for zone in zones(state)
        }
