"""The kubelet's state files: allocations by pod uid, with init containers, and the Memory Manager's state.

Owns ``cpu_manager_state``, ``memory_manager_state``, ``kubelet_internal_checkpoint`` and ``allocated_pods_state``.
Entries of ended pods stay in them until the kubelet purges them; ``allocations`` tells them apart by the list of active
pods. Checksums are not verified here: a running kubelet replaces each file whole, so a torn one is invalid JSON.
``replay.startup`` says whether a kubelet starts with the files.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from topomend.base.natural_order import natural_key
from topomend.discover.host_files import Absent, SourceUnreadable, read_bytes
from topomend.model.bitmask import MAX_ID, CPUSet, mask_of
from topomend.model.nodes.node_state import ContainerAllocation, DeviceAllocation, MemoryBlock, NUMANodeMemory
from topomend.replay.startup.state.restore import (
    ACTUATED_STATE,
    ALLOCATED_STATE,
    CLAIM_STATE,
    CPU_STATE,
    DEVICE_STATE,
    MEMORY_STATE,
)
from topomend.wire.document import Document, MalformedObject

MAX_BYTES = 16 << 20
FILES = (CPU_STATE, MEMORY_STATE, DEVICE_STATE, ALLOCATED_STATE)
"""The files whose content says what pods have."""

RESTORED = (*FILES, ACTUATED_STATE, CLAIM_STATE)
"""The files that a kubelet reads at its start."""

POD_FOLDERS = "pods"


@dataclass(frozen=True)
class PodHoldings:
    """One pod's allocations: its containers by name, and its own if the managers act on pod-level resources.

    The files do not say which containers are init containers.
    """

    containers: Mapping[str, ContainerAllocation] = field(default_factory=dict)
    cpus: CPUSet = 0
    memory: tuple[MemoryBlock, ...] = ()


class StateUnreadable(Exception):
    """A state file exists and cannot be read. The text names it and says why."""


@dataclass(frozen=True)
class KubeletState:
    """The content of all files; ``pods`` by uid.

    ``memory`` is the Memory Manager's machine state, ``memory_totals`` its total bytes by NUMA node and resource.
    ``admitted`` names the containers of each admitted pod by uid, until the kubelet forgets the pod; some versions omit
    init containers (allocation/allocation_manager.go:allocationFromPod). None if there is no such file.
    ``policies`` are the managers' policies by file name, without managers that have no file. ``cpu_pool`` is the CPU
    Manager's shared pool, None if it has none. ``with_folder`` are the uids with a folder in the kubelet's root
    directory, which disappears soon after the pod; None if the folders are not visible.
    """

    pods: Mapping[str, PodHoldings] = field(default_factory=dict)
    memory: tuple[NUMANodeMemory, ...] | None = None
    memory_totals: Mapping[tuple[int, str], int] = field(default_factory=dict)
    admitted: Mapping[str, frozenset[str]] | None = None
    policies: Mapping[str, str] = field(default_factory=dict)
    cpu_pool: CPUSet | None = None
    with_folder: frozenset[str] | None = None


@dataclass(frozen=True)
class StateFiles:
    """The files that a kubelet reads at its start: ``content`` by path below ``folder``, which the host calls so."""

    folder: str = ""
    content: Mapping[str, bytes] = field(default_factory=dict)


def read_files(folder: Path, name: str) -> StateFiles:
    """Read the files in the kubelet's root directory, which the host calls ``name``.

    Files that are absent or cannot be read are left out.
    """
    content = {}
    for file in RESTORED:
        with suppress(SourceUnreadable):
            content[file] = read_bytes(folder / file, MAX_BYTES)
    return StateFiles(name, content)


def read_state(folder: Path) -> KubeletState:
    """Read all files in the kubelet's root directory. An absent file counts as empty. Raises StateUnreadable."""
    cpu, memory, devices, admitted = (_load(folder / name) for name in FILES)
    try:
        state = _read(_data_of(cpu), _data_of(memory), devices, admitted)
        return replace(state, with_folder=_with_folder(folder))
    except MalformedObject as error:
        raise StateUnreadable(str(error)) from error


def fingerprint(folder: Path) -> tuple[object, ...]:
    """A value that changes with every file: the kubelet renames files into place, so each version has its own inode."""
    marks: list[object] = []
    for name in (*RESTORED, POD_FOLDERS):
        try:
            status = (folder / name).stat()
        except OSError:
            marks.append(None)
        else:
            marks.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(marks)


def _with_folder(folder: Path) -> frozenset[str] | None:
    """The pod folders' names; nothing inside is read. The agent's manifest hides the folder by an empty one."""
    try:
        return frozenset(entry.name for entry in (folder / POD_FOLDERS).iterdir()) or None
    except OSError:
        return None


def _load(path: Path) -> Document:
    try:
        return Document(json.loads(read_bytes(path, MAX_BYTES)), str(path))
    except Absent:
        return Document(None, str(path))
    except SourceUnreadable as error:
        raise StateUnreadable(f"{path} {error}") from error
    except (ValueError, RecursionError) as error:
        raise StateUnreadable(f"{path} is not JSON: {str(error)[:160]}") from error


def _data_of(document: Document) -> Document:
    """What counts of a manager's file. Since 1.37 that is the JSON in ``data``, which alone has what whole pods hold.

    The fields beside it are for older kubelets (cpumanager/state/checkpoint.go:CPUManagerCheckpointV4).
    """
    data = document["data"]
    if data.absent:
        return document
    try:
        return Document(json.loads(data.text()), data.path)
    except (ValueError, RecursionError) as error:
        raise StateUnreadable(f"{data.path} is not JSON: {str(error)[:160]}") from error


def _read(cpu: Document, memory: Document, devices: Document, admitted: Document) -> KubeletState:
    pods: dict[str, dict[str, dict[str, Any]]] = {}

    def container_fields(uid: str, container: str) -> dict[str, Any]:
        return pods.setdefault(uid, {}).setdefault(container, {})

    for uid, containers in cpu["entries"].fields():
        for name, cpus in containers.fields():
            container_fields(uid, name)["cpus"] = cpus.id_list()
    for uid, containers in memory["entries"].fields():
        for name, blocks in containers.fields():
            container_fields(uid, name)["memory"] = _blocks(blocks)
    for (uid, name), allocations in _devices(devices["Data"]["PodDeviceEntries"]).items():
        container_fields(uid, name)["devices"] = allocations
    return KubeletState(
        pods={
            uid: PodHoldings(
                {name: ContainerAllocation(name, **fields) for name, fields in pods.get(uid, {}).items()},
                cpu["podEntries"][uid]["cpuSet"].id_list(),
                _blocks(memory["podEntries"][uid]["memoryBlocks"]),
            )
            for uid in dict.fromkeys([*pods, *_keys(cpu["podEntries"]), *_keys(memory["podEntries"])])
        },
        memory=_machine_state(memory["machineState"]),
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
    memory_blocks = (
        MemoryBlock(
            entry["type"].text(),
            mask_of(node.integer(most=MAX_ID - 1) for node in entry["numaAffinity"]),
            entry["size"].integer(),
        )
        for entry in blocks
    )
    return tuple(sorted(memory_blocks, key=lambda block: (block.resource, block.numa_nodes, block.size)))


def _devices(entries: Document) -> dict[tuple[str, str], tuple[DeviceAllocation, ...]]:
    """Devices by pod uid and container. A device on several NUMA nodes is listed under each (DevicesPerNUMA)."""
    ids: dict[tuple[str, str], dict[str, set[str]]] = {}
    for entry in entries:
        resources = ids.setdefault((entry["PodUID"].text(), entry["ContainerName"].text()), {})
        device_ids = resources.setdefault(entry["ResourceName"].text(), set())
        for _, devices in entry["DeviceIDs"].fields():
            device_ids.update(device.text() for device in devices)
    return {
        owner: tuple(
            DeviceAllocation(resource, tuple(sorted(device_ids, key=natural_key)))
            for resource, device_ids in sorted(by_name.items())
        )
        for owner, by_name in ids.items()
    }


def _admitted(document: Document) -> dict[str, frozenset[str]] | None:
    """Admitted containers by uid. The file's ``data`` is JSON within JSON (allocation/state/checkpoint.go)."""
    if document.absent:
        return None
    try:
        data = Document(json.loads(document["data"].text()), document["data"].path)
    except (ValueError, RecursionError) as error:
        raise document["data"].wrong("JSON in a text") from error
    return {
        uid: frozenset(name for name, _ in pod["ContainerResources"].fields()) for uid, pod in data["entries"].fields()
    }


def _machine_state(machine_state: Document) -> tuple[NUMANodeMemory, ...] | None:
    """The Memory Manager's machine state; None if empty. The map's keys are NUMA node ids as text."""
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
