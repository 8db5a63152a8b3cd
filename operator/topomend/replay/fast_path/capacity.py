"""What is free on a node in one state: CPUs, memory and devices, on each NUMA node and in total.

Each part is read once, as the kubelet's managers would count it: when it is first asked for, at best before, as the
state arrives (``prepare``). What a pod comes to by it is told beside it (``fit``).
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from topomend.model.bitmask import NUMAMask, members
from topomend.model.node_state import NodeState, held_cpus
from topomend.replay.admission import book_of, pool_of
from topomend.replay.container_manager import ContainerManager, start
from topomend.replay.cpu import static as cpu_static
from topomend.replay.devices.manager import numa_mask, universe_of
from topomend.replay.identity_cache import IdentityCache
from topomend.replay.memory import static as memory_static


class Space(NamedTuple):
    """What is free of something: on each NUMA node, here as its mask, and in total.

    ``widest`` is the most that one NUMA node has when nothing is taken. No NUMA nodes where nothing is aligned.
    """

    nodes: tuple[tuple[NUMAMask, int], ...]
    total: int
    widest: int


class Precheck(Enum):
    """What asking for something comes to where no NUMA nodes are the answer."""

    REFUSED = "refused"
    UNCLEAR = "unclear"
    NOT_ALIGNED = "not aligned"


class Page(NamedTuple):
    """The memory of a NUMA node: its id, the free bytes of each resource, whether it is in a group with others, and
    whether any block touches it."""

    node: int
    free: Mapping[str, int]
    grouped: bool
    touched: bool


class Free:
    """What is free on a node in one state, each part read when it is first asked for.

    The state itself is handed in anew each time: what is remembered of it must not keep it alive.
    """

    __slots__ = ("_cpus", "_devices", "_memory", "_names")

    def __init__(self) -> None:
        self._cpus: tuple[Space, int, bool] | None = None
        self._memory: tuple[Page, ...] | None = None
        self._devices: dict[str, Space | Precheck] = {}
        self._names: frozenset[str] | None = None

    def holds(self, node: NodeState, namespace: str, name: str) -> bool:
        """Whether a pod of this name holds something."""
        if self._names is None:
            self._names = frozenset([each.name for each in node.pods])
        return name in self._names and any((each.namespace, each.name) == (namespace, name) for each in node.pods)

    def cpus(self, node: NodeState, policy: cpu_static.StaticPolicy) -> tuple[Space, int, bool]:
        """CPUs for exclusive use, how many CPUs are free on cores without a reserved one, and whether only CPUs that
        nobody holds will be taken: where cores or sockets are uneven the kubelet may take reserved ones, too."""
        if self._cpus is None:
            pool = pool_of(policy, node)
            available = pool & ~policy.reserved
            local = policy.topology.numa_nodes
            nodes = tuple([(1 << number, (cpus & available).bit_count()) for number, cpus in local.items()])
            space = Space(nodes, available.bit_count(), max([cpus.bit_count() for cpus in local.values()], default=0))
            physical = (pool & ~policy.reserved_physical).bit_count()
            certain = policy.topology.is_even and (node.cpu_pool is None or not available & held_cpus(node))
            self._cpus = space, physical, certain
        return self._cpus

    def memory(self, node: NodeState, policy: memory_static.StaticPolicy) -> tuple[Page, ...]:
        """The memory of each NUMA node."""
        if self._memory is None:
            self._memory = _pages(node, policy)
        return self._memory

    def devices(self, node: NodeState, kubelet: ContainerManager, resource: str) -> Space | Precheck:
        """The devices of a resource, or what comes of asking for it where there are none."""
        if resource not in self._devices:
            self._devices[resource] = _space_of_devices(node, kubelet, resource)
        return self._devices[resource]


def _pages(node: NodeState, policy: memory_static.StaticPolicy) -> tuple[Page, ...]:
    """What the Memory Manager's book says, read without one where that is as good."""
    numbers = [page.numa_node for page in node.memory or ()]
    if node.memory is not None and sorted(numbers) == sorted(policy.allocatable):
        return tuple(
            [
                Page(
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
    pages = book_of(policy, node).nodes.values()
    return tuple([Page(page.node, page.free, page.cells.bit_count() > 1, page.assignments > 0) for page in pages])


def _space_of_devices(node: NodeState, kubelet: ContainerManager, resource: str) -> Space | Precheck:
    offered = {device.id: device for device in node.devices if device.resource == resource}
    taken = {
        name
        for pod in node.pods
        for container in pod.containers
        for held in container.devices
        if held.resource == resource
        for name in held.ids
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
        return Space((), sum(free.values()), 0)
    bits = [1 << number for number in members(universe_of(total, kubelet.numa.nodes, kubelet.gates))]
    return Space(
        tuple([(bit, _touching(free, bit)) for bit in bits]),
        sum(free.values()),
        max([_touching(total, bit) for bit in bits]),
    )


def _touching(counts: Mapping[NUMAMask, int], bit: NUMAMask) -> int:
    return sum([count for mask, count in counts.items() if mask & bit])


_free: IdentityCache[NodeState, Free] = IdentityCache(Free)


def free_of(node: NodeState) -> Free:
    """What is free on the node, remembered with its state."""
    return _free.of(node)


def prepare(node: NodeState) -> None:
    """Read what is free on a node as its state arrives, so that the first question need not."""
    kubelet = start(node.machine, node.kubelet)
    if isinstance(kubelet, str):
        return
    free = free_of(node)
    if kubelet.cpu:
        free.cpus(node, kubelet.cpu)
    if kubelet.memory:
        free.memory(node, kubelet.memory)
    for resource in {device.resource for device in node.devices}:
        free.devices(node, kubelet, resource)
