"""Containers on made-up machines, in numbers that a reader can check by hand.

That a kubelet and Linux place containers so is compared by ``make agent-life`` and ``make vm-test``.
"""

from dataclasses import replace

import pytest
from tests.builders import node_state, pod
from tests.replay.verdicts import admit_all

from topomend.alignment.container import Alignment, Tally, align, largest_distance
from topomend.model.bitmask import mask_of, parse_id_list
from topomend.model.machine import NUMANode
from topomend.model.nodes.node_state import (
    ContainerAllocation,
    Device,
    DeviceAllocation,
    MemoryBlock,
    NodeState,
    PodAllocation,
)

FOUR = "sockets:2 numa:2 cores:4 memory:8Gi device:vendor.com/gpu@0=1,1=1,2=1,3=1"
"""NUMA nodes 0 and 1 in one socket with CPUs 0-3 and 4-7, 2 and 3 in the other. 12 within a socket, 32 across."""

GI = 1 << 30


def container(cpus: str = "", memory: tuple[int, ...] = (), **devices: str) -> ContainerAllocation:
    """``gpu="0 1"`` holds the devices with these ids of vendor.com/gpu."""
    blocks = (MemoryBlock("memory", mask_of(memory), GI),) if memory else ()
    allocations = tuple(DeviceAllocation(f"vendor.com/{name}", tuple(ids.split())) for name, ids in devices.items())
    return ContainerAllocation("c", cpus=parse_id_list(cpus), memory=blocks, devices=allocations)


def judged(state: NodeState, allocation: ContainerAllocation) -> str:
    """The alignment of a container, the NUMA nodes that it uses, and its distance."""
    pod = PodAllocation("ns", "p", containers=(allocation,))
    answer = align(replace(state, pods=(pod,)), pod, "c")
    return f"{answer.alignment.value} {','.join(map(str, ids(answer.numa_nodes)))} {answer.distance}"


def ids(mask: int) -> list[int]:
    return [number for number in range(mask.bit_length()) if mask >> number & 1]


@pytest.mark.parametrize(
    ("allocation", "answer"),
    [
        (container("1-2"), "numa-node 0 10"),
        (container("1-2", (0,)), "numa-node 0 10"),
        (container("1-2", (0,), gpu="gpu-0-0"), "numa-node 0 10"),
        (container("1-2", (0, 1)), "socket 0,1 12"),
        (container("1-2", gpu="gpu-1-0"), "socket 0,1 12"),
        (container("3-4"), "socket 0,1 12"),
        (container("1-2", gpu="gpu-2-0"), "split 0,2 32"),
        (container("1-2", (3,)), "split 0,3 32"),
        (container("1,15"), "split 0,3 32"),
        (container("1-2", gpu="gpu-0-0 gpu-1-0"), "socket 0,1 12"),
        (container("1-2", gpu="gpu-0-0 gpu-3-0"), "split 0,3 32"),
        (container(gpu="gpu-0-0"), "floating 0,1,2,3 32"),
        (container(memory=(1,)), "floating 0,1,2,3 32"),
        (container(), "unpinned  None"),
    ],
)
def test_a_container_is_judged_by_all_that_it_holds(allocation: ContainerAllocation, answer: str) -> None:
    assert judged(node_state(FOUR), allocation) == answer


def test_what_replay_admits_to_one_numa_node_is_aligned_to_it() -> None:
    asked = pod("p", "cpu=2 memory=1Gi vendor.com/gpu=1")
    (verdict,), state = admit_all(node_state(FOUR, memory_manager="Static"), [asked])
    answer = align(state, state.pods[0], "c0")
    assert answer.alignment is Alignment.NUMA_NODE
    assert (answer.numa_nodes, answer.cpus) == (verdict.containers[0].affinity, verdict.containers[0].cpus)


def test_a_pool_that_is_left_on_the_containers_own_numa_node_does_not_float() -> None:
    state = replace(node_state(reserved_cpus="4"), pods=(PodAllocation("ns", "other", containers=(container("0-3"),)),))
    gpu = Device("vendor.com/gpu", "near", (1,))
    shared = PodAllocation("ns", "p", containers=(container(gpu="near"),))
    answer = align(replace(state, devices=(gpu,), pods=(*state.pods, shared)), shared, "c")
    assert (answer.alignment, answer.pool) == (Alignment.NUMA_NODE, parse_id_list("4-7"))


def test_a_device_near_several_numa_nodes_is_used_from_the_containers_own() -> None:
    devices = (Device("vendor.com/nic", "both", (0, 1)), Device("vendor.com/nic", "far", (2, 3)))
    state = replace(node_state(FOUR), devices=devices)
    assert judged(state, container("5", nic="both")) == "numa-node 1 10"
    assert judged(state, container("5", nic="far")) == "split 1,2,3 32"


def test_devices_without_a_numa_node_or_of_one_that_is_not_there_keep_nobody_from_being_aligned() -> None:
    devices = (Device("vendor.com/nic", "nowhere"), Device("vendor.com/nic", "minus", (-1,)))
    state = replace(node_state(FOUR), devices=devices)
    assert judged(state, container("5", nic="nowhere minus gone")) == "numa-node 1 10"


def test_memory_without_cpus_belongs_to_the_socket_next_to_it() -> None:
    """A processor with memory of its own beside the main memory: NUMA node 4 is next to 0, and 5 is next to 2."""
    state = node_state(FOUR)
    rows = {
        0: (10, 12, 32, 32, 13, 33),
        1: (12, 10, 32, 32, 14, 33),
        2: (32, 32, 10, 12, 33, 13),
        3: (32, 32, 12, 10, 33, 14),
        4: (13, 14, 33, 33, 10, 40),
        5: (33, 33, 13, 14, 40, 10),
    }
    nodes = tuple(NUMANode(number, 8 * GI, distances=row) for number, row in rows.items())
    state = replace(state, machine=replace(state.machine, numa_nodes=nodes))
    assert judged(state, container("1", (0, 4))) == "socket 0,4 13"
    assert judged(state, container("5", (4,))) == "socket 1,4 14"
    assert judged(state, container("1", (5,))) == "split 0,5 33"


def test_distances_that_firmware_does_not_tell_are_none() -> None:
    state = node_state(FOUR)
    blind = tuple(replace(numa_node, distances=()) for numa_node in state.machine.numa_nodes)
    machine = replace(state.machine, numa_nodes=blind)
    assert judged(replace(state, machine=machine), container("1-2", gpu="gpu-2-0")) == "split 0,2 None"
    assert largest_distance(machine, 0b01) is None


def test_a_longer_way_back_is_the_distance() -> None:
    state = node_state("sockets:2 cores:4 memory:8Gi")
    there, back = (
        replace(one, distances=row) for one, row in zip(state.machine.numa_nodes, ((10, 20), (31, 10)), strict=False)
    )
    assert largest_distance(replace(state.machine, numa_nodes=(there, back)), 0b11) == 31


def test_a_container_that_shares_the_cpus_of_its_pod_is_where_those_are() -> None:
    own = ContainerAllocation("own", cpus=parse_id_list("1"))
    pod_of_cpus = PodAllocation("ns", "p", containers=(own,), cpus=parse_id_list("1-3"))
    state = replace(node_state(FOUR), pods=(pod_of_cpus,))
    answer = align(state, pod_of_cpus, "beside")
    assert (answer.alignment, answer.cpus) == (Alignment.NUMA_NODE, parse_id_list("2-3"))


def test_a_tally_counts_by_alignment_and_keeps_the_largest_distance() -> None:
    state, tally = node_state(FOUR), Tally()
    for allocation in (container("1-2"), container("1-2", gpu="gpu-2-0"), container("1", (1,)), container()):
        pod_of_one = PodAllocation("ns", "p", containers=(allocation,))
        tally.add(align(state, pod_of_one, "c"))
    assert tally.counts == {
        Alignment.NUMA_NODE: 1,
        Alignment.SPLIT: 1,
        Alignment.SOCKET: 1,
        Alignment.UNPINNED: 1,
    }
    assert tally.distance == 32
