"""The machine out of sysfs, as the kubelet comes to know it: through cadvisor's reading of the same files.

Owns /sys/devices/system/{node,cpu}. What cadvisor v0.56 leaves out or groups in its own way is left out or grouped the
same way here (utils/sysinfo/sysinfo.go:GetNodesInfo), because the managers compute with that. PCI devices are read
next door.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from topomend.discover.root import Root
from topomend.model.bitmask import (
    MAX_ID,
    CPUSet,
    format_id_list,
    lowest,
    mask_of,
    members,
)
from topomend.model.machine import Core, HugePages, Machine, NUMANode
from topomend.model.quantity import format_bytes

NODES = "sys/devices/system/node"
CPUS = "sys/devices/system/cpu"

_NODE = re.compile(r"node(\d+)", re.ASCII)
_CPU = re.compile(r"cpu(\d+)", re.ASCII)
_HUGEPAGES = re.compile(r"hugepages-(\d{1,15})kB", re.ASCII)
_SOCKET = re.compile(r"^physical id\s*:\s*(\d+)$", re.ASCII | re.MULTILINE)
_CPUINFO_BYTES = 1 << 24
"""An entry is about 1.5 KiB a CPU."""
_MEMORY = re.compile(r"MemTotal:\s*(\d{1,16}) kB", re.ASCII)


def read_machine(root: Root) -> Machine:
    """The machine under ``root``, without its PCI devices. What is wrong goes to ``root.problems``."""
    online = _online(root)
    node_ids = _ids(root, NODES, _NODE)
    nodes, cores = _numa_nodes(root, node_ids, online) if node_ids else _sockets_as_nodes(root, online)
    present = root.id_list(f"{CPUS}/present") or mask_of(_ids(root, CPUS, _CPU))
    machine = Machine(
        numa_nodes=nodes,
        cores=tuple(sorted(cores, key=lambda core: core.id)),
        offline=present & ~online,
        isolated=root.id_list(f"{CPUS}/isolated") or 0,
    )
    _cross_check(root, machine, online)
    return machine


def _online(root: Root) -> CPUSet:
    """The CPUs that are online; every one where the kernel has no hotplug (sysfs.go:IsCPUOnline)."""
    online = root.id_list(f"{CPUS}/online")
    return mask_of(_ids(root, CPUS, _CPU)) if online is None else online


def _ids(root: Root, folder: str, pattern: re.Pattern[str]) -> list[int]:
    """The ids in names such as ``node12``, in the order in which cadvisor meets them: by name."""
    found = []
    for name in root.names(folder):
        matched = pattern.fullmatch(name)
        if matched is None:
            continue
        if len(matched[1]) > 6 or int(matched[1]) >= MAX_ID:
            root.problem(f"{folder}/{name}", f"has an id of {MAX_ID} or above and was left out")
            continue
        found.append(int(matched[1]))
    return found


# NUMA nodes


def _numa_nodes(root: Root, node_ids: list[int], online: CPUSet) -> tuple[tuple[NUMANode, ...], list[Core]]:
    nodes, cores = [], []
    seen = 0
    for node_id in node_ids:
        cpus = [cpu for cpu in _cpus_of_node(root, node_id) if online >> cpu & 1]
        if mask_of(cpus) & seen:
            twice = format_id_list(mask_of(cpus) & seen)
            root.problem(f"{NODES}/node{node_id}", f"claims CPUs {twice}, which an earlier node has; they stay there")
            cpus = [cpu for cpu in cpus if not seen >> cpu & 1]
        seen |= mask_of(cpus)
        cores += _cores(root, node_id, cpus)
        nodes.append(NUMANode(node_id, _memory(root, node_id), _hugepages(root, node_id), _distances(root, node_id)))
    return tuple(sorted(nodes, key=lambda node: node.id)), cores


def _cpus_of_node(root: Root, node_id: int) -> list[int]:
    """The CPUs linked under a node, online or not; a recorded tree without the links is read by its map instead."""
    folder = f"{NODES}/node{node_id}"
    linked = _ids(root, folder, _CPU)
    if linked:
        return linked
    listed = root.id_list(f"{folder}/cpulist")
    if listed is None:
        listed = read_map(root, f"{folder}/cpumap")
    if listed:
        root.remark(folder, f"has no cpuN links; CPUs {format_id_list(listed)} are taken from its cpulist or cpumap")
    return list(members(listed or 0))


def _memory(root: Root, node_id: int) -> int:
    """MemTotal in bytes; 0 where the node has no meminfo (sysinfo.go:getNodeMemInfo)."""
    name = f"{NODES}/node{node_id}/meminfo"
    text = root.text(name)
    if text is None:
        root.remark(name, "is missing: the kubelet counts the node as one without memory")
        return 0
    matched = _MEMORY.search(text)
    if matched is None:
        root.problem(name, "has no MemTotal in kB: the node is shown without memory, and the kubelet would not start")
        return 0
    return int(matched[1]) * 1024


def _hugepages(root: Root, node_id: int) -> tuple[HugePages, ...]:
    folder = f"{NODES}/node{node_id}/hugepages"
    pools = []
    for name in root.names(folder):
        matched = _HUGEPAGES.fullmatch(name)
        count = root.integer(f"{folder}/{name}/nr_hugepages")
        if matched is None or count is None or count < 0:
            root.problem(f"{folder}/{name}", "is no pool of huge pages that can be read and was left out")
            continue
        pools.append(HugePages(int(matched[1]) * 1024, count))
    return tuple(sorted(pools, key=lambda pool: pool.size))


def _distances(root: Root, node_id: int) -> tuple[int, ...]:
    name = f"{NODES}/node{node_id}/distance"
    text = root.text(name)
    if text is None:
        root.remark(name, "is missing: with prefer-closest-numa-nodes the kubelet would not start")
        return ()
    words = text.split()
    if not all(word.isascii() and word.isdigit() and len(word) <= 3 and int(word) <= 255 for word in words):
        root.problem(name, f"holds {text[:40]!r} where distances from 0 to 255 belong; they were left out")
        return ()
    return tuple(int(word) for word in words)


def _sockets_as_nodes(root: Root, online: CPUSet) -> tuple[tuple[NUMANode, ...], list[Core]]:
    """A kernel without NUMA nodes: each socket stands for one, without memory (sysinfo.go:getCPUTopology)."""
    root.remark(NODES, "has no nodes: the kubelet counts each socket as a NUMA node without memory")
    by_socket: dict[int, list[int]] = {}
    for cpu in _ids(root, CPUS, _CPU):
        if online >> cpu & 1:
            socket = root.integer(f"{CPUS}/cpu{cpu}/topology/physical_package_id")
            by_socket.setdefault(max(0, socket or 0), []).append(cpu)
    if not by_socket:
        root.problem(CPUS, "has no CPU that is online: there is no machine to describe; is this folder a host's root?")
    cores = [core for socket, cpus in by_socket.items() for core in _cores(root, socket, cpus)]
    return tuple(NUMANode(socket, 0) for socket in sorted(by_socket)), cores


# Cores


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a CPU says it stands; ``core`` is any value that its siblings share."""

    core: int | str
    socket: int


def _place(root: Root, cpu: int) -> _Place:
    """Core and socket of a CPU as cadvisor reads them; where a file is missing, by its siblings, and a problem."""
    folder = f"{CPUS}/cpu{cpu}/topology"
    core, socket = root.integer(f"{folder}/core_id"), root.integer(f"{folder}/physical_package_id")
    if core is not None and socket is not None:
        return _Place(core, socket)
    missing = "core_id" if core is None else "physical_package_id"
    root.problem(f"{folder}/{missing}", "is missing: the kubelet leaves this CPU out; it is shown by its siblings here")
    siblings = _siblings(root, folder, "thread_siblings", cpu)
    return _Place(f"cpu{lowest(siblings)}" if core is None else core, socket or 0)


def _siblings(root: Root, folder: str, name: str, cpu: int) -> CPUSet:
    listed = root.id_list(f"{folder}/{name}_list")
    return (read_map(root, f"{folder}/{name}") if listed is None else listed) or 1 << cpu


def read_map(root: Root, name: str) -> CPUSet | None:
    """A hexadecimal cpumap such as ``00000000,000000ff`` as a set."""
    text = root.text(name)
    if text is None:
        return None
    try:
        return mask_of(members(int(text.replace(",", "").replace("\n", "") or "0", 16)))
    except ValueError:
        root.problem(name, f"holds {text[:40]!r} where a map of CPUs belongs")
        return None


def _cores(root: Root, node_id: int, cpus: list[int]) -> list[Core]:
    """The CPUs of one node grouped as cadvisor does: equal core_id and equal socket (sysinfo.go:getCoresInfo)."""
    threads: dict[_Place, list[int]] = {}
    for cpu in cpus:
        threads.setdefault(_place(root, cpu), []).append(cpu)
    caches = _uncore_caches(root, list(threads.values()))
    return [Core(mask_of(ids), place.socket, node_id, caches.get(ids[0])) for place, ids in threads.items()]


def _uncore_caches(root: Root, cores: list[list[int]]) -> Mapping[int, int]:
    """The uncore cache of each core that has one, by the core's first thread (sysinfo.go:addCacheInfo).

    cadvisor asks one thread a core. A cache beyond level 2 that serves as many CPUs as the node seems to have (its
    cores times this core's threads) counts as the node's own, any other as an uncore cache; the kubelet takes the
    first of these. One unreadable cache ends the reading for the node, cores before it keep theirs.
    """
    found: dict[int, int] = {}
    for threads in cores:
        caches = _caches(root, threads[0])
        if caches is None:
            break
        beyond = [cache for cache in caches if cache.level > 2 and cache.cpus != len(cores) * len(threads)]
        if beyond:
            found[threads[0]] = beyond[0].id
    return found


@dataclass(frozen=True, slots=True)
class _Cache:
    id: int
    level: int
    cpus: int


def _caches(root: Root, cpu: int) -> list[_Cache] | None:
    """The caches of a CPU in cadvisor's order, None where one of them lacks a file (sysfs.go:GetCacheInfo)."""
    folder = f"{CPUS}/cpu{cpu}/cache"
    names = [name for name in root.names(folder) if name.startswith("index")]
    caches = [_cache(root, f"{folder}/{name}") for name in names]
    known = [cache for cache in caches if cache is not None]
    return known if names and len(known) == len(caches) else None


def _cache(root: Root, folder: str) -> _Cache | None:
    cache_id, level = root.integer(f"{folder}/id"), root.integer(f"{folder}/level")
    shared = read_map(root, f"{folder}/shared_cpu_map")
    if cache_id is None or level is None or shared is None:
        return None
    if not root.exists(f"{folder}/size") or not root.exists(f"{folder}/type"):
        return None
    return _Cache(cache_id, level, shared.bit_count())


# What does not fit together


def _cross_check(root: Root, machine: Machine, online: CPUSet) -> None:
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
    """Totals that another part of the system also tells: the kubelet takes the number of sockets from /proc/cpuinfo."""
    sockets = set(_SOCKET.findall(root.text("proc/cpuinfo", most=_CPUINFO_BYTES) or ""))
    if sockets and len(sockets) != len(machine.cpus_of_socket):
        root.remark("proc/cpuinfo", f"names {len(sockets)} sockets, sysfs {len(machine.cpus_of_socket)}")
    if not root.live:
        return
    cpus, memory = os.cpu_count() or 0, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if cpus != machine.cpus.bit_count():
        root.remark("proc/stat", f"counts {cpus} CPUs, sysfs {machine.cpus.bit_count()}")
    known = sum(node.memory for node in machine.numa_nodes)
    if known and abs(known - memory) * 10 > memory:
        root.remark("proc/meminfo", f"counts {format_bytes(memory)} of memory, the NUMA nodes {format_bytes(known)}")
