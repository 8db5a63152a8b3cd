import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from topomend.model.bitmask import mask_of
from topomend.model.condition import Condition, Summary
from topomend.model.machine import Core, HugePages, Machine, NUMANode, PCIDevice, PCILink
from topomend.model.nodes.kubelet import KubeletSettings, MemoryReservation
from topomend.model.nodes.node_state import (
    ContainerAllocation,
    Device,
    DeviceAllocation,
    MemoryBlock,
    NodeState,
    NUMANodeMemory,
    PodAllocation,
)
from topomend.wire.document import MalformedObject
from topomend.wire.published.node_topology import node_topology, read_conditions, read_node_topology, status_of

ODD_MACHINE = Machine(
    numa_nodes=(
        NUMANode(0, 16 << 30, (HugePages(2 << 20, 8), HugePages(1 << 30, 0)), (10, 21, 17)),
        NUMANode(3, 0, (), (21, 10, 28)),
        NUMANode(8, 4 << 30),
    ),
    cores=(
        Core(mask_of([0, 4]), socket=0, numa_node=0, l3_cache=0),
        Core(mask_of([1]), socket=0, numa_node=0),
        Core(mask_of([2, 6]), socket=7, numa_node=3, l3_cache=2),
    ),
    offline=mask_of([5, 9]),
    isolated=mask_of([6]),
    pci_devices=(
        PCIDevice(
            "0000:3b:00.0", 0x020000, 0x15B3, 0x1017, "Mellanox", "ConnectX-5", "mlx5_core", 3, "numa_node",
            ("pci0000:3a", "0000:3a:00.0"), 12, "", PCILink(8.0, 16, 16.0, 16), ("eth0", "mlx5_0"),
        ),
        PCIDevice("0000:3b:00.1", 0x020000, 0x15B3, 0x1018, physical_function="0000:3b:00.0"),
    ),
)  # fmt: skip

EVERYTHING = NodeState(
    name="odd",
    machine=ODD_MACHINE,
    kubelet=KubeletSettings(
        version="v1.34.1",
        topology_manager_policy="restricted",
        topology_manager_scope="pod",
        topology_manager_policy_options={"prefer-closest-numa-nodes": "true"},
        cpu_manager_policy="static",
        cpu_manager_policy_options={"full-pcpus-only": "true"},
        memory_manager_policy="Static",
        reserved_cpus=0,
        reserved_cpu_millis=500,
        reserved_memory=(MemoryReservation(0, "memory", 100 << 20), MemoryReservation(8, "memory", 1 << 30)),
        feature_gates={"CPUManagerPolicyAlphaOptions": True},
    ),
    devices=(
        Device("vendor.com/gpu", "gpu-0", (0,)),
        Device("vendor.com/gpu", "gpu-1", (0, 3), healthy=False),
        Device("vendor.com/gpu", "gpu-2", (-1,)),
        Device("vendor.com/nic", "nic-0"),
    ),
    pods=(
        PodAllocation(
            "train",
            "p",
            "0f3a",
            (
                ContainerAllocation("setup", init=True, cpus=mask_of([0])),
                ContainerAllocation(
                    "main",
                    cpus=mask_of([0, 4]),
                    memory=(MemoryBlock("memory", mask_of([0, 8]), 1 << 30),),
                    devices=(DeviceAllocation("vendor.com/gpu", ("gpu-0",)),),
                ),
            ),
            cpus=mask_of([0, 4]),
            memory=(MemoryBlock("memory", mask_of([0]), 2 << 30),),
        ),
    ),
    cpu_pool=mask_of([1, 2, 6]),
    memory=(NUMANodeMemory(0, 1, mask_of([0, 8]), {"memory": 1 << 30}), NUMANodeMemory(3, 0, mask_of([3]))),
)


def published(state: NodeState = EVERYTHING) -> Any:
    return json.loads(json.dumps(node_topology(state.name, status_of(state, Summary("2,1", "1,0,4", 3, "fine")))))


def test_a_node_survives_being_published_and_read() -> None:
    assert read_node_topology(published()) == EVERYTHING


def test_a_machine_without_anything_else_survives_too() -> None:
    bare = NodeState("bare", Machine((NUMANode(0, 1),), (Core(1, 0, 0),)))
    assert read_node_topology(published(bare)) == bare


def test_no_reserved_cpus_is_distinguished_from_reserved_cpus_not_known() -> None:
    assert published()["status"]["kubelet"]["reservedCPUs"] == ""
    unknown = NodeState("bare", ODD_MACHINE, KubeletSettings(reserved_cpus=None))
    assert "reservedCPUs" not in published(unknown)["status"]["kubelet"]


def test_conditions_are_carried() -> None:
    conditions = (Condition("Ready", "False", "NoKubelet", "no pod-resources socket at /x"),)
    status = status_of(EVERYTHING, Summary(), conditions)
    assert read_conditions(node_topology("odd", status)) == conditions


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        (["kind"], "Node", "kind: 'Node' where NodeTopology belongs"),
        (["apiVersion"], "topomend.io/v9", "apiVersion"),
        (["status", "machine"], {}, "at least one NUMA node"),
        (["status", "machine", "numaNodes", 0, "cpus"], "0-x", r"numaNodes\[0\]\.cpus: '0-x'"),
        (["status", "machine", "numaNodes", 0, "id"], 9, "ascending"),
        (["status", "machine", "numaNodes", 0, "id"], -1, "from 0 to"),
        (["status", "machine", "numaNodes", 0, "memoryBytes"], "16Gi", "whole number"),
        (["status", "machine", "sockets"], [], "a NUMA node and a socket have"),
        (["status", "machine", "cores"], ["0,4"], "covers the NUMA nodes' CPUs 0-2,4,6"),
        (["status", "machine", "cores", 1], "4", "no other core has"),
        (["status", "machine", "cores", 1], "1-2", "of one NUMA node"),
        (["status", "machine", "sockets", 1, "cpus"], "0-1,2,6", "which another entry has"),
        (["status", "machine", "pciDevices", 0, "class"], "zz", "hexadecimal"),
        (["status", "machine", "pciDevices", 0, "link", "speedGTs"], "fast", "decimal"),
        (["status", "kubelet", "featureGates"], ["x"], "an object"),
        (["status", "kubelet", "reservedMemory", 0, "limits", "memory"], "lots", "not a quantity"),
        (["status", "pods", 0, "containers", 0, "cpus"], 3, "a string"),
        (["status", "memory", 0, "cells"], [1 << 40], "whole number"),
        (["status"], "gone", "an object"),
    ],
)
def test_a_malformed_node_topology_is_refused_with_the_path_of_what_is_wrong(
    path: list[Any], content: Any, words: str
) -> None:
    document = copy.deepcopy(published())
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = content
    with pytest.raises(MalformedObject, match=words):
        read_node_topology(document)


@pytest.mark.parametrize(
    "mangle", [str, lambda field: [field], lambda field: {"x": field}, lambda _: -1, lambda _: 2**70]
)
def test_whatever_a_field_holds_the_answer_is_a_node_or_one_clear_error(mangle: Callable[[Any], Any]) -> None:
    for path in list(_paths(published())):
        document = published()
        place = document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = mangle(place[path[-1]])
        try:
            read_node_topology(document)
        except MalformedObject as error:
            assert len(str(error)) < 300  # noqa: PT017 - either outcome is right; an error must be short


def _paths(content: Any, path: tuple[Any, ...] = ()) -> Any:
    if path:
        yield path
    if isinstance(content, dict):
        for key, inner in content.items():
            yield from _paths(inner, (*path, key))
    if isinstance(content, list):
        for index, inner in enumerate(content):
            yield from _paths(inner, (*path, index))
