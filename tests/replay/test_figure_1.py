"""The example of the blog post "Kubernetes Topology Manager Moves to Beta" (Figure 1), from hints to allocations.

Two sockets, each a NUMA node with four CPUs, a GPU and a NIC. A container asks for two CPUs, a GPU and a NIC. The
figure leaves out the CPU that the static policy has to reserve: here it is CPU 8, on NUMA node 0.
"""

from itertools import combinations

import pytest
from tests.builders import pod

from topomend.model.bitmask import mask_of
from topomend.model.machine import Core, Machine, NUMANode
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node_state import ContainerAllocation, Device, NodeState, PodAllocation
from topomend.model.verdict import ContainerPlacement, Verdict
from topomend.replay.admission import admit

GPU, NIC = "gpu-vendor.com/gpu", "nic-vendor.com/nic"

CONTAINER = f"cpu=2 memory=200Mi {GPU}=1 {NIC}=1"

CPUS = {0: (0, 1, 2, 3), 1: (4, 5, 6, 7)}

RESERVED = 8

EVERY_CPU = mask_of(range(9))

FIGURE_1 = NodeState(
    "figure-1",
    Machine(
        (NUMANode(0, 8 << 30, distances=(10, 20)), NUMANode(1, 8 << 30, distances=(20, 10))),
        (*(Core(1 << cpu, node, node) for node, cpus in CPUS.items() for cpu in cpus), Core(1 << RESERVED, 0, 0)),
    ),
    KubeletSettings(
        topology_manager_policy="single-numa-node", cpu_manager_policy="static", reserved_cpus=1 << RESERVED
    ),
    tuple(Device(resource, f"{resource}-{node}", (node,)) for resource in (GPU, NIC) for node in CPUS),
)

Hints = list[tuple[str, bool]]
"""Hints as the blog writes them: the NUMA nodes as bits, and whether the hint is preferred."""


def hints(verdict: Verdict, container: str) -> dict[str, Hints]:
    merge = next(merge for merge in verdict.merges if merge.container == container)
    return {
        resource.resource: [(f"{mask:02b}", preferred) for mask, preferred in resource.fits]
        for resource in merge.resources
    }


def allocation(placed: ContainerPlacement) -> tuple[int, dict[str, tuple[int, int]]]:
    return placed.cpus, {device.resource: (device.count, device.numa_nodes) for device in placed.devices}


def aligned(node: int, *cpus: int) -> tuple[int, dict[str, tuple[int, int]]]:
    return mask_of(cpus), {GPU: (1, 1 << node), NIC: (1, 1 << node)}


def test_two_containers_get_the_hints_and_the_allocations_of_the_blog() -> None:
    """The blog leaves the hint ``{11: False}`` of the devices out, which the kubelet lists like that of the CPUs."""
    verdict, _ = admit(FIGURE_1, pod("p", CONTAINER, CONTAINER))
    anywhere, second_node = [("01", True), ("10", True), ("11", False)], [("10", True), ("11", False)]
    assert hints(verdict, "c0") == {GPU: anywhere, NIC: anywhere, "cpu": anywhere}
    assert hints(verdict, "c1") == {GPU: second_node, NIC: second_node, "cpu": anywhere}
    assert [allocation(placed) for placed in verdict.containers] == [aligned(0, 0, 1), aligned(1, 4, 5)]
    assert [(placed.affinity, placed.preferred) for placed in verdict.containers] == [(0b01, True), (0b10, True)]


@pytest.mark.parametrize(
    ("node", "pair"), [(node, pair) for node, cpus in CPUS.items() for pair in combinations(cpus, 2)], ids=str
)
def test_each_of_the_twelve_aligned_allocations_is_the_answer_where_its_cpus_alone_are_free(
    node: int, pair: tuple[int, int]
) -> None:
    taken = EVERY_CPU & ~mask_of((*pair, RESERVED))
    others = PodAllocation("ns", "others", containers=(ContainerAllocation("c", cpus=taken),))
    verdict, _ = admit(
        NodeState("n", FIGURE_1.machine, FIGURE_1.kubelet, FIGURE_1.devices, (others,)), pod("p", CONTAINER)
    )
    assert allocation(verdict.containers[0]) == aligned(node, *pair)


def test_cpus_of_both_numa_nodes_are_no_aligned_allocation() -> None:
    taken = EVERY_CPU & ~mask_of((3, 4, RESERVED))
    others = PodAllocation("ns", "others", containers=(ContainerAllocation("c", cpus=taken),))
    verdict, _ = admit(
        NodeState("n", FIGURE_1.machine, FIGURE_1.kubelet, FIGURE_1.devices, (others,)), pod("p", CONTAINER)
    )
    assert (verdict.admitted, verdict.reason) == (False, "TopologyAffinityError")
