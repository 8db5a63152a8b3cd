"""CPUs put together to a machine as the kubelet and Linux see it.

Shapes and pasted machines say where each CPU is; the grouping into cores and caches is the same for both.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from topomend.model.bitmask import CPUSet, lowest
from topomend.model.machine import Core, CoreKind, Hardware, Machine, NUMANode


@dataclass(frozen=True, slots=True)
class LogicalCPU:
    """An online CPU and its place. ``core`` is unique within its socket; ``l3_cache`` is None where it is unknown.

    ``kind`` is the kernel's name of its kind of core; empty where all cores are alike.
    """

    id: int
    numa_node: int
    socket: int
    core: int
    l3_cache: int | None = None
    kind: str = ""


def assemble(
    cpus: Iterable[LogicalCPU], numa_nodes: tuple[NUMANode, ...], *, offline: CPUSet = 0, isolated: CPUSet = 0
) -> Machine:
    """The machine of these online CPUs, as discovery reads it from Linux' files."""
    threads: dict[tuple[int, int, int], CPUSet] = {}
    caches: dict[int, CPUSet] = {}
    kinds: dict[str, CPUSet] = {}
    cache_of: dict[int, int | None] = {}
    for cpu in cpus:
        place, bit = (cpu.numa_node, cpu.socket, cpu.core), 1 << cpu.id
        threads[place] = threads.get(place, 0) | bit
        kinds[cpu.kind] = kinds.get(cpu.kind, 0) | bit
        cache_of[cpu.id] = cpu.l3_cache
        if cpu.l3_cache is not None:
            caches[cpu.l3_cache] = caches.get(cpu.l3_cache, 0) | bit
    cores = sorted(
        (Core(ids, socket, node, cache_of[lowest(ids)]) for (node, socket, _), ids in threads.items()),
        key=lambda core: core.id,
    )
    counts = cores_by_numa_node(cores)
    ignored = {
        core
        for core in cores
        if core.l3_cache is not None and serves_its_numa_node(caches[core.l3_cache], core, counts)
    }
    return Machine(
        numa_nodes,
        tuple(replace(core, l3_cache=None) if core in ignored else core for core in cores),
        offline=offline,
        isolated=isolated,
        hardware=Hardware(l3_caches=tuple(sorted(caches.values(), key=lowest)), core_kinds=_core_kinds(kinds)),
    )


def serves_its_numa_node(cache: CPUSet, core: Core, cores_of_numa_node: Mapping[int, int]) -> bool:
    """Whether the kubelet takes the L3 cache for the NUMA node's own and leaves it out (sysinfo.go:addCacheInfo).

    cadvisor multiplies the number of the node's cores with the threads of the core at hand. On a machine of unlike
    cores that is not the number of its CPUs.
    """
    return cache.bit_count() == cores_of_numa_node[core.numa_node] * core.threads.bit_count()


def cores_by_numa_node(cores: Iterable[Core]) -> Mapping[int, int]:
    """How many cores each NUMA node has."""
    return Counter(core.numa_node for core in cores)


def _core_kinds(kinds: dict[str, CPUSet]) -> tuple[CoreKind, ...]:
    if len(kinds) < 2:
        return ()
    return tuple(CoreKind(cpus, name) for name, cpus in sorted(kinds.items(), key=lambda item: lowest(item[1])))
