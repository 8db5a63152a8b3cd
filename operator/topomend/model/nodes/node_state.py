"""A node as admission sees it at one moment: machine, kubelet settings, devices, and the allocations of pods."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from topomend.model.bitmask import CPUSet, NUMAMask
from topomend.model.keeping import Keeping
from topomend.model.machine import Machine
from topomend.model.nodes.kubelet import KubeletSettings


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a device plugin.

    ``numa_nodes`` is None if the plugin reports no topology. A plugin may also report a NUMA node that does not exist
    (commonly -1). The kubelet then counts the resource as NUMA-aware, and the device fits no mask.
    """

    resource: str
    id: str
    numa_nodes: tuple[int, ...] | None = None
    healthy: bool = True


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """Memory or huge pages allocated by the Memory Manager: ``size`` bytes over the NUMA nodes of the mask."""

    resource: str
    numa_nodes: NUMAMask
    size: int


@dataclass(frozen=True, slots=True)
class DeviceAllocation:
    """The devices of one resource that are allocated to a container, by id."""

    resource: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContainerAllocation:
    """The exclusive resources of one container. ``init`` is true for an init container that is not a sidecar."""

    name: str
    init: bool = False
    cpus: CPUSet = 0
    memory: tuple[MemoryBlock, ...] = ()
    devices: tuple[DeviceAllocation, ...] = ()


@dataclass(frozen=True, slots=True)
class PodAllocation:
    """The exclusive resources of one active pod. ``uid`` is empty if it is unknown: pod-resources does not return it.

    ``cpus`` and ``memory`` are the pod's allocations under pod-level resource managers. Those of its containers are
    then parts of them, and may overlap.
    """

    namespace: str
    name: str
    uid: str = ""
    containers: tuple[ContainerAllocation, ...] = ()
    cpus: CPUSet = 0
    memory: tuple[MemoryBlock, ...] = ()


class InitialContainer(NamedTuple):
    """A container that a kubelet found in its runtime when it started: of which pod, its name, whether it ran.

    One name may be found several times, for every instance that is still there.
    Source: pkg/kubelet/cm/container_manager_linux.go:buildContainerMapAndRunningSetFromRuntime.
    """

    pod_uid: str
    name: str
    running: bool


@dataclass(frozen=True)
class NUMANodeMemory:
    """The Memory Manager's state of one NUMA node (memorymanager/state:NUMANodeState).

    ``assignments`` counts the blocks that use the NUMA node. ``cells`` is its group, itself alone outside of any.
    ``reserved`` are the allocated bytes of each resource.
    """

    numa_node: int
    assignments: int
    cells: NUMAMask
    reserved: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeState(Keeping):
    """The facts that replay needs about a node, and nothing else.

    ``memory`` is the Memory Manager's machine state. If it is None, replay derives it from the blocks of ``pods``,
    which is exact for blocks on one NUMA node, and for the totals of groups. ``cpu_pool`` is the CPU Manager's shared
    pool (``defaultCpuSet``). None stands for all CPUs that are not allocated exclusively.

    Two fields tell of a kubelet that has restarted; no agent publishes them. ``stopped_resources`` are those whose
    plugin had registered and is not back: the kubelet knows the resource and none of its ``devices``.
    ``initial_containers`` are what it found in its runtime, until its sources of pods are all ready; None from then on.
    """

    name: str
    machine: Machine
    kubelet: KubeletSettings = field(default_factory=KubeletSettings)
    devices: tuple[Device, ...] = ()
    pods: tuple[PodAllocation, ...] = ()
    memory: tuple[NUMANodeMemory, ...] | None = None
    cpu_pool: CPUSet | None = None
    stopped_resources: frozenset[str] = frozenset()
    initial_containers: tuple[InitialContainer, ...] | None = None

    @cached_property
    def pod_names(self) -> frozenset[str]:
        """The names of the pods, in any namespace."""
        return frozenset([pod.name for pod in self.pods])

    @cached_property
    def most_free_cpus(self) -> int:
        """The most free CPUs on one NUMA node; 0 without any."""
        return max(free_cpus(self).values(), default=0)

    def holds(self, namespace: str, name: str) -> bool:
        """Whether a pod of this name has an allocation."""
        return name in self.pod_names and any((pod.namespace, pod.name) == (namespace, name) for pod in self.pods)


def restarted(
    state: NodeState, containers: Iterable[InitialContainer], stopped_resources: Iterable[str] = ()
) -> NodeState:
    """The node whose kubelet has just restarted and found ``containers``, and the plugins of these resources gone."""
    return replace(
        state,
        stopped_resources=state.stopped_resources | frozenset(stopped_resources),
        initial_containers=tuple(containers),
    )


def allocations(pods: Iterable[PodAllocation]) -> Iterator[ContainerAllocation]:
    """The container allocations of all ``pods``, in order."""
    for pod in pods:
        yield from pod.containers


def unavailable_cpus(state: NodeState) -> CPUSet:
    """The CPUs that are reserved, or allocated to a pod or a container."""
    unavailable = state.kubelet.reserved_cpus or 0
    for pod in state.pods:
        unavailable |= pod.cpus
        for container in pod.containers:
            unavailable |= container.cpus
    return unavailable


def free_cpus(state: NodeState, reserved: CPUSet = 0) -> dict[int, int]:
    """The number of CPUs of each NUMA node that are neither reserved nor allocated.

    ``reserved`` are the CPUs that the kubelet chose itself, if its settings name only an amount.
    """
    free = ~(unavailable_cpus(state) | reserved)
    return {node: (cpus & free).bit_count() for node, cpus in state.machine.cpus_of_numa_node.items()}


def emptied(state: NodeState) -> NodeState:
    """The node without any pod."""
    return replace(state, pods=(), memory=None, cpu_pool=None)
