"""Remarks on a kubelet without starting its managers: the same as those of the managers that have started."""

from dataclasses import replace
from itertools import product

import pytest

from topomend.model.machine import Core, HugePages, Machine, NUMANode
from topomend.model.nodes.kubelet import KubeletSettings, MemoryReservation
from topomend.replay.container_manager import start
from topomend.replay.gates import read_gates
from topomend.replay.remarks import unmodelled

GIB = 1 << 30
VERSIONS = ("v1.29.0", "v1.31.0", "v1.37.0", "v1.99.0")
OPTIONS: tuple[dict[str, str], ...] = ({}, {"prefer-closest-numa-nodes": "true"}, {"no-option": "true"})
RESERVED = (
    (),
    (MemoryReservation(0, "memory", GIB),),
    (MemoryReservation(0, "memory", 1 << 60),),
    (MemoryReservation(0, "memory", GIB), MemoryReservation(0, "hugepages-2Mi", 1 << 60)),
    (MemoryReservation(7, "memory", GIB),),
)


def machine(*ids: int) -> Machine:
    """NUMA nodes with these ids, each of one CPU and 2 GiB."""
    return Machine(
        tuple(NUMANode(numa_id, 2 * GIB, distances=(10, 20)) for numa_id in ids),
        tuple(Core(1 << place, 0, numa_id) for place, numa_id in enumerate(ids)),
    )


def crowded(machine: Machine) -> Machine:
    """The machine with huge pages that take more than its memory."""
    nodes = (replace(node, hugepages=(HugePages(2 << 20, 1 << 40),)) for node in machine.numa_nodes)
    return replace(machine, numa_nodes=tuple(nodes))


@pytest.mark.parametrize(
    "made", [machine(0, 1), machine(0, 2), crowded(machine(0, 1))], ids=["plain", "gaps", "crowded"]
)
def test_remarks_are_those_of_the_started_managers(made: Machine) -> None:
    told = set[tuple[str, ...]]()
    policies = product(("none", "restricted", "single-numa-node"), ("none", "static"), ("None", "Static"))
    for (topology, cpu, memory), version, options, reserved in product(list(policies), VERSIONS, OPTIONS, RESERVED):
        settings = KubeletSettings(
            version=version,
            topology_manager_policy=topology,
            topology_manager_policy_options=options,
            cpu_manager_policy=cpu,
            memory_manager_policy=memory,
            reserved_memory=reserved,
            reserved_cpus=1,
        )
        started = start(made, settings)
        expected = read_gates(settings).unmodelled if isinstance(started, str) else started.unmodelled
        assert unmodelled(made, settings) == expected, settings
        told.add(expected)
    assert len(told) > 3
