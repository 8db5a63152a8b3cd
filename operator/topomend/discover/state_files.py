"""The kubelet's state files: what its managers keep by pod uid, init containers and the memory book included.

Owns ``cpu_manager_state``, ``memory_manager_state``, ``kubelet_internal_checkpoint`` and ``allocated_pods_state``.
Entries of pods that have ended stay in them until the kubelet's next look; telling those apart is done next door,
where the list of active pods is known. Checksums are the kubelet's own affair: the files are replaced whole, so a torn
one shows as bad JSON.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from topomend.discover.host_files import Absent, Unreadable, read_bytes
from topomend.model.bitmask import MAX_ID, CPUSet, mask_of
from topomend.model.node_state import ContainerAllocation, DeviceAllocation, MemoryBlock, NUMANodeMemory
from topomend.replay.devices.manager import natural_key
from topomend.wire.document import Document, MalformedObject

MAX_BYTES = 16 << 20
CPU_STATE, MEMORY_STATE = "cpu_manager_state", "memory_manager_state"
DEVICE_STATE = "device-plugins/kubelet_internal_checkpoint"
ADMITTED_STATE = "allocated_pods_state"
FILES = (CPU_STATE, MEMORY_STATE, DEVICE_STATE, ADMITTED_STATE)
POD_FOLDERS = "pods"


@dataclass(frozen=True)
class PodHoldings:
    """What one pod holds: its containers by name, and as a whole where the managers act on pod-level resources.

    Which containers are init containers the files do not say.
    """

    containers: Mapping[str, ContainerAllocation] = field(default_factory=dict)
    cpus: CPUSet = 0
    memory: tuple[MemoryBlock, ...] = ()


class StateUnreadable(Exception):
    """A state file that is there and cannot be read."""


@dataclass(frozen=True)
class KubeletState:
    """``pods`` by uid. ``memory`` is the Memory Manager's book, ``memory_totals`` its total bytes by node and resource.

    ``admitted`` names the containers of each pod that passed admission and is not yet forgotten, by uid; some versions
    leave init containers out (allocation/allocation_manager.go:allocationFromPod). None where there is no such file.
    ``policies`` are the managers' own words for what they run, by file; a manager without a file is not in it.
    ``cpu_pool`` is the CPU Manager's shared pool, None where it keeps none. ``with_folder`` are the pods that have a
    folder in the kubelet's root directory, which goes soon after the pod; None where none can be seen.
    """

    pods: Mapping[str, PodHoldings] = field(default_factory=dict)
    memory: tuple[NUMANodeMemory, ...] | None = None
    memory_totals: Mapping[tuple[int, str], int] = field(default_factory=dict)
    admitted: Mapping[str, frozenset[str]] | None = None
    policies: Mapping[str, str] = field(default_factory=dict)
    cpu_pool: CPUSet | None = None
    with_folder: frozenset[str] | None = None


def read_state(folder: Path) -> KubeletState:
    """Read all files in the kubelet's root directory. A file that is not there is empty. Raises StateUnreadable."""
    cpu, memory, devices, admitted = (_load(folder / name) for name in FILES)
    try:
        return replace(_read(cpu, memory, devices, admitted), with_folder=_with_folder(folder))
    except MalformedObject as error:
        raise StateUnreadable(str(error)) from error


def fingerprint(folder: Path) -> tuple[object, ...]:
    """Changes whenever a file does: the kubelet replaces files by renaming, so each version has its own inode."""
    marks: list[object] = []
    for name in (*FILES, POD_FOLDERS):
        try:
            status = (folder / name).stat()
        except OSError:
            marks.append(None)
        else:
            marks.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(marks)


def _with_folder(folder: Path) -> frozenset[str] | None:
    """Names alone are read, never what is in them. An empty folder is one that is covered for the agent."""
    try:
        return frozenset(each.name for each in (folder / POD_FOLDERS).iterdir()) or None
    except OSError:
        return None


def _load(path: Path) -> Document:
    try:
        return Document(json.loads(read_bytes(path, MAX_BYTES)), str(path))
    except Absent:
        return Document(None, str(path))
    except Unreadable as error:
        raise StateUnreadable(f"{path} {error}") from error
    except (ValueError, RecursionError) as error:
        raise StateUnreadable(f"{path} is not JSON: {str(error)[:160]}") from error


def _read(cpu: Document, memory: Document, devices: Document, admitted: Document) -> KubeletState:
    pods: dict[str, dict[str, dict[str, Any]]] = {}

    def held(uid: str, container: str) -> dict[str, Any]:
        return pods.setdefault(uid, {}).setdefault(container, {})

    for uid, containers in cpu["entries"].fields():
        for name, cpus in containers.fields():
            held(uid, name)["cpus"] = cpus.id_list()
    for uid, containers in memory["entries"].fields():
        for name, blocks in containers.fields():
            held(uid, name)["memory"] = _blocks(blocks)
    for (uid, name), allocations in _devices(devices["Data"]["PodDeviceEntries"]).items():
        held(uid, name)["devices"] = allocations
    return KubeletState(
        pods={
            uid: PodHoldings(
                {name: ContainerAllocation(name, **each) for name, each in pods.get(uid, {}).items()},
                cpu["podEntries"][uid]["cpuSet"].id_list(),
                _blocks(memory["podEntries"][uid]["memoryBlocks"]),
            )
            for uid in dict.fromkeys([*pods, *_keys(cpu["podEntries"]), *_keys(memory["podEntries"])])
        },
        memory=_book(memory["machineState"]),
        memory_totals={
            (_numa_node(node, key), resource): table["total"].integer()
            for key, node in memory["machineState"].fields()
            for resource, table in node["memoryMap"].fields()
        },
        admitted=_admitted(admitted),
        cpu_pool=cpu["defaultCpuSet"].id_list() or None,
        policies={
            name: document["policyName"].text()
            for name, document in ((CPU_STATE, cpu), (MEMORY_STATE, memory))
            if not document.absent
        },
    )


def _keys(document: Document) -> list[str]:
    return [key for key, _ in document.fields()]


def _blocks(blocks: Document) -> tuple[MemoryBlock, ...]:
    found = (
        MemoryBlock(
            each["type"].text(),
            mask_of(node.integer(most=MAX_ID - 1) for node in each["numaAffinity"]),
            each["size"].integer(),
        )
        for each in blocks
    )
    return tuple(sorted(found, key=lambda block: (block.resource, block.numa_nodes, block.size)))


def _devices(entries: Document) -> dict[tuple[str, str], tuple[DeviceAllocation, ...]]:
    """Devices by pod uid and container; one on several NUMA nodes stands under each (DevicesPerNUMA)."""
    ids: dict[tuple[str, str], dict[str, set[str]]] = {}
    for entry in entries:
        resources = ids.setdefault((entry["PodUID"].text(), entry["ContainerName"].text()), {})
        held = resources.setdefault(entry["ResourceName"].text(), set())
        for _, devices in entry["DeviceIDs"].fields():
            held.update(device.text() for device in devices)
    return {
        owner: tuple(
            DeviceAllocation(resource, tuple(sorted(held, key=natural_key)))
            for resource, held in sorted(by_name.items())
        )
        for owner, by_name in ids.items()
    }


def _admitted(document: Document) -> dict[str, frozenset[str]] | None:
    """The file holds a JSON text within its JSON (allocation/state/checkpoint.go)."""
    if document.absent:
        return None
    try:
        data = Document(json.loads(document["data"].text()), document["data"].path)
    except (ValueError, RecursionError) as error:
        raise document["data"].wrong("JSON in a text") from error
    return {
        uid: frozenset(name for name, _ in pod["ContainerResources"].fields()) for uid, pod in data["entries"].fields()
    }


def _book(machine_state: Document) -> tuple[NUMANodeMemory, ...] | None:
    """The Memory Manager's book; None where it keeps none. The map's keys are NUMA node ids as text."""
    nodes = [
        NUMANodeMemory(
            _numa_node(node, key),
            node["numberOfAssignments"].integer(),
            mask_of(cell.integer(most=MAX_ID - 1) for cell in node["cells"]),
            _reserved(node["memoryMap"]),
        )
        for key, node in machine_state.fields()
    ]
    return tuple(sorted(nodes, key=lambda node: node.numa_node)) or None


def _reserved(tables: Document) -> dict[str, int]:
    amounts = {resource: table["reserved"].integer() for resource, table in tables.fields()}
    return {resource: size for resource, size in sorted(amounts.items()) if size}


def _numa_node(node: Document, key: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) <= 5 and int(key) < MAX_ID):
        raise node.wrong("a NUMA node by its id")
    return int(key)
