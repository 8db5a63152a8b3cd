"""The machine from sysfs, as the kubelet sees it through cadvisor.

Owns /sys/devices/system/{node,cpu}. It omits and groups CPUs exactly as cadvisor v0.56 does
(utils/sysinfo/sysinfo.go:GetNodesInfo), because the kubelet's managers compute with the result. The grouping by Linux
itself is left to ``hardware``, which remarks on differences, and PCI devices to ``pci``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from topomend.discover.host_files import Root
from topomend.discover.machine.hardware import read_hardware
from topomend.model.bitmask import MAX_ID, CPUSet, format_id_list, lowest, mask_of, members
from topomend.model.machine import Core, HugePages, Machine, NUMANode
from topomend.model.quantity import format_bytes

NODES = "sys/devices/system/node"
CPUS = "sys/devices/system/cpu"
HUGEPAGES = "sys/kernel/mm/hugepages"

_NODE = re.compile(r"node\d{1,30}", re.ASCII)
_CPU = re.compile(r"cpu\d{1,30}", re.ASCII)
_HUGEPAGES = re.compile(r"hugepages-(\d{1,12})kB", re.ASCII)
_CACHE = re.compile(r"index\d{1,3}", re.ASCII)
_PROCESSOR = re.compile(r"(processor|physical id)\s*:\s*(\d{1,9})\s*", re.ASCII)
_CPUINFO_BYTES = 1 << 24
"""An entry is about 1.5 KiB a CPU."""
_MEMORY = re.compile(r"(?:Node \d+ )?MemTotal:\s*(\d{1,12}) kB\s*", re.ASCII)

MAX_DISTANCES = 256
"""The most that are published. Linux supports up to 1024 NUMA nodes, the kubelet decides for up to 64."""

GPUS = "proc/driver/nvidia/gpus"
_GPU = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_GPU_NODE = re.compile(r"Node:\s*(\d{1,5})\s*", re.ASCII)


def read_machine(root: Root, *, whole: bool = False) -> Machine:
    """Read the machine under ``root``, without PCI devices. Never raises: failed reads become ``root.problems``.

    ``whole`` adds the counts of free and reserved huge pages, which change from moment to moment.
    """
    online = _online(root)
    node_ids = _ids(root, NODES, _NODE)
    nodes, cores = _numa_nodes(root, node_ids, online, whole=whole) if node_ids else _sockets_as_nodes(root, online)
    present = root.id_list(f"{CPUS}/present") or mask_of(_ids(root, CPUS, _CPU))
    machine = Machine(
        numa_nodes=nodes,
        cores=tuple(sorted(cores, key=lambda core: core.id)),
        offline=present & ~online,
        isolated=root.id_list(f"{CPUS}/isolated") or 0,
    )
    machine = replace(machine, hardware=read_hardware(root, machine, online))
    if whole:
        machine = replace(machine, hardware=machine.hardware._replace(reserved_hugepages=_reserved_hugepages(root)))
    _cross_check(root, machine, online)
    return machine


def _online(root: Root) -> CPUSet:
    """The online CPUs; all CPUs on a kernel without hotplug (sysfs.go:IsCPUOnline)."""
    online = root.id_list(f"{CPUS}/online")
    return mask_of(_ids(root, CPUS, _CPU)) if online is None else online


def _ids(root: Root, folder: str, pattern: re.Pattern[str]) -> list[int]:
    """The ids in names such as ``node12``, sorted by name as cadvisor reads them."""
    ids = []
    for name in root.names(folder, pattern):
        digits = name.lstrip("abcdefghijklmnopqrstuvwxyz")
        if len(digits) > 6 or int(digits) >= MAX_ID:
            root.problem(f"{folder}/{name}", f"has an id of {MAX_ID} or above and was left out")
            continue
        ids.append(int(digits))
    return ids


def _id(root: Root, name: str) -> int | None:
    """The id of a socket or cache. -1 stands for firmware that names none; the kubelet takes it for an id."""
    number = root.integer(name)
    if number is not None and number < -1:
        root.problem(name, f"holds {number} where an id belongs")
        return None
    return number


# NUMA nodes


def _numa_nodes(
    root: Root, node_ids: list[int], online: CPUSet, *, whole: bool
) -> tuple[tuple[NUMANode, ...], list[Core]]:
    nodes, cores = [], []
    gpus = _gpu_memory(root)
    assigned = 0
    for node_id in node_ids:
        cpus = [cpu for cpu in _cpus_of_node(root, node_id) if online >> cpu & 1]
        if mask_of(cpus) & assigned:
            duplicates = format_id_list(mask_of(cpus) & assigned)
            root.problem(
                f"{NODES}/node{node_id}", f"claims CPUs {duplicates}, which an earlier node has; they stay there"
            )
            cpus = [cpu for cpu in cpus if not assigned >> cpu & 1]
        assigned |= mask_of(cpus)
        cores += _cores(root, node_id, cpus)
        nodes.append(
            NUMANode(
                node_id,
                _memory(root, node_id),
                _hugepages(root, f"{NODES}/node{node_id}/hugepages", whole=whole),
                _distances(root, node_id),
                gpus.get(node_id, ""),
            )
        )
    _remark_on_missing_files(root, node_ids, cores)
    return tuple(sorted(nodes, key=lambda node: node.id)), cores


def _remark_on_missing_files(root: Root, node_ids: list[int], cores: list[Core]) -> None:
    """Remark on missing files, once for all nodes, so that many equal remarks do not hide the others."""
    with_cpus = {core.numa_node for core in cores}
    lacking = {
        "meminfo: the kubelet counts them as nodes without memory": [
            node_id for node_id in node_ids if not root.exists(f"{NODES}/node{node_id}/meminfo")
        ],
        "distance: with prefer-closest-numa-nodes the kubelet would not start": [
            node_id for node_id in node_ids if not root.exists(f"{NODES}/node{node_id}/distance")
        ],
        "cpuN links: their CPUs are taken from cpulist or cpumap": [
            node_id for node_id in node_ids if node_id in with_cpus and not root.names(f"{NODES}/node{node_id}", _CPU)
        ],
    }
    for part, nodes in lacking.items():
        if nodes:
            root.remark(NODES, f"has nodes {format_id_list(mask_of(nodes))} without {part}")


def _cpus_of_node(root: Root, node_id: int) -> list[int]:
    """The CPUs linked under a node, online or not. In a recorded tree without links, its cpulist or cpumap counts."""
    folder = f"{NODES}/node{node_id}"
    linked = _ids(root, folder, _CPU)
    if linked:
        return linked
    listed = root.id_list(f"{folder}/cpulist")
    if listed is None:
        listed = root.id_map(f"{folder}/cpumap")
    return list(members(listed or 0))


def _memory(root: Root, node_id: int) -> int:
    """MemTotal in bytes; 0 if the node has no meminfo (sysinfo.go:getNodeMemInfo)."""
    name = f"{NODES}/node{node_id}/meminfo"
    if not root.exists(name):
        return 0
    memory = _mem_total(root, name)
    if memory is None:
        root.problem(name, "has no MemTotal in kB: the node is shown without memory, and the kubelet would not start")
    return memory or 0


def _mem_total(root: Root, name: str) -> int | None:
    for line in root.lines(name, _MEMORY) or ():
        matched = _MEMORY.fullmatch(line)
        if matched is not None:
            return int(matched[1]) * 1024
    return None


def _hugepages(root: Root, folder: str, *, whole: bool) -> tuple[HugePages, ...]:
    pools = []
    for name in root.names(folder):
        matched = _HUGEPAGES.fullmatch(name)
        count = root.integer(f"{folder}/{name}/nr_hugepages")
        if matched is None or int(matched[1]) == 0 or count is None or count < 0:
            root.problem(f"{folder}/{name}", "is no pool of huge pages that can be read and was left out")
            continue
        free = root.integer(f"{folder}/{name}/free_hugepages") if whole else None
        pools.append(HugePages(int(matched[1]) * 1024, count, None if free is None or free < 0 else free))
    return tuple(sorted(pools, key=lambda pool: pool.size))


def _reserved_hugepages(root: Root) -> tuple[HugePages, ...]:
    """Pages reserved by processes and not yet allocated; the kernel counts them for the whole machine only."""
    root = root.beside()
    sizes = (matched for matched in map(_HUGEPAGES.fullmatch, root.names(HUGEPAGES, _HUGEPAGES)) if matched)
    counts = {int(size[1]) * 1024: root.integer(f"{HUGEPAGES}/{size[0]}/resv_hugepages") or 0 for size in sizes}
    return tuple(HugePages(size, count) for size, count in sorted(counts.items()) if size and count > 0)


def _gpu_memory(root: Root) -> Mapping[int, str]:
    """GPU addresses by the NUMA node that is their memory, from NVIDIA's driver for CPU-coherent GPUs."""
    gpus, root = {}, root.beside()
    for address in root.names(GPUS, _GPU):
        for line in root.lines(f"{GPUS}/{address}/numa_status", _GPU_NODE) or ():
            matched = _GPU_NODE.fullmatch(line)
            if matched is not None:
                gpus[int(matched[1])] = address
    return gpus


def _distances(root: Root, node_id: int) -> tuple[int, ...]:
    name = f"{NODES}/node{node_id}/distance"
    text = root.text(name)
    if text is None:
        return ()
    words = text.split()
    if not all(word.isascii() and word.isdigit() and len(word) <= 3 and int(word) <= 255 for word in words):
        root.problem(name, f"holds {text[:40]!r} where distances from 0 to 255 belong; they were left out")
        return ()
    if len(words) > MAX_DISTANCES:
        root.problem(name, f"holds more than {MAX_DISTANCES} distances; they were left out")
        return ()
    return tuple(int(word) for word in words)


def _sockets_as_nodes(root: Root, online: CPUSet) -> tuple[tuple[NUMANode, ...], list[Core]]:
    """On a kernel without NUMA nodes each socket counts as one, without memory (sysinfo.go:getCPUTopology)."""
    root.remark(NODES, "has no nodes: the kubelet counts each socket as a NUMA node without memory")
    by_socket: dict[int, list[int]] = {}
    for cpu in _ids(root, CPUS, _CPU):
        if online >> cpu & 1:
            socket = root.integer(f"{CPUS}/cpu{cpu}/topology/physical_package_id")
            by_socket.setdefault(max(0, socket or 0), []).append(cpu)
    cores = [core for socket, cpus in by_socket.items() for core in _cores(root, socket, cpus)]
    return tuple(NUMANode(socket, 0) for socket in sorted(by_socket)), cores


# Cores


@dataclass(frozen=True, slots=True)
class _CorePosition:
    """Core and socket of a CPU; ``core`` is any value that its siblings share."""

    core: int | str
    socket: int


def _core_position(root: Root, cpu: int) -> _CorePosition:
    """Core and socket of a CPU as cadvisor reads them. A missing file is a problem; its siblings replace it."""
    folder = f"{CPUS}/cpu{cpu}/topology"
    core, socket = root.integer(f"{folder}/core_id"), _id(root, f"{folder}/physical_package_id")
    if core is not None and socket is not None:
        return _CorePosition(core, socket)
    missing = "core_id" if core is None else "physical_package_id"
    root.problem(f"{folder}/{missing}", "is missing: the kubelet leaves this CPU out; it is shown by its siblings here")
    siblings = _siblings(root, folder, "thread_siblings", cpu)
    return _CorePosition(f"cpu{lowest(siblings)}" if core is None else core, socket or 0)


def _siblings(root: Root, folder: str, name: str, cpu: int) -> CPUSet:
    listed = root.id_list(f"{folder}/{name}_list")
    return (root.id_map(f"{folder}/{name}") if listed is None else listed) or 1 << cpu


def _cores(root: Root, node_id: int, cpus: list[int]) -> list[Core]:
    """Group the CPUs of one node by core_id and socket, as cadvisor does (sysinfo.go:getCoresInfo)."""
    threads: dict[_CorePosition, list[int]] = {}
    for cpu in cpus:
        threads.setdefault(_core_position(root, cpu), []).append(cpu)
    caches = _uncore_caches(root, list(threads.values()))
    return [Core(mask_of(ids), position.socket, node_id, caches.get(ids[0])) for position, ids in threads.items()]


def _uncore_caches(root: Root, cores: list[list[int]]) -> Mapping[int, int]:
    """The uncore cache of each core that has one, by the core's first thread (sysinfo.go:addCacheInfo).

    cadvisor reads one thread of each core. A cache beyond level 2 counts as the node's own if it serves as many CPUs as
    the node seems to have (its cores times this core's threads), and as an uncore cache otherwise. The kubelet takes
    the first uncore cache. One unreadable cache ends the reading for the node; cores before it keep their caches.
    """
    cache_of_thread: dict[int, int] = {}
    for threads in cores:
        caches = _caches(root, threads[0])
        if caches is None:
            break
        beyond = [cache for cache in caches if cache.level > 2 and cache.cpus != len(cores) * len(threads)]
        if beyond:
            cache_of_thread[threads[0]] = beyond[0].id
    return cache_of_thread


@dataclass(frozen=True, slots=True)
class _Cache:
    id: int
    level: int
    cpus: int


def _caches(root: Root, cpu: int) -> list[_Cache] | None:
    """The caches of a CPU in cadvisor's order; None if one of them lacks a file (sysfs.go:GetCacheInfo)."""
    folder = f"{CPUS}/cpu{cpu}/cache"
    names = root.names(folder, _CACHE)
    caches = [_cache(root, f"{folder}/{name}") for name in names]
    readable = [cache for cache in caches if cache is not None]
    return readable if names and len(readable) == len(caches) else None


def _cache(root: Root, folder: str) -> _Cache | None:
    cache_id, level = _id(root, f"{folder}/id"), root.integer(f"{folder}/level")
    shared = root.id_map(f"{folder}/shared_cpu_map")
    if cache_id is None or level is None or shared is None:
        return None
    if not root.exists(f"{folder}/size") or not root.exists(f"{folder}/type"):
        return None
    return _Cache(cache_id, level, shared.bit_count())


# Contradictions


def _cross_check(root: Root, machine: Machine, online: CPUSet) -> None:
    if not machine.cores:
        root.problem(CPUS, "has no CPU that is online: there is no machine to describe; is this folder a host's root?")
    lost = online & ~machine.cpus
    if lost:
        root.problem(f"{CPUS}/online", f"lists CPUs {format_id_list(lost)}, which no NUMA node has: they are left out")
    sparse = [
        node.id for node in machine.numa_nodes if node.distances and len(node.distances) != len(machine.numa_nodes)
    ]
    for node_id in sparse:
        root.problem(
            f"{NODES}/node{node_id}/distance", f"does not have {len(machine.numa_nodes)} entries, one for each node"
        )
    _check_totals(root, machine)


def _check_totals(root: Root, machine: Machine) -> None:
    """Compare with /proc, from which the kubelet takes the number of sockets and its capacity of memory."""
    words = [line.split(":") for line in root.lines("proc/cpuinfo", _PROCESSOR, most=_CPUINFO_BYTES) or ()]
    sockets = {number.strip() for name, number in words if name.startswith("physical id")}
    if sockets and len(sockets) != len(machine.cpus_of_socket):
        root.remark("proc/cpuinfo", f"names {len(sockets)} sockets, sysfs {len(machine.cpus_of_socket)}")
    cpus = sum(name.startswith("processor") for name, _ in words)
    if cpus and cpus != machine.cpus.bit_count():
        root.remark("proc/cpuinfo", f"names {cpus} CPUs, sysfs {machine.cpus.bit_count()}")
    node_memory = sum(node.memory for node in machine.numa_nodes)
    memory = _mem_total(root, "proc/meminfo")
    if node_memory and memory and abs(node_memory - memory) * 10 > memory:
        root.remark(
            "proc/meminfo", f"counts {format_bytes(memory)} of memory, the NUMA nodes {format_bytes(node_memory)}"
        )
    if node_memory:
        _check_hugepages(root, machine)


def _check_hugepages(root: Root, machine: Machine) -> None:
    """Compare the nodes' huge pages with the machine's count, which is the node's capacity.

    See pkg/kubelet/cadvisor/util.go:CapacityFromMachineInfo.
    """
    for size in sorted({pool.size for node in machine.numa_nodes for pool in node.hugepages}):
        name = f"{HUGEPAGES}/hugepages-{size >> 10}kB/nr_hugepages"
        offered = root.beside().integer(name)
        pinned = sum(pool.count for node in machine.numa_nodes for pool in node.hugepages if pool.size == size)
        if offered is not None and offered != pinned:
            root.remark(
                name, f"says {offered}, the NUMA nodes {pinned}: the kubelet offers the former, pins the latter"
            )
