from dataclasses import replace

from topomend.model.bitmask import mask_of
from topomend.model.kubelet import KubeletSettings, MemoryReservation
from topomend.model.node_state import (
    ContainerAllocation,
    Device,
    DeviceAllocation,
    MemoryBlock,
    NodeState,
    NUMANodeMemory,
    PodAllocation,
)
from topomend.model.shape import parse_shape
from topomend.publish.zones import zones
from topomend.wire.node_resource_topology import ZoneResource

GIB = 1 << 30
MACHINE = parse_shape("sockets:1 numa:2 cores:4 memory:8Gi hugepages-1Gi:2").machine()
SETTINGS = KubeletSettings(
    topology_manager_policy="single-numa-node",
    cpu_manager_policy="static",
    memory_manager_policy="Static",
    reserved_cpus=mask_of([0]),
    reserved_memory=(MemoryReservation(0, "memory", GIB),),
)
DEVICES = (
    Device("vendor.com/gpu", "a", (0,)),
    Device("vendor.com/gpu", "b", (0, 1)),
    Device("vendor.com/gpu", "c", (0,), healthy=False),
    Device("vendor.com/nic", "d"),
)


def state(*pods: PodAllocation) -> NodeState:
    return NodeState("n1", MACHINE, SETTINGS, DEVICES, pods)


def found(state: NodeState) -> dict[int, dict[str, tuple[int, int, int]]]:
    return {zone.numa_node: {each.name: figures(each) for each in zone.resources} for zone in zones(state)}


def figures(resource: ZoneResource) -> tuple[int, int, int]:
    return resource.capacity, resource.allocatable, resource.available


def pod(**holds: object) -> PodAllocation:
    return PodAllocation("default", "p", containers=(replace(ContainerAllocation("c"), **holds),))  # type: ignore[arg-type]  # by name


def test_an_idle_node_has_all_available_that_is_not_reserved() -> None:
    assert found(state()) == {
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
    held = found(
        state(
            pod(
                cpus=mask_of([1, 2, 5]),
                memory=(MemoryBlock("memory", mask_of([0]), 2 * GIB), MemoryBlock("hugepages-1Gi", mask_of([1]), GIB)),
                devices=(DeviceAllocation("vendor.com/gpu", ("b",)),),
            )
        )
    )
    assert {number: {name: each[2] for name, each in zone.items()} for number, zone in held.items()} == {
        0: {"cpu": 1, "hugepages-1Gi": 2 * GIB, "memory": 3 * GIB, "vendor.com/gpu": 1},
        1: {"cpu": 3, "hugepages-1Gi": GIB, "memory": 6 * GIB, "vendor.com/gpu": 0},
    }


def test_the_kubelets_own_book_comes_before_the_blocks() -> None:
    book = (NUMANodeMemory(0, 1, mask_of([0]), {"memory": 4 * GIB}), NUMANodeMemory(1, 0, mask_of([1]), {}))
    assert found(replace(state(), memory=book))[0]["memory"] == (8 * GIB, 5 * GIB, GIB)


def test_what_no_manager_aligns_stands_in_no_zone() -> None:
    settings = KubeletSettings(topology_manager_policy="single-numa-node")
    assert found(replace(state(), kubelet=settings, devices=())) == {0: {}, 1: {}}


def test_a_node_without_cpus_has_a_zone_with_none() -> None:
    machine = parse_shape("sockets:1 numa:2 cores:4 memory:8Gi").machine()
    bare = replace(machine, cores=tuple(core for core in machine.cores if core.numa_node == 0))
    assert found(NodeState("n1", bare, SETTINGS))[1]["cpu"] == (0, 0, 0)


def test_distances_are_those_of_the_machine() -> None:
    assert [dict(zone.distances) for zone in zones(state())] == [{0: 10, 1: 12}, {0: 12, 1: 10}]
