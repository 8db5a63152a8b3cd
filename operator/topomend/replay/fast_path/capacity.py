"""The free CPUs, memory and devices of a node in one state, on each NUMA node and in total.

The amounts are those that the kubelet's managers count. Each is read once: on the first use, or before it by
``prepare``. ``admission`` compares them with a pod.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from topomend.model.bitmask import NUMAMask, members
from topomend.model.nodes.node_state import NodeState, unavailable_cpus
from topomend.replay import qos
from topomend.replay.admission import machine_state_of, pool_of
from topomend.replay.container_manager import ContainerManager, start
from topomend.replay.cpu import static as cpu_static
from topomend.replay.devices.manager import numa_mask, universe_of
from topomend.replay.memory import static as memory_static


class NUMACapacity(NamedTuple):
    """The free amount of one resource: by the mask of each NUMA node, and in total.

    ``widest`` is the largest amount that one NUMA node has when it is empty. ``nodes`` is empty for a resource without
    alignment.
    """

    nodes: tuple[tuple[NUMAMask, int], ...]
    total: int
    widest: int


class Precheck(Enum):
    """The answer to a request where NUMA nodes are not the answer."""

    REFUSED = "refused"
    UNCLEAR = "unclear"
    NOT_ALIGNED = "not aligned"


class NUMAMemory(NamedTuple):
    """The memory of one NUMA node.

    ``free`` maps each kind of memory to bytes. ``grouped`` is whether a block spans this NUMA node and others,
    ``touched`` whether any block lies on it.
    """

    node: int
    free: Mapping[str, int]
    grouped: bool
    touched: bool


class FreeCapacity:
    """The free amounts of one node state, each read on its first use.

    Every method takes the state again, because what a state keeps must not refer to it.
    """

    __slots__ = ("_cpus", "_devices", "_memory")

    def __init__(self) -> None:
        self._cpus: tuple[NUMACapacity, int, bool] | None = None
        self._memory: tuple[NUMAMemory, ...] | None = None
        self._devices: dict[str, NUMACapacity | Precheck] = {}

    def cpus(self, node: NodeState, policy: cpu_static.StaticPolicy) -> tuple[NUMACapacity, int, bool]:
        """Three answers about exclusive CPUs.

        - Their free amounts.
        - How many CPUs are free on cores without a reserved CPU.
        - Whether the kubelet takes free CPUs only: on uneven cores or sockets it may take reserved ones as well.
        """
        if self._cpus is None:
            pool = pool_of(policy, node)
            available = pool & ~policy.reserved
            local = policy.topology.numa_nodes
            nodes = tuple([(1 << number, (cpus & available).bit_count()) for number, cpus in local.items()])
            space = NUMACapacity(
                nodes, available.bit_count(), max([cpus.bit_count() for cpus in local.values()], default=0)
            )
            physical = (pool & ~policy.reserved_physical).bit_count()
            certain = policy.topology.is_even and (node.cpu_pool is None or not available & unavailable_cpus(node))
            self._cpus = space, physical, certain
        return self._cpus

    def memory(self, node: NodeState, policy: memory_static.StaticPolicy) -> tuple[NUMAMemory, ...]:
        """The memory of each NUMA node."""
        if self._memory is None:
            self._memory = _numa_memory(node, policy)
        return self._memory

    def devices(self, node: NodeState, kubelet: ContainerManager, resource: str) -> NUMACapacity | Precheck:
        """The devices of a resource, or the answer to a request where there are none."""
        if resource not in self._devices:
            self._devices[resource] = _capacity_of_devices(node, kubelet, resource)
        return self._devices[resource]


def _numa_memory(node: NodeState, policy: memory_static.StaticPolicy) -> tuple[NUMAMemory, ...]:
    """The Memory Manager's state, without a copy of it where the published one is complete."""
    numbers = [page.numa_node for page in node.memory or ()]
    if node.memory is not None and sorted(numbers) == sorted(policy.allocatable):
        return tuple(
            [
                NUMAMemory(
                    page.numa_node,
                    {
                        resource: amount - page.reserved.get(resource, 0)
                        for resource, amount in policy.allocatable[page.numa_node].items()
                    },
                    page.cells.bit_count() > 1,
                    page.assignments > 0,
                )
                for page in node.memory
            ]
        )
    pages = machine_state_of(policy, node).nodes.values()
    return tuple([NUMAMemory(page.node, page.free, page.cells.bit_count() > 1, page.assignments > 0) for page in pages])


def _capacity_of_devices(node: NodeState, kubelet: ContainerManager, resource: str) -> NUMACapacity | Precheck:
    if resource in node.stopped_resources:
        return Precheck.REFUSED
    offered = {device.id: device for device in node.devices if device.resource == resource}
    taken = {
        name
        for pod in node.pods
        for container in pod.containers
        for allocation in container.devices
        if allocation.resource == resource
        for name in allocation.ids
    }
    total: dict[NUMAMask, int] = {}
    free: dict[NUMAMask, int] = {}
    healthy = aligned = False
    for name, device in offered.items():
        mask = 0
        if device.numa_nodes:
            aligned, mask = True, numa_mask(device.numa_nodes)
        total[mask] = total.get(mask, 0) + 1
        if device.healthy:
            healthy = True
            if name not in taken:
                free[mask] = free.get(mask, 0) + 1
    if not healthy:
        return Precheck.REFUSED if offered or taken else Precheck.NOT_ALIGNED
    if not aligned:
        return NUMACapacity((), sum(free.values()), 0)
    bits = [1 << number for number in members(universe_of(total, kubelet.numa.nodes, kubelet.gates))]
    return NUMACapacity(
        tuple([(bit, _touching(free, bit)) for bit in bits]),
        sum(free.values()),
        max([_touching(total, bit) for bit in bits]),
    )


def _touching(counts: Mapping[NUMAMask, int], bit: NUMAMask) -> int:
    return sum([count for mask, count in counts.items() if mask & bit])


def free_capacity_of(node: NodeState) -> FreeCapacity:
    """The free amounts of the node, kept with its state."""
    return node.kept(FreeCapacity)


def prepare(node: NodeState) -> None:
    """Read the free amounts of a node whose state has arrived, so that the first pod need not wait for it."""
    kubelet = start(node.machine, node.kubelet)
    if isinstance(kubelet, str):
        return
    free = free_capacity_of(node)
    if kubelet.cpu:
        free.cpus(node, kubelet.cpu)
    if kubelet.memory:
        free.memory(node, kubelet.memory)
    for resource in {device.resource for device in node.devices}:
        free.devices(node, kubelet, resource)


def free_amounts(node: NodeState) -> dict[str, tuple[int, int]]:
    """Of each resource that a manager allocates, what is free in all, and on one NUMA node at most.

    In CPUs, bytes and devices. Empty for a node whose kubelet would not start.
    """
    kubelet = start(node.machine, node.kubelet)
    if isinstance(kubelet, str):
        return {}
    amounts: dict[str, tuple[int, int]] = {}
    capacity = free_capacity_of(node)
    if kubelet.cpu:
        cpus, _, _ = capacity.cpus(node, kubelet.cpu)
        amounts[qos.CPU] = cpus.total, _largest(cpus)
    if kubelet.memory:
        pages = [page.free for page in capacity.memory(node, kubelet.memory)]
        for resource in dict.fromkeys(resource for free in pages for resource in free):
            sizes = [max(0, free.get(resource, 0)) for free in pages]
            amounts[resource] = sum(sizes), max(sizes)
    for resource in dict.fromkeys(device.resource for device in node.devices):
        devices = capacity.devices(node, kubelet, resource)
        if isinstance(devices, NUMACapacity):
            amounts[resource] = devices.total, _largest(devices)
    return amounts


def _largest(capacity: NUMACapacity) -> int:
    """Of a resource without alignment, any amount is as good as one on one NUMA node."""
    return max((amount for _, amount in capacity.nodes), default=capacity.total)
