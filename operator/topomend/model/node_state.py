"""A node as admission sees it at one moment: its machine, its kubelet's settings, its devices, and who holds what."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from topomend.model.bitmask import CPUSet, NUMAMask
from topomend.model.kubelet import KubeletSettings
from topomend.model.machine import Machine


@dataclass(frozen=True, slots=True)
class Device:
    """One device that a plugin offers.

    ``numa_nodes`` is None where the plugin gave no topology. A plugin may also name a node that does not exist
    (commonly -1): the kubelet then counts the resource as NUMA-aware although the device fits nowhere.
    """

    resource: str
    id: str
    numa_nodes: tuple[int, ...] | None = None
    healthy: bool = True


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """Memory or huge pages that the Memory Manager pinned: ``size`` bytes over the NUMA nodes of the mask."""

    resource: str
    numa_nodes: NUMAMask
    size: int


@dataclass(frozen=True, slots=True)
class DeviceAllocation:
    """The devices of one resource that a container holds, by id."""

    resource: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContainerAllocation:
    """What one container holds exclusively; ``init`` is true for an init container that is not a sidecar."""

    name: str
    init: bool = False
    cpus: CPUSet = 0
    memory: tuple[MemoryBlock, ...] = ()
    devices: tuple[DeviceAllocation, ...] = ()


@dataclass(frozen=True, slots=True)
class PodAllocation:
    """What one active pod holds. ``uid`` is empty where the source does not tell it (pod-resources does not).

    ``cpus`` and ``memory`` are what the pod holds as a whole where the managers act on pod-level resources; its
    containers' shares are then parts of it and may overlap.
    """

    namespace: str
    name: str
    uid: str = ""
    containers: tuple[ContainerAllocation, ...] = ()
    cpus: CPUSet = 0
    memory: tuple[MemoryBlock, ...] = ()


@dataclass(frozen=True)
class NUMANodeMemory:
    """The Memory Manager's book for one NUMA node (memorymanager/state:NUMANodeState).

    ``assignments`` counts blocks that touch the node, ``cells`` is the group of nodes it belongs to (itself alone when
    free), ``reserved`` is what blocks hold of each resource, in bytes.
    """

    numa_node: int
    assignments: int
    cells: NUMAMask
    reserved: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeState:
    """Everything replay needs to know of a node, and nothing else.

    ``memory`` is the Memory Manager's own book where it could be read; None has replay rebuild it from the blocks of
    ``pods``, which is exact for blocks on one NUMA node and in total for groups. ``cpu_pool`` is the CPU Manager's
    shared pool (``defaultCpuSet``) where it is known; None stands for every CPU that no container holds.
    """

    name: str
    machine: Machine
    kubelet: KubeletSettings = field(default_factory=KubeletSettings)
    devices: tuple[Device, ...] = ()
    pods: tuple[PodAllocation, ...] = ()
    memory: tuple[NUMANodeMemory, ...] | None = None
    cpu_pool: CPUSet | None = None


def allocations(pods: Iterable[PodAllocation]) -> Iterator[ContainerAllocation]:
    """The container allocations of all ``pods``, in order."""
    for pod in pods:
        yield from pod.containers


def held_cpus(state: NodeState) -> CPUSet:
    """The CPUs that are reserved or that a pod or a container holds exclusively."""
    held = state.kubelet.reserved_cpus or 0
    for pod in state.pods:
        held |= pod.cpus
        for container in pod.containers:
            held |= container.cpus
    return held


def free_cpus(state: NodeState, reserved: CPUSet = 0) -> dict[int, int]:
    """How many CPUs of each NUMA node nobody holds; ``reserved`` are those that the kubelet picked itself, where its
    settings name an amount alone."""
    free = ~(held_cpus(state) | reserved)
    return {node: (cpus & free).bit_count() for node, cpus in state.machine.cpus_of_numa_node.items()}


def largest_hole(state: NodeState) -> int:
    """The most CPUs that nobody holds on one NUMA node; 0 where there are none."""
    return max(free_cpus(state).values(), default=0)


def emptied(state: NodeState) -> NodeState:
    """The node as it would be without any pod."""
    return replace(state, pods=(), memory=None, cpu_pool=None)
