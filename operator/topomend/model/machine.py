"""A NUMA machine as the kubelet sees it through cadvisor, with its PCI devices and other hardware."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import NamedTuple

from topomend.model.bitmask import CPUSet, NUMAMask, lowest, mask_of
from topomend.model.keeping import Keeping


@dataclass(frozen=True, slots=True)
class HugePages:
    """The huge pages of one size on one NUMA node. ``size`` in bytes, ``count`` in pages, used or free.

    ``free`` is the number of unused pages. It changes all the time, so it is None unless it was requested.
    """

    size: int
    count: int
    free: int | None = None

    @property
    def resource(self) -> str:
        """The resource name, for example ``hugepages-2Mi`` (pkg/apis/core/v1/helper: HugePageResourceName)."""
        return hugepage_resource(self.size)


def hugepage_resource(size: int) -> str:
    """The resource name of huge pages of ``size`` bytes, in the API's canonical binary form."""
    for shift, suffix in ((40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"hugepages-{size >> shift}{suffix}"
    return f"hugepages-{size}"


@dataclass(frozen=True, slots=True)
class NUMANode:
    """One NUMA node. ``memory`` is the node's MemTotal in bytes, huge pages included.

    ``distances`` are the entries of the node's sysfs ``distance`` file in their order: one for each NUMA node that is
    online, ascending by id. Empty where the file could not be read. ``gpu`` is the PCI address of the GPU whose own
    memory this is; empty for the machine's memory.
    """

    id: int
    memory: int
    hugepages: tuple[HugePages, ...] = ()
    distances: tuple[int, ...] = ()
    gpu: str = ""


@dataclass(frozen=True, slots=True)
class Core:
    """One physical core: its online hardware threads, its socket and its NUMA node.

    ``l3_cache`` is the id of its last-level ("uncore") cache. It is None if sysfs has none; the kubelet then takes the
    socket for the cache (pkg/kubelet/cm/cpumanager/topology:getUncoreCacheID).
    """

    threads: CPUSet
    socket: int
    numa_node: int
    l3_cache: int | None = None

    @property
    def id(self) -> int:
        """The kubelet's core id: the lowest of its thread ids (topology.go:getUniqueCoreID)."""
        return lowest(self.threads)


class CoreKind(NamedTuple):
    """CPUs of one kind on a machine with several kinds of cores.

    ``name`` is the kernel's name of the kind (``core``, ``atom``, ``lowpower``), empty if it has none. ``capacity`` is
    the relative performance of such a CPU, 1024 for the machine's strongest; None if it is unknown.
    """

    cpus: CPUSet
    name: str = ""
    capacity: int | None = None


class Hardware(NamedTuple):
    """Facts that Linux knows about the processors and the kubelet ignores, or groups differently.

    CPUs are sets of online CPUs, ascending by their lowest.

    - ``cores``, ``sockets``: empty if the kubelet groups the CPUs into the same ones.
    - ``dies``: empty if each socket has one die.
    - ``clusters``: groups of several cores of a die that share a level-2 cache or a tag.
    - ``l3_caches``: all of them; ``Core.l3_cache`` has only those that the kubelet considers.
    - ``reserved_hugepages``: promised to processes and not yet used, over all NUMA nodes.
    """

    cores: tuple[CPUSet, ...] = ()
    sockets: tuple[CPUSet, ...] = ()
    dies: tuple[CPUSet, ...] = ()
    clusters: tuple[CPUSet, ...] = ()
    l3_caches: tuple[CPUSet, ...] = ()
    core_kinds: tuple[CoreKind, ...] = ()
    nohz_full: CPUSet = 0
    reserved_hugepages: tuple[HugePages, ...] = ()


UNKNOWN_HARDWARE = Hardware()
"""Nothing is known but what the kubelet knows."""


class PCILink(NamedTuple):
    """A PCI Express link: speeds in GT/s, widths in lanes; None if sysfs does not have the value."""

    speed: float | None = None
    width: int | None = None
    max_speed: float | None = None
    max_width: int | None = None


class PCIDevice(NamedTuple):
    """One PCI function and its place in the machine.

    - ``address``: ``domain:bus:device.function``.
    - ``pci_class``, ``vendor_id``, ``device_id``: the numbers of its configuration space. ``vendor_name`` and
      ``device_name`` are empty without a hardware database.
    - ``numa_node``: None if neither the kernel nor its place in the tree determines it. ``numa_source``: the source.
    - ``path``: the bridges above it, root first: the root port, then the ports of switches.
    - ``virtual_functions``, ``max_virtual_functions``: in use, and supported, of a physical function (SR-IOV).
      ``physical_function``: the address of a virtual function's physical one.
    - ``names``: its network interfaces, disks and accelerators.
    """

    address: str
    pci_class: int
    vendor_id: int
    device_id: int
    vendor_name: str = ""
    device_name: str = ""
    driver: str = ""
    numa_node: int | None = None
    numa_source: str = ""
    path: tuple[str, ...] = ()
    iommu_group: int | None = None
    physical_function: str = ""
    link: PCILink | None = None
    names: tuple[str, ...] = ()
    virtual_functions: int = 0
    max_virtual_functions: int = 0

    @property
    def kind(self) -> str:
        """What it is for: accelerator, network, storage, bridge, or empty for anything else (PCI Code and ID)."""
        return _KINDS.get(self.pci_class >> 8) or _KINDS.get(self.pci_class >> 16, "")

    @property
    def root_complex(self) -> str:
        """Its root bus, by sysfs' name of the host bridge: ``pci0000:3a``."""
        return f"pci{(*self.path, self.address)[0].rpartition(':')[0]}"


_KINDS = {
    0x01: "storage",
    0x02: "network",
    0x03: "accelerator",
    0x06: "bridge",
    0x12: "accelerator",
    0x0B40: "accelerator",
    0x0C04: "storage",
    0x0C06: "network",
}
"""The kinds by the first byte of the class, or by its first two bytes. A display controller counts as a GPU."""


@dataclass(frozen=True)
class Machine(Keeping):
    """NUMA nodes ascending by id, and the cores that are online.

    A NUMA node without cores is CPU-less; one without memory has ``memory == 0``.
    """

    numa_nodes: tuple[NUMANode, ...]
    cores: tuple[Core, ...]
    offline: CPUSet = 0
    isolated: CPUSet = 0
    pci_devices: tuple[PCIDevice, ...] = ()
    hardware: Hardware = UNKNOWN_HARDWARE

    @cached_property
    def cpus(self) -> CPUSet:
        """Every online CPU."""
        return reduce(or_, (core.threads for core in self.cores), 0)

    @cached_property
    def numa_mask(self) -> NUMAMask:
        """Every NUMA node, CPU-less ones included."""
        return mask_of(node.id for node in self.numa_nodes)

    @cached_property
    def cpus_of_numa_node(self) -> Mapping[int, CPUSet]:
        """The CPUs of each NUMA node that has any, ascending by id."""
        return _cpus_by(self.cores, lambda core: core.numa_node)

    @cached_property
    def cpus_of_socket(self) -> Mapping[int, CPUSet]:
        """The CPUs of each socket, ascending by id."""
        return _cpus_by(self.cores, lambda core: core.socket)

    @cached_property
    def cpus_of_l3_cache(self) -> Mapping[int, CPUSet]:
        """The CPUs of each L3 cache by the kubelet's rule: a core without a known cache has its socket's id."""
        return _cpus_by(self.cores, lambda core: core.socket if core.l3_cache is None else core.l3_cache)

    @cached_property
    def memory_only(self) -> NUMAMask:
        """The NUMA nodes without CPUs."""
        return self.numa_mask & ~mask_of(self.cpus_of_numa_node)


def _cpus_by(cores: Iterable[Core], key: Callable[[Core], int]) -> Mapping[int, CPUSet]:
    sets: dict[int, CPUSet] = {}
    for core in cores:
        sets[key(core)] = sets.get(key(core), 0) | core.threads
    return dict(sorted(sets.items()))
