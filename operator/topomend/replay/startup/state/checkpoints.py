"""The files in which a kubelet's managers keep their state: formats by version, checksums, and what keeps one unread.

Owns how a file becomes its content. ``restore`` asks whether a kubelet starts with that content. Source:
checkpointmanager, and checkpoint.go of cpumanager/state, memorymanager/state, devicemanager/checkpoint,
allocation/state and dra/state.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from zlib import crc32

from topomend.model.bitmask import CPUSet, members
from topomend.replay.gates import Gates
from topomend.replay.options import quoted
from topomend.replay.startup.state.checkpoint_json import (
    Bytes,
    Field,
    GoError,
    GoType,
    Integer,
    Map,
    Slice,
    Struct,
    Text,
    Unmarshaler,
    atoi,
    unmarshal,
    zero,
)

Content = dict[str, Any]
"""A file's fields by Go's names."""

CORRUPTED = "checkpoint is corrupted"
MAX_CPU = 1 << 16
"""The highest CPU that is kept of a set; one beyond it is on no machine."""

_TEXT = Text()
_UINT64 = Integer("uint64")
_INT = Integer("int", signed=True)
_CHECKSUM = Field("Checksum", "checksum", Integer("checksum.Checksum"))


def parse_cpuset(text: str) -> CPUSet:
    """A set of CPUs as the kubelet reads it (cpuset.Parse), which is stricter than Linux. Raises GoError."""
    cpus = 0
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        start = atoi(first)
        end = atoi(last) if dash else start
        if start > end:
            raise GoError(f"invalid range {quoted(part)} ({start} > {end})")
        start, end = min(start, MAX_CPU), min(end, MAX_CPU)
        cpus |= ((1 << (end - start + 1)) - 1) << start
    return cpus


def _pod_cpus(read: Content) -> Content:
    try:
        return {"CPUSet": parse_cpuset(read["CPUSet"])}
    except GoError as error:
        raise GoError(f"failed to parse cpuset: {error}") from error


def _struct(name: str, *fields: Field) -> Struct:
    return Struct("state", name, fields)


# The CPU Manager's files

_OF_CONTAINERS = Map(Map(_TEXT, "map[string]string"), "map[string]map[string]string")
_POD_CPUS = Map(
    Unmarshaler(Struct("state", "podEntryJSON", (Field("CPUSet", "cpuSet", _TEXT),)), _pod_cpus, "state.PodEntry"),
    "state.PodCPUAssignments",
)
_BASELINES = Map(
    Map(Struct("state", "ContainerCPUs", (Field("Baseline", "baseline", _TEXT),)), "map[string]state.ContainerCPUs"),
    "map[string]map[string]state.ContainerCPUs",
)
_CPU_HEAD = (Field("PolicyName", "policyName", _TEXT), Field("DefaultCPUSet", "defaultCpuSet", _TEXT))
CPU_V2 = _struct("CPUManagerCheckpointV2", *_CPU_HEAD, Field("Entries", "entries", _OF_CONTAINERS), _CHECKSUM)
CPU_V3 = _struct("CPUManagerCheckpointV3", *CPU_V2.fields[:-1], Field("PodEntries", "podEntries", _POD_CPUS), _CHECKSUM)
CPU_V1 = _struct(
    "CPUManagerCheckpointV1", *_CPU_HEAD, Field("Entries", "entries", Map(_TEXT, "map[string]string")), _CHECKSUM
)
CPU_DATA = _struct("CPUManagerCheckpointData", *CPU_V3.fields[:-1], Field("Baselines", "baselines", _BASELINES))

# The Memory Manager's files

_TABLE = Struct(
    "state",
    "MemoryTable",
    (
        Field("TotalMemSize", "total", _UINT64),
        Field("SystemReserved", "systemReserved", _UINT64),
        Field("Allocatable", "allocatable", _UINT64),
        Field("Reserved", "reserved", _UINT64),
        Field("Free", "free", _UINT64),
    ),
    pointer=True,
)
_NUMA_NODE = Struct(
    "state",
    "NUMANodeState",
    (
        Field("NumberOfAssignments", "numberOfAssignments", _INT),
        Field("MemoryMap", "memoryMap", Map(_TABLE, "map[v1.ResourceName]*state.MemoryTable")),
        Field("Cells", "cells", Slice(_INT, "[]int")),
    ),
    pointer=True,
)
_BLOCKS = Slice(
    Struct(
        "state",
        "Block",
        (
            Field("NUMAAffinity", "numaAffinity", Slice(_INT, "[]int")),
            Field("Type", "type", Text("v1.ResourceName")),
            Field("Size", "size", _UINT64),
        ),
    ),
    "[]state.Block",
)
MEMORY_V1 = _struct(
    "MemoryManagerCheckpointV1",
    Field("PolicyName", "policyName", _TEXT),
    Field("MachineState", "machineState", Map(_NUMA_NODE, "state.NUMANodeMap", _INT)),
    Field("Entries", "entries", Map(Map(_BLOCKS, "map[string][]state.Block"), "state.ContainerMemoryAssignments")),
    _CHECKSUM,
)
_POD_MEMORY = Map(
    Struct("state", "PodEntry", (Field("MemoryBlocks", "memoryBlocks", _BLOCKS),)), "state.PodMemoryAssignments"
)
MEMORY_V2 = _struct(
    "MemoryManagerCheckpointV2", *MEMORY_V1.fields[:-1], Field("PodEntries", "podEntries", _POD_MEMORY), _CHECKSUM
)
MEMORY_DATA = _struct("MemoryManagerCheckpointData", *MEMORY_V2.fields[:-1])

# The other files

_DEVICE_IDS = Map(Slice(_TEXT, "[]string"), "checkpoint.DevicesPerNUMA", Integer("int64", signed=True))
_POD_DEVICES = Struct(
    "checkpoint",
    "PodDevicesEntry",
    (
        *(Field(name, name, _TEXT) for name in ("PodUID", "ContainerName", "ResourceName")),
        Field("DeviceIDs", "DeviceIDs", _DEVICE_IDS),
        Field("AllocResp", "AllocResp", Bytes()),
    ),
)
DEVICES = Struct(
    "checkpoint",
    "checkpointData",
    (
        Field("PodDeviceEntries", "PodDeviceEntries", Slice(_POD_DEVICES, "[]checkpoint.PodDevicesEntry")),
        Field("RegisteredDevices", "RegisteredDevices", Map(Slice(_TEXT, "[]string"), "map[string][]string")),
    ),
)
_DEVICE_FILE = Struct("checkpoint", "Data", (Field("Data", "Data", DEVICES), replace(_CHECKSUM, json="Checksum")))
_PODS_FILE = Struct("state", "Checkpoint", (Field("Data", "data", _TEXT), _CHECKSUM))
_CLAIMS_FILE = Struct(
    "state", "Checkpoint", (Field("Data", "Data", _TEXT), Field("Checksum", "Checksum", Integer("uint32", 32)))
)


def load_cpus(content: bytes, gates: Gates) -> Content:
    """What the CPU Manager finds in its file. Raises GoError (cpumanager/state/state_checkpoint.go:restoreState)."""
    if gates.checkpoints_in_data:
        return _load_cpus_in_data(content, gates)
    if gates.pod_level_resource_managers:
        return _first(_cpu_v3(content), lambda: _cpus_since_1_36(content, gates))
    if gates.checkpoints_of_pods:
        return _cpus_since_1_36(content, gates)
    v1 = _read(content, CPU_V1, _named("CPUManagerCheckpoint"), blank=True)
    if isinstance(v1, GoError):
        return _or_raise(_read(content, _named("CPUManagerCheckpoint")(CPU_V2), _as_is, blank=True))
    return _of_container_ids(v1, "error migrating v1 checkpoint state to v2 checkpoint state")


def _load_cpus_in_data(content: bytes, gates: Gates) -> Content:
    beside = _embedded("CPUManagerCheckpoint", CPU_V2)
    in_data = _read_in_data(content, beside, CPU_DATA, of="cpu manager", version="v4")
    if not isinstance(in_data, GoError):
        return in_data
    return _first(_cpu_v3(content, _named("CPUManagerCheckpoint")), lambda: _or_raise(_cpu_v2(content, gates)))


def _cpus_since_1_36(content: bytes, gates: Gates) -> Content:
    v2 = _cpu_v2(content, gates)
    if not isinstance(v2, GoError):
        return v2
    v1 = _read(content, CPU_V1, _named("CPUManagerCheckpoint"), blank=True)
    return _of_container_ids(_or_raise(v1), "failed to migrate checkpoint from v1 to v2")


def _cpu_v2(content: bytes, gates: Gates) -> Content | GoError:
    names = () if gates.pod_level_resource_managers else (_as_is,)
    return _read(content, CPU_V2, *names, _named("CPUManagerCheckpoint"), blank=True)


def _cpu_v3(content: bytes, *also: "_Naming") -> Content | GoError:
    """Version 3, which 1.36 calls just a checkpoint."""
    struct = CPU_V3 if also else _named("CPUManagerCheckpoint")(CPU_V3)
    return _read(content, struct, _as_is, *also)


def _of_container_ids(v1: Content, failed: str) -> Content:
    """Version 1 names containers by their ids, none of which is in a runtime of today."""
    for container in sorted(v1["Entries"] or ()):
        raise GoError(f"{failed}: containerID '{container}' not found in initial containers list")
    return v1


def load_memory(content: bytes, gates: Gates) -> Content:
    """What the Memory Manager finds in its file, copied if it is in an older format. Raises GoError, NullTable.

    Source: memorymanager/state/state_checkpoint.go.
    """
    if not gates.checkpoints_of_pods:
        return _or_raise(_read(content, _named("MemoryManagerCheckpoint")(MEMORY_V1), _as_is))
    if gates.checkpoints_in_data:
        beside = _embedded("MemoryManagerCheckpoint", MEMORY_V1)
        in_data = _read_in_data(content, beside, MEMORY_DATA, of="memory manager", version="v3")
        if not isinstance(in_data, GoError):
            return in_data
        v2 = _read(content, MEMORY_V2, _named("MemoryManagerCheckpoint"))
        return cloned(_first(v2, lambda: _memory_v1(content)))
    if gates.pod_level_resource_managers:
        v2 = _read(content, _named("MemoryManagerCheckpoint")(MEMORY_V2), _as_is)
        return _first(v2, lambda: cloned(_memory_v1(content)))
    return _memory_v1(content, _as_is)


class NullTable(Exception):
    """The state of a NUMA node has null in the place of a memory table: a kubelet that copies it panics."""


def cloned(state: Content) -> Content:
    """The Memory Manager's state, copied as it is migrated and restored. Raises NullTable (state.go:Clone)."""
    nodes = [node for node in (state["MachineState"] or {}).values() if node is not None]
    if any(table is None for node in nodes for table in (node["MemoryMap"] or {}).values()):
        raise NullTable
    return state


def _memory_v1(content: bytes, *also: "_Naming") -> Content:
    return _or_raise(_read(content, MEMORY_V1, *also, _named("MemoryManagerCheckpoint"), blank=True))


def check_devices(content: bytes) -> None:
    """Raises GoError if the device manager cannot read its file (devicemanager/checkpoint/checkpoint.go)."""
    start: Content = {"Data": {"PodDeviceEntries": [], "RegisteredDevices": {}}, "Checksum": 0}
    devices = unmarshal(content, _DEVICE_FILE, start)
    if devices["Checksum"] != checksum_of_devices(devices["Data"]):
        raise GoError(CORRUPTED)


def check_pods(content: bytes) -> None:
    """Raises GoError if the kubelet cannot read what it allocated to its pods, or what is in force for them.

    The amounts themselves are not read: a file with the right checksum is one that a kubelet wrote.
    Source: allocation/state/state_checkpoint.go:restoreState.
    """
    pods = unmarshal(content, _PODS_FILE, zero(_PODS_FILE))
    if pods["Checksum"] != checksum_of(pods["Data"]):
        raise GoError(CORRUPTED)
    try:
        unmarshal(pods["Data"].encode(), Struct("state", "PodResourceCheckpointInfo", ()), {})
    except GoError as error:
        raise GoError(f"failed to get pod resource information: {error}") from error


def check_claims(content: bytes) -> None:
    """Raises GoError if the kubelet cannot read its resource claims (cm/dra/claiminfo.go:newClaimInfoCache)."""
    failed = "create ResourceClaim cache: GetOrCreate() on checkpoint state: failed to get checkpoint dra_manager_state"
    try:
        claims = unmarshal(content, _CLAIMS_FILE, dict(_NO_CLAIMS))
    except GoError as error:
        raise GoError(f"{failed}: {error}") from error
    if claims["Checksum"] != crc32(claims["Data"].encode()):
        raise GoError(f"{failed}: {CORRUPTED}")
    try:
        unmarshal(claims["Data"].encode(), Struct("state", "CheckpointData", ()), {})
    except GoError as error:
        raise GoError(f"create ResourceClaim cache: GetEntries() on checkpoint: {error}") from error


_NO_CLAIMS_DATA = '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":null}'
_NO_CLAIMS = {"Data": _NO_CLAIMS_DATA, "Checksum": crc32(_NO_CLAIMS_DATA.encode())}
"""The content that a file is read into: one that is ``{}`` is taken for it (dra/state/checkpointer.go:GetOrCreate)."""


def checksum_of(data: str) -> int:
    """The checksum of content that is a text (checkpointmanager/checksum)."""
    return _fnv32a(f"(string){data}")


def checksum_of_devices(data: Content) -> int:
    """The checksum of the device manager's content."""
    return _fnv32a(_dumped(DEVICES, data))


def checksum_of_fields(struct: Struct, value: Content) -> int:
    """The checksum of content that is a structure: of its dump with the checksum 0."""
    return _fnv32a(_dumped(struct, {**value, "Checksum": 0}, "*"))


# Reading one format

_Naming = Callable[[Struct], Struct]
"""Which name a structure has in the dump that its checksum is of."""


def _as_is(struct: Struct) -> Struct:
    return struct


def _named(name: str) -> _Naming:
    return lambda struct: replace(struct, name=name)


def _read(content: bytes, struct: Struct, *namings: _Naming, blank: bool = False) -> Content | GoError:
    """The content in one format, or why it is not in that one. ``blank`` accepts a file without a checksum."""
    try:
        value: Content = unmarshal(content, struct, _made(struct))
    except GoError as error:
        return error
    checksum = value["Checksum"]
    if blank and not checksum:
        return value
    if any(checksum == checksum_of_fields(naming(struct), value) for naming in namings):
        return value
    return GoError(CORRUPTED)


def _made(struct: Struct) -> Content:
    """A structure as the kubelet makes it to read a file into: its maps are not nil."""
    return {each.name: {} if isinstance(each.type, Map) else zero(each.type) for each in struct.fields}


def _read_in_data(content: bytes, beside: Struct, data: Struct, *, of: str, version: str) -> Content | GoError:
    """The content in the JSON in ``data``, or why there is none. Raises GoError if there is one and it is corrupt.

    ``beside`` are the fields beside it, which are for older kubelets.
    """
    struct = replace(
        beside,
        fields=(
            *beside.fields,
            Field("Data", "data", _TEXT),
            Field("DataChecksum", "dataChecksum", Integer("checksum.Checksum")),
        ),
    )
    value = _made(struct)
    try:
        return _data_in(content, struct, value, data, of)
    except GoError as error:
        if value["Data"] or value["DataChecksum"]:
            raise GoError(f"could not load {version} checkpoint: {error}") from error
        return error


def _embedded(name: str, beside: Struct) -> Struct:
    return _struct(name, *(replace(field, embedded=beside.name) for field in beside.fields))


def _data_in(content: bytes, struct: Struct, value: Content, data: Struct, of: str) -> Content:
    try:
        unmarshal(content, struct, value)
    except GoError as error:
        raise GoError(f"failed to deserialize {of} checkpoint: {error}") from error
    try:
        inner: Content = unmarshal(value["Data"].encode(), data, _made(data))
    except GoError as error:
        raise GoError(f"failed to deserialize {of} checkpoint data: {error}") from error
    if value["DataChecksum"] != checksum_of(value["Data"]):
        raise GoError(CORRUPTED)
    return inner


def _first(read: Content | GoError, otherwise: Callable[[], Content]) -> Content:
    return otherwise() if isinstance(read, GoError) else read


def _or_raise(read: Content | GoError) -> Content:
    if isinstance(read, GoError):
        raise read
    return read


# Checksums


def _fnv32a(text: str) -> int:
    """The hash FNV-1a of 32 bits."""
    code = 0x811C9DC5
    for byte in text.encode("utf-8", "surrogateescape"):
        code = ((code ^ byte) * 0x01000193) & 0xFFFFFFFF
    return code


def _dumped(of: GoType, value: Any, pointer: str = "") -> str:
    """A value with its type, as the kubelet's dump for hashes writes it (util/dump.ForHash, spew's ``%#v``)."""
    return _Dump().typed(of, value, pointer)


class _Dump:
    """One dump. Fields are written with their types, but for the one after a nil pointer at the end of a map."""

    def __init__(self) -> None:
        self._ignores_next_type = False

    def typed(self, of: GoType, value: Any, pointer: str = "") -> str:
        name = of.full_name if isinstance(of, Struct) else of.name
        shown = "" if self._ignores_next_type else f"({pointer}{name})"
        return f"{shown}{self._untyped(of, value)}"

    def _untyped(self, of: GoType, value: Any) -> str:
        self._ignores_next_type = value is None and isinstance(of, Struct)
        if value is None:
            return "<nil>"
        if isinstance(of, Map):
            return f"map[{' '.join([f'{key}:{self._untyped(of.value, value[key])}' for key in sorted(value)])}]"
        if isinstance(of, Slice):
            return f"[{' '.join([self._untyped(of.element, each) for each in value])}]"
        if isinstance(of, Struct):
            fields = " ".join([f"{each.name}:{self.typed(each.type, value[each.name])}" for each in of.fields])
            return f"{'<*>' if of.pointer else ''}{{{fields}}}"
        if isinstance(of, Unmarshaler):
            cpus = " ".join([f"{cpu}:{{}}" for cpu in members(value["CPUSet"])])
            return f"{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}})map[{cpus}]}}}}"
        if isinstance(of, Bytes):
            return f"[{' '.join(map(str, value))}]"
        return str(value)
