"""Where a container's CPUs, memory and devices are: on one NUMA node, in one socket, or further apart.

Judges a container's allocation by its node's published state. Leaves to ``pinning`` why a container has no exclusive
CPUs or pinned memory.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from operator import and_, or_

from topomend.model.bitmask import CPUSet, NUMAMask, lowest, mask_of, members
from topomend.model.devices.claimed_device import CPU_DRIVER, ClaimedDevice
from topomend.model.machine import Machine
from topomend.model.nodes.node_state import ContainerAllocation, DeviceAllocation, NodeState, PodAllocation
from topomend.replay.admission import shared_pool

CPU = "cpu"


class Alignment(Enum):
    """How close together the NUMA nodes of one container are, best first.

    ``FLOATING``: its memory or devices are pinned, but its CPUs are a shared pool that spans other NUMA nodes.
    ``UNPINNED``: it has no allocation, and Linux runs it anywhere. ``UNKNOWN``: the node's state is unknown.
    """

    NUMA_NODE = "numa-node"
    SOCKET = "socket"
    SPLIT = "split"
    FLOATING = "floating"
    UNPINNED = "unpinned"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class AllocatedResource:
    """A container's allocation of one resource.

    ``places`` are the NUMA nodes of its CPUs, of its memory, or of each of its ``devices`` by their order. A device may
    be near several NUMA nodes, and one without a NUMA node has the place 0. The resource of devices that claims gave
    (``claimed``) is their driver.
    """

    resource: str
    places: tuple[NUMAMask, ...]
    devices: tuple[str, ...] = ()
    claimed: bool = False

    @property
    def numa_nodes(self) -> NUMAMask:
        """All NUMA nodes of ``places``."""
        return _union(self.places)


@dataclass(frozen=True, slots=True)
class ContainerAlignment:
    """The alignment of one container.

    ``cpus`` are its exclusive CPUs, 0 if it has none. ``pool`` are the CPUs that it shares with others, 0 if it has
    exclusive ones, from the kubelet or by a claim. ``numa_nodes`` are all that it uses, those of the pool included if
    it is FLOATING. ``distance`` is the largest between two of them as the firmware reports it (10 is local), None if it
    reports none.
    """

    alignment: Alignment
    cpus: CPUSet = 0
    pool: CPUSet = 0
    allocated: tuple[AllocatedResource, ...] = ()
    numa_nodes: NUMAMask = 0
    distance: int | None = None


@dataclass
class Tally:
    """How many containers have each alignment, and the largest of their distances."""

    counts: Counter[Alignment] = field(default_factory=Counter)
    distance: int | None = None

    def add(self, container: ContainerAlignment) -> None:
        """Count one container."""
        self.counts[container.alignment] += 1
        if container.distance is not None:
            self.distance = max(self.distance or 0, container.distance)


def align(
    state: NodeState, pod: PodAllocation | None, name: str, claimed: Sequence[ClaimedDevice] = ()
) -> ContainerAlignment:
    """The alignment of the container ``name`` of a pod. ``pod`` is the pod's allocation; None if it has none.

    ``claimed`` are the devices that the container has by claims.
    """
    allocated = next((container for container in pod.containers if container.name == name), None) if pod else None
    return align_allocation(state, pod or PodAllocation("", ""), allocated or ContainerAllocation(name), claimed)


def align_allocation(
    state: NodeState, pod: PodAllocation, container: ContainerAllocation, claimed: Sequence[ClaimedDevice] = ()
) -> ContainerAlignment:
    """The alignment of a container with the allocation ``container``, in a pod with the allocation ``pod``."""
    machine = state.machine
    cpus = container.cpus or _rest_of(pod)
    has_cpus = bool(cpus) or any(device.driver == CPU_DRIVER for device in claimed)
    pool = 0 if has_cpus else shared_pool(state)
    allocated = (*_allocated(state, cpus, container), *_by_claims(machine, claimed))
    if not allocated:
        return ContainerAlignment(Alignment.UNPINNED, pool=pool)
    numa_nodes = _used(_numa_nodes_of(machine, pool), allocated)
    alignment = _alignment(machine, numa_nodes, has_cpus=has_cpus)
    return ContainerAlignment(alignment, cpus, pool, allocated, numa_nodes, largest_distance(machine, numa_nodes))


def _alignment(machine: Machine, numa_nodes: NUMAMask, *, has_cpus: bool) -> Alignment:
    if numa_nodes.bit_count() <= 1:
        return Alignment.NUMA_NODE
    if not has_cpus:
        return Alignment.FLOATING
    return Alignment.SOCKET if _share_a_socket(machine, numa_nodes) else Alignment.SPLIT


def largest_distance(machine: Machine, numa_nodes: NUMAMask) -> int | None:
    """The largest distance between two of ``numa_nodes``, in either direction; None where one is not known."""
    rows = _distances(machine)
    ids = list(members(numa_nodes))
    if not ids or any(node not in rows for node in ids):
        return None
    return max(rows[node][other] for node in ids for other in ids)


def _rest_of(pod: PodAllocation) -> CPUSet:
    """The CPUs of a pod that holds some as a whole, and that none of its containers has for itself."""
    return pod.cpus & ~_union(container.cpus for container in pod.containers if not container.init)


def _allocated(state: NodeState, cpus: CPUSet, container: ContainerAllocation) -> Iterable[AllocatedResource]:
    if cpus:
        yield AllocatedResource(CPU, (_numa_nodes_of(state.machine, cpus),))
    masks = dict[str, NUMAMask]()
    for block in container.memory:
        masks[block.resource] = masks.get(block.resource, 0) | block.numa_nodes
    for resource, mask in masks.items():
        yield AllocatedResource(resource, (mask,))
    for devices in container.devices:
        places = _places(state, devices)
        yield AllocatedResource(devices.resource, tuple(places.get(name, 0) for name in devices.ids), devices.ids)


def _by_claims(machine: Machine, claimed: Iterable[ClaimedDevice]) -> Iterable[AllocatedResource]:
    """The devices of claims by their drivers. One counts as without a NUMA node that the machine does not have."""
    ids = {node.id for node in machine.numa_nodes}
    by_driver = dict[str, list[ClaimedDevice]]()
    for device in claimed:
        by_driver.setdefault(device.driver, []).append(device)
    for driver, devices in by_driver.items():
        places = tuple(mask_of(ids.intersection((device.numa_node,))) for device in devices)
        yield AllocatedResource(driver, places, tuple(device.device for device in devices), claimed=True)


def _places(state: NodeState, allocated: DeviceAllocation) -> Mapping[str, NUMAMask]:
    """The NUMA nodes of each device, without such as the machine does not have."""
    ids = {node.id for node in state.machine.numa_nodes}
    return {
        device.id: mask_of(ids.intersection(device.numa_nodes or ()))
        for device in state.devices
        if device.resource == allocated.resource and device.id in allocated.ids
    }


def _used(pool: NUMAMask, allocated: Iterable[AllocatedResource]) -> NUMAMask:
    """The NUMA nodes that a container uses, ``pool`` being those of the CPUs that it shares with others.

    A device that is near several NUMA nodes is used from one that the container uses anyway, if there is one.
    """
    allocated = tuple(allocated)
    used = pool | _union(item.numa_nodes for item in allocated if not item.devices)
    near = sorted((place for item in allocated if item.devices for place in item.places if place), key=int.bit_count)
    common = _intersection(near)
    if common and not used:
        return 1 << lowest(common)
    for place in near:
        used |= 0 if place & used else place
    return used


def _numa_nodes_of(machine: Machine, cpus: CPUSet) -> NUMAMask:
    return mask_of(node for node, its in machine.cpus_of_numa_node.items() if its & cpus)


def _share_a_socket(machine: Machine, numa_nodes: NUMAMask) -> bool:
    first, *others = (_sockets_of(machine, node) for node in members(numa_nodes))
    return bool(first.intersection(*others))


def _sockets_of(machine: Machine, node: int) -> frozenset[int]:
    """The sockets of a NUMA node; of one without CPUs, the sockets of the nearest NUMA nodes that have some."""
    own = frozenset(core.socket for core in machine.cores if core.numa_node == node)
    row = _distances(machine).get(node)
    if own or row is None:
        return own
    distances = {other: row[other] for other in machine.cpus_of_numa_node if other in row}
    nearest = {other for other, distance in distances.items() if distance == min(distances.values())}
    return frozenset(core.socket for core in machine.cores if core.numa_node in nearest)


def _distances(machine: Machine) -> Mapping[int, Mapping[int, int]]:
    """By NUMA node its distances by NUMA node; without the nodes that tell another number of them than there are."""
    ids = [node.id for node in machine.numa_nodes]
    return {
        node.id: dict(zip(ids, node.distances, strict=True))
        for node in machine.numa_nodes
        if len(node.distances) == len(ids)
    }


def _union(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)


def _intersection(masks: Sequence[int]) -> int:
    return reduce(and_, masks) if masks else 0
