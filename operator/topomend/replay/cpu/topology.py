"""The CPUs of a machine by NUMA node, socket, cache and core, as the CPU Manager groups them.

Source: pkg/kubelet/cm/cpumanager/topology/topology.go:Discover.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from topomend.model.bitmask import CPUSet, NUMAMask, mask_of, members
from topomend.model.machine import Core, Machine


@dataclass(frozen=True)
class CPUTopology:
    """CPUs by the id of their element. The numbers per core, socket and cache are averages, as the kubelet's are."""

    cpus: CPUSet
    numa_nodes: Mapping[int, CPUSet]
    sockets: Mapping[int, CPUSet]
    uncore_caches: Mapping[int, CPUSet]
    cores: Mapping[int, CPUSet]
    cores_of_numa_node: Mapping[int, tuple[int, ...]]
    cores_of_socket: Mapping[int, tuple[int, ...]]
    cores_of_uncore_cache: Mapping[int, tuple[int, ...]]
    numa_nodes_of_sockets: tuple[NUMAMask, ...]
    cpus_per_core: int
    cpus_per_socket: int
    cpus_per_uncore_cache: int

    @property
    def numa_first(self) -> bool:
        """Whether NUMA nodes are taken before sockets (cpu_assignment.go:newCPUAccumulator)."""
        return len(self.sockets) >= len(self.numa_nodes)

    @cached_property
    def is_even(self) -> bool:
        """Whether every core, socket and cache has exactly the average number of CPUs."""
        return (
            all(cpus.bit_count() == self.cpus_per_core for cpus in self.cores.values())
            and all(cpus.bit_count() == self.cpus_per_socket for cpus in self.sockets.values())
            and all(cpus.bit_count() == self.cpus_per_uncore_cache for cpus in self.uncore_caches.values())
        )

    @cached_property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """How many CPUs each NUMA node has, reserved ones included."""
        return tuple([(node, cpus.bit_count()) for node, cpus in self.numa_nodes.items()])

    def siblings(self, cpus: CPUSet) -> CPUSet:
        """``cpus`` and all other threads of their cores."""
        together = 0
        for threads in self.cores.values():
            if threads & cpus:
                together |= threads
        return together

    def cpus_of(self, numa_nodes: NUMAMask) -> CPUSet:
        """The CPUs of these NUMA nodes."""
        cpus = 0
        for node in members(numa_nodes):
            cpus |= self.numa_nodes.get(node, 0)
        return cpus

    def numa_nodes_with(self, cpus: CPUSet) -> NUMAMask:
        """The NUMA nodes that have at least one of ``cpus``."""
        return mask_of(node for node, local in self.numa_nodes.items() if local & cpus)


def discover(machine: Machine) -> CPUTopology | str:
    """The topology of a machine, or the error with which the CPU Manager does not start."""
    if not machine.cpus:
        return "could not detect number of cpus"
    if any(not core.threads for core in machine.cores):
        return "no cpus provided"
    return _topology(machine.cores)


@lru_cache(maxsize=256)
def _topology(of: tuple[Core, ...]) -> CPUTopology:
    """The topology of these cores, cached: machines that differ only in their memory share it."""
    machine = Machine((), of)
    cores = {core.id: core.threads for core in sorted(of, key=lambda core: core.id)}
    count = machine.cpus.bit_count()
    sockets, caches = machine.cpus_of_socket, machine.cpus_of_l3_cache
    return CPUTopology(
        cpus=machine.cpus,
        numa_nodes=machine.cpus_of_numa_node,
        sockets=sockets,
        uncore_caches=caches,
        cores=cores,
        cores_of_numa_node=_ids_within(cores, machine.cpus_of_numa_node),
        cores_of_socket=_ids_within(cores, sockets),
        cores_of_uncore_cache=_ids_within(cores, caches),
        numa_nodes_of_sockets=tuple(_numa_mask(of, socket) for socket in sockets),
        cpus_per_core=count // len(machine.cores),
        cpus_per_socket=count // len(sockets),
        cpus_per_uncore_cache=count // len(caches),
    )


def _ids_within(cores: Mapping[int, CPUSet], larger: Mapping[int, CPUSet]) -> dict[int, tuple[int, ...]]:
    return {number: tuple(core for core, threads in cores.items() if threads & cpus) for number, cpus in larger.items()}


def _numa_mask(cores: tuple[Core, ...], socket: int) -> NUMAMask:
    return mask_of({core.numa_node for core in cores if core.socket == socket})
