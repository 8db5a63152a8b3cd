"""What a node publishes as allocatable (pkg/kubelet/nodestatus/setters.go:MachineInfo)."""

from dataclasses import replace

from topomend.model.bitmask import parse_id_list
from topomend.model.nodes.kubelet import KubeletSettings, MemoryReservation
from topomend.model.nodes.node_state import NodeState
from topomend.model.shapes.shape import parse_shape
from topomend.replay.lifecycle.node_allocatable import node_allocatable

GIB = 1 << 30


def state(**settings: object) -> NodeState:
    shape = parse_shape("numa:2 cores:4 memory:8Gi hugepages-2Mi:512 device:vendor.com/gpu@0=2")
    kubelet = KubeletSettings(**settings)  # type: ignore[arg-type]
    return NodeState("n", shape.machine(), kubelet, shape.offered_devices())


def test_huge_pages_and_the_eviction_threshold_are_taken_off_memory() -> None:
    amounts = node_allocatable(state())
    assert amounts == {
        "cpu": 8000,
        "memory": (14 * GIB - (100 << 20)) * 1000,
        "hugepages-2Mi": 2 * GIB * 1000,
        "vendor.com/gpu": 2000,
        "pods": 110_000,
    }


def test_reserved_cpus_count_whole_and_amounts_as_they_are() -> None:
    assert node_allocatable(state(reserved_cpus=parse_id_list("0-1")))["cpu"] == 6000
    assert node_allocatable(state(reserved_cpu_millis=1500))["cpu"] == 6500


def test_the_memory_managers_reservations_are_all_that_is_set_aside() -> None:
    reservations = (MemoryReservation(0, "memory", GIB), MemoryReservation(1, "memory", GIB))
    static = state(memory_manager_policy="Static", reserved_memory=reservations)
    assert node_allocatable(static)["memory"] == 12 * GIB * 1000


def test_an_unhealthy_device_is_not_allocatable() -> None:
    healthy = state()
    first, *others = healthy.devices
    ill = replace(healthy, devices=(replace(first, healthy=False), *others))
    assert node_allocatable(ill)["vendor.com/gpu"] == 1000
