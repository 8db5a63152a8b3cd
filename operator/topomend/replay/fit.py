"""Whether nodes admit a pod, for thousands of them at once: the yes or no of ``admission.admit``, sooner.

Of a pod that asks for something in one container it can mostly be told from what is free on each NUMA node, which is
read once from each state. Whatever depends on more than that is asked of ``admit``.
"""

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from topomend.model.bitmask import NUMAMask, members
from topomend.model.kubelet import KubeletSettings
from topomend.model.node_state import NodeState
from topomend.model.pod import ContainerKind, Pod
from topomend.model.quantity import MAX_INT64, value
from topomend.replay import qos
from topomend.replay.admission import admit, book_of, pool_of
from topomend.replay.cpu import static as cpu_static
from topomend.replay.devices.manager import numa_mask, universe_of
from topomend.replay.gates import read_gates
from topomend.replay.kubelet import StartedKubelet, start
from topomend.replay.memory import static as memory_static
from topomend.replay.topology.policies import BEST_EFFORT, NONE, SINGLE_NUMA_NODE

_ANY_GATES = read_gates(KubeletSettings())
"""No gate changes the class of a pod without pod-level resources, and no others are asked about."""


class Fit:
    """One pod's answers, remembered by node name for as long as the node's state is the same object."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._need = _need_of(pod)
        self._answers: dict[str, tuple[NodeState, bool]] = {}

    def admits(self, node: NodeState) -> bool:
        """Whether the kubelet of ``node`` would admit the pod: ``admit(node, pod)[0].admitted``."""
        remembered = self._answers.get(node.name)
        if remembered is not None and remembered[0] is node:
            return remembered[1]
        answer = self._told_by_what_is_free(node)
        if answer is None:
            answer = admit(node, self._pod)[0].admitted
        self._answers[node.name] = node, answer
        return answer

    def _told_by_what_is_free(self, node: NodeState) -> bool | None:
        kubelet = start(node.machine, node.kubelet)
        if isinstance(kubelet, str):
            return False
        if self._need is None:
            return None
        name = self._pod.name
        for each in node.pods:
            if each.name == name and each.namespace == self._pod.namespace:
                return None
        return _Question(node, kubelet, _free_of(node), self._need).admits()


@dataclass(frozen=True, slots=True)
class _Need:
    """What a pod asks for in its one container that asks for anything: exclusive CPUs, bytes, devices."""

    cpus: int = 0
    memory: tuple[tuple[str, int], ...] = ()
    devices: tuple[tuple[str, int], ...] = ()


def _need_of(pod: Pod) -> _Need | None:
    """None where more than one container asks, or an init container, or the pod as a whole, or in odd numbers."""
    if pod.resources is not None:
        return None
    pinned = qos.is_guaranteed(pod, _ANY_GATES)
    asking = [each for each in pod.containers if pinned or any(map(_is_extended, each.resources.limits))]
    if not asking:
        return _Need()
    if len(asking) > 1 or asking[0].kind is ContainerKind.INIT:
        return None
    resources = asking[0].resources
    cpus = cpu_static.whole_cpus(resources.requests.get(qos.CPU, 0)) if pinned else 0
    memory = memory_static.bytes_by_resource(resources.requests) if pinned else {}
    devices = {name: value(amount) for name, amount in resources.limits.items() if _is_extended(name)}
    if memory is None or (pinned and qos.MEMORY not in memory):
        return None
    if not all(0 <= amount <= MAX_INT64 for amount in (cpus, *memory.values(), *devices.values())):
        return None
    return _Need(cpus, tuple(memory.items()), tuple(devices.items()))


def _is_extended(resource: str) -> bool:
    """Whether a plugin can offer it (pkg/apis/core/v1/helper:IsExtendedResourceName)."""
    return "/" in resource


@dataclass(frozen=True, slots=True)
class _Space:
    """What is free of something: on each NUMA node, here as its mask, and in total.

    ``widest`` is the most that one NUMA node has when nothing is taken. No NUMA nodes where nothing is aligned.
    """

    nodes: tuple[tuple[NUMAMask, int], ...]
    total: int
    widest: int


class _Told(Enum):
    """What a part of the need comes to by itself."""

    REFUSED = "refused"
    UNCLEAR = "unclear"
    NOT_ALIGNED = "not aligned"


class _Free:
    """What is free on a node in one state, each part read when it is first asked for.

    The state itself is handed in anew each time: what is remembered of it must not keep it alive.
    """

    __slots__ = ("_cpus", "_devices", "_memory")

    def __init__(self) -> None:
        self._cpus: tuple[_Space, int] | None = None
        self._memory: tuple[tuple[int, Mapping[str, int], bool], ...] | None = None
        self._devices: dict[str, _Space | _Told] = {}

    def cpus(self, node: NodeState, policy: cpu_static.StaticPolicy) -> tuple[_Space, int]:
        """CPUs for exclusive use, and how many CPUs are free on cores without a reserved one."""
        if self._cpus is None:
            pool = pool_of(policy, node)
            available = pool & ~policy.reserved
            local = policy.topology.numa_nodes
            nodes = tuple((1 << number, (cpus & available).bit_count()) for number, cpus in local.items())
            widest = max((cpus.bit_count() for cpus in local.values()), default=0)
            space = _Space(nodes, available.bit_count(), widest)
            self._cpus = space, (pool & ~policy.reserved_physical).bit_count()
        return self._cpus

    def memory(
        self, node: NodeState, policy: memory_static.StaticPolicy
    ) -> tuple[tuple[int, Mapping[str, int], bool], ...]:
        """For each NUMA node its id, the free bytes of each resource, and whether it is in a group with others."""
        if self._memory is None:
            pages = book_of(policy, node).nodes.values()
            self._memory = tuple((page.node, page.free, page.cells.bit_count() > 1) for page in pages)
        return self._memory

    def devices(self, node: NodeState, kubelet: StartedKubelet, resource: str) -> _Space | _Told:
        """The devices of a resource, or what comes of asking for it where there are none."""
        if resource not in self._devices:
            self._devices[resource] = _space_of_devices(node, kubelet, resource)
        return self._devices[resource]


def _space_of_devices(node: NodeState, kubelet: StartedKubelet, resource: str) -> _Space | _Told:
    offered = {device.id: device for device in node.devices if device.resource == resource}
    taken: set[str] = set()
    for pod in node.pods:
        for container in pod.containers:
            for held in container.devices:
                if held.resource == resource:
                    taken.update(held.ids)
    total: dict[NUMAMask, int] = {}
    free: dict[NUMAMask, int] = {}
    healthy = aligned = False
    for name, device in offered.items():
        mask = numa_mask(device.numa_nodes)
        total[mask] = total.get(mask, 0) + 1
        healthy = healthy or device.healthy
        aligned = aligned or bool(device.numa_nodes)
        if device.healthy and name not in taken:
            free[mask] = free.get(mask, 0) + 1
    if not healthy:
        return _Told.REFUSED if offered or taken else _Told.NOT_ALIGNED
    if not aligned:
        return _Space((), sum(free.values()), 0)
    bits = [1 << number for number in members(universe_of(total, kubelet.numa.nodes, kubelet.gates))]
    return _Space(
        tuple((bit, _touching(free, bit)) for bit in bits),
        sum(free.values()),
        max(_touching(total, bit) for bit in bits),
    )


def _touching(counts: Mapping[NUMAMask, int], bit: NUMAMask) -> int:
    return sum([count for mask, count in counts.items() if mask & bit])


class _Remembered(weakref.ref[NodeState]):
    """What is free on a node, to be forgotten with its state."""

    __slots__ = ("free", "key")

    key: int
    free: _Free


_remembered: dict[int, _Remembered] = {}


def _forget(remembered: weakref.ref[NodeState]) -> None:
    if isinstance(remembered, _Remembered):
        del _remembered[remembered.key]


def _free_of(node: NodeState) -> _Free:
    """What is free on a node, remembered as long as its state lives."""
    remembered = _remembered.get(id(node))
    if remembered is None:
        remembered = _remembered[id(node)] = _Remembered(node, _forget)
        remembered.key, remembered.free = id(node), _Free()
    return remembered.free


@dataclass(frozen=True, slots=True)
class _Singles:
    """The NUMA nodes that hold a part of the need each on its own.

    ``preferred`` tells whether the Topology Manager prefers single NUMA nodes for it: where one would do if nothing
    were taken.
    """

    nodes: NUMAMask
    preferred: bool


@dataclass(slots=True)
class _Question:
    """A need asked of a node."""

    node: NodeState
    kubelet: StartedKubelet
    free: _Free
    need: _Need

    def admits(self) -> bool | None:
        """Whether the node admits it; None where that does not follow from what is free.

        Where every part prefers single NUMA nodes, all policies but none take the lowest one that holds all of it, and
        all but best-effort refuse where there is none. What a NUMA node holds can then be allocated from it.
        """
        policy = self.node.kubelet.topology_manager_policy
        common, aligned, preferred = self.kubelet.numa.nodes, False, True
        for told in self._parts():
            if isinstance(told, _Singles):
                aligned = True
                common &= told.nodes
                if not common and policy == SINGLE_NUMA_NODE:
                    return False
                preferred = preferred and told.preferred
            elif told is _Told.REFUSED:
                return False
            elif told is _Told.UNCLEAR:
                return None
        if not aligned:
            return True
        if policy == NONE:
            return None if self.kubelet.memory and self.need.memory else True
        if policy == SINGLE_NUMA_NODE:
            return True
        if not preferred or self.kubelet.numa.distances is not None:
            return None
        return True if common else None if policy == BEST_EFFORT else False

    def _parts(self) -> Iterator[_Singles | _Told]:
        if self.need.cpus and self.kubelet.cpu:
            yield self._cpus(self.kubelet.cpu)
        if self.need.memory and self.kubelet.memory:
            yield self._memory(self.kubelet.memory)
        for resource, count in self.need.devices:
            yield self._devices(resource, count)

    def _cpus(self, policy: cpu_static.StaticPolicy) -> _Singles | _Told:
        count, options = self.need.cpus, policy.options
        space, physical = self.free.cpus(self.node, policy)
        if options.full_pcpus_only and (count % policy.topology.cpus_per_core or count > physical):
            return _Told.REFUSED
        if options.distribute_across_numa or options.align_by_socket:
            return _Told.UNCLEAR
        if self.node.kubelet.topology_manager_policy == NONE and space.total < count:
            # Cores that are partly offline are counted whole, and then even this can be admitted.
            return _Told.UNCLEAR
        return _Singles(_holding(space, count), space.widest >= count)

    def _memory(self, policy: memory_static.StaticPolicy) -> _Singles | _Told:
        """Where no NUMA node has enough the Memory Manager may have no preference, but can allocate nothing either.

        A group of NUMA nodes that has enough on one of them is left to the Memory Manager.
        """
        nodes, need = 0, self.need.memory
        preferred = False
        for number, free, grouped in self.free.memory(self.node, policy):
            enough, could = True, policy.allocatable[number]
            would_be_enough = True
            for resource, size in need:
                if resource not in free:
                    return _Told.UNCLEAR
                enough = enough and free[resource] >= size
                would_be_enough = would_be_enough and could[resource] >= size
            preferred = preferred or would_be_enough
            if enough and grouped:
                return _Told.UNCLEAR
            nodes |= enough << number
        return _Singles(nodes, preferred)

    def _devices(self, resource: str, count: int) -> _Singles | _Told:
        space = self.free.devices(self.node, self.kubelet, resource)
        if isinstance(space, _Told):
            return space
        if space.total < count:
            return _Told.REFUSED
        return _Singles(_holding(space, count), space.widest >= count) if space.nodes else _Told.NOT_ALIGNED


def _holding(space: _Space, amount: int) -> NUMAMask:
    """The NUMA nodes that hold so much each on its own."""
    return sum([bit for bit, free in space.nodes if free >= amount])
