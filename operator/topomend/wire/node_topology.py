"""NodeTopology (``topomend.io/v1alpha1``) to and from a NodeState.

Owns the object's layout. What its conditions say is decided where the facts are found; here they are carried. The
object is small: sets of CPUs are cpulist strings, cores are one string each, and what is empty is left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from topomend.model.bitmask import MAX_ID, CPUSet, format_id_list, mask_of, members
from topomend.model.kubelet import DEFAULT_VERSION, KubeletSettings, MemoryReservation
from topomend.model.machine import Core, CoreKind, Hardware, HugePages, Machine, NUMANode, PCIDevice, PCILink
from topomend.model.node_state import (
    ContainerAllocation,
    Device,
    DeviceAllocation,
    MemoryBlock,
    NodeState,
    NUMANodeMemory,
    PodAllocation,
)
from topomend.model.quantity import MAX_INT64, value
from topomend.wire.document import Document, MalformedObject, without_empty
from topomend.wire.group import API_VERSION, NODE_TOPOLOGY

HEARTBEAT = "heartbeatTime"
"""The field of the status that says when the agent last found it true, in UTC as RFC 3339 has it."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One standard condition: ``status`` True, False or Unknown, ``reason`` CamelCase; its times are the writer's."""

    type: str
    status: str
    reason: str
    message: str = ""


@dataclass(frozen=True)
class Summary:
    """The scalars behind the columns of ``kubectl get ntopo``, computed by whoever publishes."""

    cpus_free: str = ""
    memory_free: str = ""
    devices: int = 0
    status: str = ""


def status_of(state: NodeState, summary: Summary, conditions: Sequence[Condition] = ()) -> dict[str, Any]:
    """The ``status`` of the node's NodeTopology; conditions without transition times."""
    kubelet = state.kubelet
    return without_empty(
        {
            "summary": without_empty(
                {
                    "topologyManagerPolicy": kubelet.topology_manager_policy,
                    "topologyManagerScope": kubelet.topology_manager_scope,
                    "kubeletVersion": kubelet.version,
                    "numaNodes": len(state.machine.numa_nodes),
                    "cpusFree": summary.cpus_free,
                    "memoryFree": summary.memory_free,
                    "devices": summary.devices,
                    "status": summary.status,
                }
            ),
            "machine": _machine_fields(state.machine),
            "kubelet": _kubelet_fields(kubelet),
            "devices": _device_fields(state.devices),
            "pods": [_pod_fields(pod) for pod in state.pods],
            "memory": [_book_fields(node) for node in state.memory or ()],
            "cpuPool": None if state.cpu_pool is None else format_id_list(state.cpu_pool),
            "conditions": [
                {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
                for each in conditions
            ],
        }
    )


def node_topology(name: str, status: Mapping[str, Any]) -> dict[str, Any]:
    """A whole NodeTopology object."""
    return {"apiVersion": API_VERSION, "kind": NODE_TOPOLOGY, "metadata": {"name": name}, "status": dict(status)}


def read_machine(content: Any) -> Machine:
    """The machine of a NodeTopology object. Raises MalformedObject."""
    return _read_machine(Document(content)["status"]["machine"])


def read_kubelet(content: Any) -> KubeletSettings:
    """The kubelet's settings of a NodeTopology object. Raises MalformedObject."""
    return _read_kubelet(Document(content)["status"]["kubelet"])


def read_node_topology(
    content: Any, machine: Machine | None = None, kubelet: KubeletSettings | None = None
) -> NodeState:
    """The NodeState of a NodeTopology object. Raises MalformedObject that names the field which is wrong.

    ``machine`` and ``kubelet`` are given where they were read already, of this object or of one that has the same.
    """
    document = Document(content)
    if document["kind"].text() != NODE_TOPOLOGY:
        raise document["kind"].wrong(NODE_TOPOLOGY)
    if document["apiVersion"].text() != API_VERSION:
        raise document["apiVersion"].wrong(API_VERSION)
    status = document["status"]
    books = tuple(_read_book(each) for each in status["memory"])
    return NodeState(
        name=document["metadata"]["name"].text(),
        machine=machine or read_machine(content),
        kubelet=kubelet or read_kubelet(content),
        devices=tuple(device for group in status["devices"] for device in _read_devices(group)),
        pods=tuple(_read_pod(each) for each in status["pods"]),
        memory=books or None,
        cpu_pool=None if status["cpuPool"].absent else status["cpuPool"].id_list(),
    )


def read_conditions(content: Any) -> tuple[Condition, ...]:
    """The conditions of a NodeTopology object. Raises MalformedObject."""
    return tuple(
        Condition(each["type"].text(), each["status"].text(), each["reason"].text(""), each["message"].text(""))
        for each in Document(content)["status"]["conditions"]
    )


def heartbeat_age(content: Mapping[str, Any], now: datetime) -> float | None:
    """For how many seconds the object's agent has confirmed nothing; None where it does not tell, or no time."""
    try:
        return (now - datetime.fromisoformat(content["status"][HEARTBEAT])).total_seconds()
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


# The machine


def _machine_fields(machine: Machine) -> dict[str, Any]:
    return without_empty(
        {
            "numaNodes": [
                without_empty(
                    {
                        "id": node.id,
                        "cpus": format_id_list(machine.cpus_of_numa_node.get(node.id, 0)),
                        "memoryBytes": node.memory,
                        "hugepages": [_hugepage_fields(each) for each in node.hugepages],
                        "distances": list(node.distances),
                        "gpu": node.gpu,
                    }
                )
                for node in machine.numa_nodes
            ],
            "sockets": _groups(machine.cpus_of_socket),
            "l3Caches": _groups(_cpus_of_known_l3_caches(machine)),
            "cores": [format_id_list(core.threads) for core in machine.cores],
            "offlineCPUs": format_id_list(machine.offline),
            "isolatedCPUs": format_id_list(machine.isolated),
            "hardware": _hardware_fields(machine.hardware),
            "pciDevices": [_pci_fields(device) for device in machine.pci_devices],
        }
    )


def _hugepage_fields(pool: HugePages) -> dict[str, Any]:
    fields = {"sizeBytes": pool.size, "count": pool.count}
    return fields if pool.free is None else fields | {"free": pool.free}


def _hardware_fields(hardware: Hardware) -> dict[str, Any]:
    return without_empty(
        {
            "cores": _lists(hardware.cores),
            "sockets": _lists(hardware.sockets),
            "dies": _lists(hardware.dies),
            "clusters": _lists(hardware.clusters),
            "l3Caches": _lists(hardware.l3_caches),
            "coreKinds": [
                without_empty({"cpus": format_id_list(kind.cpus), "name": kind.name, "capacity": kind.capacity})
                for kind in hardware.core_kinds
            ],
            "nohzFullCPUs": format_id_list(hardware.nohz_full),
            "reservedHugepages": [_hugepage_fields(each) for each in hardware.reserved_hugepages],
        }
    )


def _lists(sets: Iterable[CPUSet]) -> list[str]:
    return [format_id_list(cpus) for cpus in sets]


def _groups(sets: Mapping[int, CPUSet]) -> list[dict[str, Any]]:
    return [{"id": each, "cpus": format_id_list(cpus)} for each, cpus in sets.items()]


def _cpus_of_known_l3_caches(machine: Machine) -> dict[int, CPUSet]:
    sets: dict[int, CPUSet] = {}
    for core in machine.cores:
        if core.l3_cache is not None:
            sets[core.l3_cache] = sets.get(core.l3_cache, 0) | core.threads
    return dict(sorted(sets.items()))


def _pci_fields(device: PCIDevice) -> dict[str, Any]:
    link = device.link or PCILink()
    fields = without_empty(
        {
            "address": device.address,
            "class": f"{device.pci_class:06x}",
            "vendorID": f"{device.vendor_id:04x}",
            "deviceID": f"{device.device_id:04x}",
            "vendorName": device.vendor_name,
            "deviceName": device.device_name,
            "driver": device.driver,
            "numaNode": device.numa_node,
            "numaSource": device.numa_source,
            "path": list(device.path),
            "iommuGroup": device.iommu_group,
            "physicalFunction": device.physical_function,
            "virtualFunctions": device.virtual_functions or None,
            "maxVirtualFunctions": device.max_virtual_functions or None,
            "names": list(device.names),
        }
    )
    link_fields = without_empty(
        {
            "speedGTs": _decimal(link.speed),
            "width": link.width,
            "maxSpeedGTs": _decimal(link.max_speed),
            "maxWidth": link.max_width,
        }
    )
    return fields | ({"link": link_fields} if link_fields else {})


def _decimal(number: float | None) -> str | None:
    return None if number is None else f"{number:g}"


def _read_machine(machine: Document) -> Machine:
    nodes = tuple(
        NUMANode(
            id=each["id"].integer(most=MAX_ID - 1),
            memory=each["memoryBytes"].integer(default=0),
            hugepages=tuple(_read_hugepages(pool) for pool in each["hugepages"]),
            distances=tuple(distance.integer(most=255) for distance in each["distances"]),
            gpu=each["gpu"].text(""),
        )
        for each in machine["numaNodes"]
    )
    if not nodes:
        raise machine["numaNodes"].wrong("a list of at least one NUMA node")
    if list({node.id: None for node in nodes}) != sorted(node.id for node in nodes):
        raise machine["numaNodes"].wrong("a list of NUMA nodes with ascending ids, each once,")
    return Machine(
        numa_nodes=nodes,
        cores=_read_cores(machine),
        offline=machine["offlineCPUs"].id_list(),
        isolated=machine["isolatedCPUs"].id_list(),
        pci_devices=tuple(_read_pci(each) for each in machine["pciDevices"]),
        hardware=_read_hardware(machine["hardware"]),
    )


def _read_hugepages(pool: Document) -> HugePages:
    free = None if pool["free"].absent else pool["free"].integer()
    return HugePages(pool["sizeBytes"].integer(least=1), pool["count"].integer(), free)


def _read_hardware(hardware: Document) -> Hardware:
    return Hardware(
        cores=_read_lists(hardware["cores"]),
        sockets=_read_lists(hardware["sockets"]),
        dies=_read_lists(hardware["dies"]),
        clusters=_read_lists(hardware["clusters"]),
        l3_caches=_read_lists(hardware["l3Caches"]),
        core_kinds=tuple(
            CoreKind(
                each["cpus"].id_list(),
                each["name"].text(""),
                None if each["capacity"].absent else each["capacity"].integer(),
            )
            for each in hardware["coreKinds"]
        ),
        nohz_full=hardware["nohzFullCPUs"].id_list(),
        reserved_hugepages=tuple(_read_hugepages(each) for each in hardware["reservedHugepages"]),
    )


def _read_lists(sets: Document) -> tuple[CPUSet, ...]:
    return tuple(each.id_list() for each in sets)


def _read_cores(machine: Document) -> tuple[Core, ...]:
    numa_nodes = _owners(machine["numaNodes"])
    sockets = _owners(machine["sockets"])
    l3_caches = _owners(machine["l3Caches"])
    cores = []
    seen = 0
    for each in machine["cores"]:
        threads = each.id_list()
        if not threads or threads & seen:
            raise each.wrong("a list of CPUs that no other core has")
        seen |= threads
        first, *others = members(threads)
        places = [(numa_nodes.get(cpu), sockets.get(cpu), l3_caches.get(cpu)) for cpu in (first, *others)]
        numa_node, socket, l3_cache = places[0]
        if numa_node is None or socket is None:
            raise each.wrong("CPUs that a NUMA node and a socket have")
        if any(place[:2] != places[0][:2] for place in places):
            raise each.wrong("CPUs of one NUMA node and one socket")
        cores.append(Core(threads, socket, numa_node, l3_cache))
    if seen != mask_of(numa_nodes):
        raise machine["cores"].wrong(f"a list that covers the NUMA nodes' CPUs {format_id_list(mask_of(numa_nodes))}")
    return tuple(cores)


def _owners(groups: Document) -> dict[int, int]:
    """Which group each CPU is in, by the group's id."""
    owners: dict[int, int] = {}
    for group in groups:
        for cpu in members(group["cpus"].id_list()):
            if cpu in owners:
                raise group["cpus"].wrong(f"a list without CPU {cpu}, which another entry has,")
            owners[cpu] = group["id"].integer(least=-1, most=MAX_INT64)
    return owners


def _read_pci(device: Document) -> PCIDevice:
    link = device["link"]
    return PCIDevice(
        address=device["address"].text(),
        pci_class=_hexadecimal(device["class"]),
        vendor_id=_hexadecimal(device["vendorID"]),
        device_id=_hexadecimal(device["deviceID"]),
        vendor_name=device["vendorName"].text(""),
        device_name=device["deviceName"].text(""),
        driver=device["driver"].text(""),
        numa_node=None if device["numaNode"].absent else device["numaNode"].integer(most=MAX_ID - 1),
        numa_source=device["numaSource"].text(""),
        path=tuple(each.text() for each in device["path"]),
        iommu_group=None if device["iommuGroup"].absent else device["iommuGroup"].integer(),
        physical_function=device["physicalFunction"].text(""),
        virtual_functions=device["virtualFunctions"].integer(default=0),
        max_virtual_functions=device["maxVirtualFunctions"].integer(default=0),
        link=None
        if link.absent
        else PCILink(
            speed=_read_decimal(link["speedGTs"]),
            width=None if link["width"].absent else link["width"].integer(),
            max_speed=_read_decimal(link["maxSpeedGTs"]),
            max_width=None if link["maxWidth"].absent else link["maxWidth"].integer(),
        ),
        names=tuple(each.text() for each in device["names"]),
    )


def _hexadecimal(number: Document) -> int:
    try:
        return int(number.text(), 16)
    except ValueError as error:
        raise number.wrong("a hexadecimal number") from error


def _read_decimal(number: Document) -> float | None:
    if number.absent:
        return None
    try:
        return float(number.text())
    except ValueError as error:
        raise number.wrong("a decimal number") from error


# The kubelet


def _kubelet_fields(kubelet: KubeletSettings) -> dict[str, Any]:
    fields = without_empty(
        {
            "version": kubelet.version,
            "topologyManagerPolicy": kubelet.topology_manager_policy,
            "topologyManagerScope": kubelet.topology_manager_scope,
            "topologyManagerPolicyOptions": dict(kubelet.topology_manager_policy_options),
            "cpuManagerPolicy": kubelet.cpu_manager_policy,
            "cpuManagerPolicyOptions": dict(kubelet.cpu_manager_policy_options),
            "memoryManagerPolicy": kubelet.memory_manager_policy,
            "reservedCPUMillis": kubelet.reserved_cpu_millis or None,
            "reservedMemory": _reservation_fields(kubelet.reserved_memory),
            "featureGates": dict(kubelet.feature_gates),
        }
    )
    # Empty means "nothing is reserved"; absent means "the kubelet takes them by its own rule".
    if kubelet.reserved_cpus is not None:
        fields["reservedCPUs"] = format_id_list(kubelet.reserved_cpus)
    return fields


def _reservation_fields(reservations: Iterable[MemoryReservation]) -> list[dict[str, Any]]:
    by_node: dict[int, dict[str, str]] = {}
    for each in reservations:
        by_node.setdefault(each.numa_node, {})[each.resource] = str(each.size)
    return [{"numaNode": node, "limits": limits} for node, limits in sorted(by_node.items())]


def _read_kubelet(kubelet: Document) -> KubeletSettings:
    return KubeletSettings(
        version=kubelet["version"].text(DEFAULT_VERSION),
        topology_manager_policy=kubelet["topologyManagerPolicy"].text("none"),
        topology_manager_scope=kubelet["topologyManagerScope"].text("container"),
        topology_manager_policy_options=_read_options(kubelet["topologyManagerPolicyOptions"]),
        cpu_manager_policy=kubelet["cpuManagerPolicy"].text("none"),
        cpu_manager_policy_options=_read_options(kubelet["cpuManagerPolicyOptions"]),
        memory_manager_policy=kubelet["memoryManagerPolicy"].text("None"),
        reserved_cpus=None if kubelet["reservedCPUs"].absent else kubelet["reservedCPUs"].id_list(),
        reserved_cpu_millis=kubelet["reservedCPUMillis"].integer(default=0),
        reserved_memory=tuple(
            MemoryReservation(each["numaNode"].integer(most=MAX_ID - 1), resource, value(quantity.quantity()))
            for each in kubelet["reservedMemory"]
            for resource, quantity in each["limits"].fields()
        ),
        feature_gates={name: gate.boolean() for name, gate in kubelet["featureGates"].fields()},
    )


def _read_options(options: Document) -> dict[str, str]:
    return {name: option.text() for name, option in options.fields()}


# Devices and allocations


def _device_fields(devices: Iterable[Device]) -> list[dict[str, Any]]:
    """Devices grouped by resource, then by equal topology and health, ids together: small, and order kept."""
    resources: dict[str, dict[tuple[tuple[int, ...] | None, bool], list[str]]] = {}
    for device in devices:
        kinds = resources.setdefault(device.resource, {})
        kinds.setdefault((device.numa_nodes, device.healthy), []).append(device.id)
    return [
        {
            "resource": resource,
            "groups": [_device_group(numa_nodes, healthy, ids) for (numa_nodes, healthy), ids in kinds.items()],
        }
        for resource, kinds in resources.items()
    ]


def _device_group(numa_nodes: tuple[int, ...] | None, healthy: bool, ids: list[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {"ids": ids}
    if numa_nodes is not None:
        fields["numaNodes"] = list(numa_nodes)
    if not healthy:
        fields["healthy"] = False
    return fields


def _read_devices(resource: Document) -> Iterable[Device]:
    for group in resource["groups"]:
        numa_nodes = group["numaNodes"]
        places = None if numa_nodes.absent else tuple(each.integer(least=-1, most=MAX_INT64) for each in numa_nodes)
        for device in group["ids"]:
            yield Device(resource["resource"].text(), device.text(), places, group["healthy"].boolean(default=True))


def _pod_fields(pod: PodAllocation) -> dict[str, Any]:
    return without_empty(
        {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "cpus": format_id_list(pod.cpus),
            "memory": _block_fields(pod.memory),
            "containers": [_container_fields(each) for each in pod.containers],
        }
    )


def _container_fields(container: ContainerAllocation) -> dict[str, Any]:
    return without_empty(
        {
            "name": container.name,
            "init": True if container.init else None,
            "cpus": format_id_list(container.cpus),
            "memory": _block_fields(container.memory),
            "devices": [{"resource": each.resource, "ids": list(each.ids)} for each in container.devices],
        }
    )


def _block_fields(blocks: Iterable[MemoryBlock]) -> list[dict[str, Any]]:
    return [
        {"resource": block.resource, "numaNodes": list(members(block.numa_nodes)), "bytes": block.size}
        for block in blocks
    ]


def _read_blocks(blocks: Document) -> tuple[MemoryBlock, ...]:
    return tuple(
        MemoryBlock(block["resource"].text(), _read_mask(block["numaNodes"]), block["bytes"].integer())
        for block in blocks
    )


def _read_pod(pod: Document) -> PodAllocation:
    return PodAllocation(
        namespace=pod["namespace"].text("default"),
        name=pod["name"].text(),
        uid=pod["uid"].text(""),
        cpus=pod["cpus"].id_list(),
        memory=_read_blocks(pod["memory"]),
        containers=tuple(
            ContainerAllocation(
                name=each["name"].text(),
                init=each["init"].boolean(default=False),
                cpus=each["cpus"].id_list(),
                memory=_read_blocks(each["memory"]),
                devices=tuple(
                    DeviceAllocation(held["resource"].text(), tuple(device.text() for device in held["ids"]))
                    for held in each["devices"]
                ),
            )
            for each in pod["containers"]
        ),
    )


def _book_fields(node: NUMANodeMemory) -> dict[str, Any]:
    return {
        "numaNode": node.numa_node,
        "assignments": node.assignments,
        "cells": list(members(node.cells)),
        "reserved": [{"resource": resource, "bytes": size} for resource, size in node.reserved.items()],
    }


def _read_book(node: Document) -> NUMANodeMemory:
    return NUMANodeMemory(
        numa_node=node["numaNode"].integer(most=MAX_ID - 1),
        assignments=node["assignments"].integer(),
        cells=_read_mask(node["cells"]),
        reserved={each["resource"].text(): each["bytes"].integer() for each in node["reserved"]},
    )


def _read_mask(ids: Document) -> int:
    return mask_of(each.integer(most=MAX_ID - 1) for each in ids)


__all__ = [
    "HEARTBEAT",
    "Condition",
    "MalformedObject",
    "Summary",
    "heartbeat_age",
    "node_topology",
    "read_conditions",
    "read_kubelet",
    "read_machine",
    "read_node_topology",
    "status_of",
]
