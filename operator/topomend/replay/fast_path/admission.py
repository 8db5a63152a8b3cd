"""Whether a node admits a pod: the answer of ``admission.admit``, from the free amounts of each NUMA node alone.

This works for pods of which one container asks for exclusive CPUs, memory or devices. ``capacity`` reads the free
amounts. Everything else goes to ``admit``.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple, NewType

from topomend.base.bounded_dict import BoundedDict
from topomend.model.bitmask import NUMAMask
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import ContainerKind, Pod, Resources, is_extended
from topomend.model.quantity import MAX_INT64, value
from topomend.replay import qos
from topomend.replay.admission import admit
from topomend.replay.container_manager import ContainerManager, start
from topomend.replay.cpu import static as cpu_static
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.errors import TOPOLOGY_AFFINITY_ERROR
from topomend.replay.fast_path.capacity import FreeCapacity, NUMACapacity, NUMAMemory, Precheck, free_capacity_of
from topomend.replay.gates import read_gates
from topomend.replay.memory import static as memory_static
from topomend.replay.topology.numa_allocation_strategy import NONE as NO_STRATEGY
from topomend.replay.topology.policy_names import BEST_EFFORT, NONE, RESTRICTED, SINGLE_NUMA_NODE
from topomend.replay.topology.walk_time import MAX_LISTED_NODES, is_too_long

MAX_ANSWERS = 16
"""How many pod shapes a node's state remembers its answer for; the oldest answer goes first."""

_ANY_GATES = read_gates(KubeletSettings())
"""No gate changes the QoS class of a pod without pod-level resources, and other pods go to ``admit``."""


@dataclass(frozen=True, slots=True)
class FastPlacement:
    """Where an admitted pod goes: the NUMA nodes that its containers are aligned to, none without alignment.

    ``preferred`` is whether every container's affinity is preferred. ``cpus`` is the number of exclusive CPUs, which
    all lie on ``numa_nodes`` unless that is empty.
    """

    numa_nodes: NUMAMask
    preferred: bool
    cpus: int


@dataclass(frozen=True, slots=True)
class FastRefusal:
    """The Topology Manager's refusal: its reason, and the resources that fit on no NUMA node.

    If each resource fits on some NUMA node, but no NUMA node fits all of them, ``lacking`` names all.
    """

    reason: str
    lacking: tuple[str, ...]


class FastAdmission:
    """One pod's answers. Each node state keeps its answer for all pods of the same shape."""

    def __init__(self, pod: Pod, effort: Effort = UNLIMITED) -> None:
        self.pod, self.effort = pod, effort
        self._need = _need_of(pod)
        self.shape = shape_of(content_of(pod))

    @property
    def is_replayed(self) -> bool:
        """Whether free amounts never decide, so that each node is asked by ``admit``."""
        return self._need is None

    def admits(self, node: NodeState) -> bool:
        """Whether the kubelet of ``node`` would admit the pod: ``admit(node, pod)[0].admitted``."""
        if self.is_on(node):
            return admit(node, self.pod, self.effort)[0].admitted
        answers = node.kept(_Answers)
        answer = answers.get(self.shape)
        if answer is None:
            answer = self._from_free_capacity(node)
            if answer is None:
                answer = admit(node, self.pod, self.effort)[0].admitted
            answers[self.shape] = answer
        return answer

    def is_on(self, node: NodeState) -> bool:
        """Whether no other pod shares its answer: a pod of this name has an allocation there, or may run there."""
        return node.initial_containers is not None or node.holds(self.pod.namespace, self.pod.name)

    def outcome(self, node: NodeState) -> FastPlacement | FastRefusal | None:
        """The placement or refusal of ``admit``; None where only ``admit`` can decide."""
        check = self._node_check(node)
        return check.outcome(self.pod) if isinstance(check, _NodeCheck) else None

    def _from_free_capacity(self, node: NodeState) -> bool | None:
        check = self._node_check(node)
        return check.admits() if isinstance(check, _NodeCheck) else check

    def _node_check(self, node: NodeState) -> "_NodeCheck | bool | None":
        """The question for this node; or the answer where the need does not matter, None where ``admit`` decides."""
        kubelet = start(node.machine, node.kubelet)
        if isinstance(kubelet, str):
            return False
        if self._need is None or kubelet.numa.nodes >> 64 or self.is_on(node):
            return None
        if kubelet.numa.nodes.bit_count() > MAX_LISTED_NODES:
            return None
        return _NodeCheck(node, kubelet, free_capacity_of(node), self._need)


PodShape = NewType("PodShape", bytes)
"""Of all pods with the same containers and resources, whatever their names: a digest, quick to compare and small."""


@lru_cache(maxsize=256)
def shape_of(content: Hashable) -> PodShape:
    """The shape of all pods with this content, whose ``repr`` has all of it."""
    return PodShape(blake2b(repr(content).encode(), digest_size=16).digest())


def content_of(pod: Pod) -> Hashable:
    """All of a pod but its name and uid by which a node's answer differs."""
    containers = tuple((container.name, container.kind, _amounts(container.resources)) for container in pod.containers)
    return containers, pod.qos_class, pod.resources and _amounts(pod.resources), pod.single_numa_node


def _amounts(resources: Resources) -> Hashable:
    return tuple(resources.requests.items()), tuple(resources.limits.items())


@dataclass(frozen=True, slots=True)
class _Need:
    """The request of the one container that requests anything: exclusive CPUs, bytes, devices."""

    cpus: int = 0
    memory: tuple[tuple[str, int], ...] = ()
    devices: tuple[tuple[str, int], ...] = ()


def _need_of(pod: Pod) -> _Need | None:
    """The pod's need; None where the fast path does not apply.

    It does not where several containers request something, where the one that does is an init container, with
    pod-level resources, and with amounts that the kubelet cannot represent.
    """
    if pod.resources is not None:
        return None
    pinned = qos.is_guaranteed(pod, _ANY_GATES)
    asking = [container for container in pod.containers if pinned or any(map(is_extended, container.resources.limits))]
    if not asking:
        return _Need()
    if len(asking) > 1 or asking[0].kind is not ContainerKind.APP:
        return None
    resources = asking[0].resources
    cpus = cpu_static.whole_cpus(resources.requests.get(qos.CPU, 0)) if pinned else 0
    memory = memory_static.bytes_by_resource(resources.requests) if pinned else {}
    devices = {name: value(amount) for name, amount in resources.limits.items() if is_extended(name)}
    if memory is None or (pinned and qos.MEMORY not in memory):
        return None
    if not all(0 <= amount <= MAX_INT64 for amount in (cpus, *memory.values(), *devices.values())):
        return None
    return _Need(cpus, tuple(memory.items()), tuple(sorted(devices.items())))


class _Answers(BoundedDict[PodShape, bool]):
    """What a state answers to the last kinds of pods."""

    def __init__(self) -> None:
        super().__init__(MAX_ANSWERS)


class _SingleNodes(NamedTuple):
    """The NUMA nodes that each have enough of one resource.

    ``preferred`` is whether the Topology Manager prefers single NUMA nodes for it: whether one would have enough if it
    were empty. ``impossible`` is whether no mask has enough, however wide.
    """

    nodes: NUMAMask
    preferred: bool
    impossible: bool = False


@dataclass(slots=True)
class _NodeCheck:
    """Whether one node meets one need.

    ``admits`` sets ``aligned``, whether any resource is aligned, and ``common``, the NUMA nodes with enough of each
    aligned resource.
    """

    node: NodeState
    kubelet: ContainerManager
    free: FreeCapacity
    need: _Need
    aligned: bool = False
    common: NUMAMask = 0

    def admits(self) -> bool | None:
        """Whether the node admits the pod; None where the free amounts do not decide.

        If every resource prefers single NUMA nodes, each policy but none takes the lowest NUMA node with enough of
        all. Without such a node restricted and single-numa-node refuse.
        """
        policy = self.node.kubelet.topology_manager_policy
        common, aligned, preferred = self.kubelet.numa.nodes, False, True
        for _, precheck in self._parts():
            if isinstance(precheck, _SingleNodes):
                aligned = True
                common &= precheck.nodes
                if precheck.impossible or (not common and policy == SINGLE_NUMA_NODE):
                    return False
                preferred = preferred and precheck.preferred
            elif precheck is Precheck.REFUSED:
                return False
            elif precheck is Precheck.UNCLEAR:
                return None
        self.aligned, self.common = aligned, common
        if not aligned:
            return True
        if policy == NONE:
            return None if self.kubelet.memory and self.need.memory else True
        if policy == SINGLE_NUMA_NODE:
            return True
        numa = self.kubelet.numa
        if not preferred or numa.distances is not None or (self._may_hang() and not (common and numa.preferred_first)):
            return None
        return True if common else None if policy == BEST_EFFORT else False

    def _may_hang(self) -> bool:
        """Whether the kubelet's walk could take too long (``KubeletWouldHang``) if every hint list were full."""
        lists = len(self.need.devices) + len(self.need.memory) + 1
        return is_too_long(((1 << self.kubelet.numa.nodes.bit_count()) - 1) ** lists)

    def outcome(self, pod: Pod) -> FastPlacement | FastRefusal | None:
        """The placement or the refusal; None where the free amounts do not decide both answer and reason."""
        admitted = self.admits()
        if admitted is None or not pod.containers:
            return None
        return self._placement(pod) if admitted else self._refusal()

    def _placement(self, pod: Pod) -> FastPlacement | None:
        """Containers that ask for nothing are aligned to all NUMA nodes, under single-numa-node to none."""
        kubelet, settings = self.kubelet, self.node.kubelet
        policy, every = settings.topology_manager_policy, kubelet.numa.nodes
        cpus = self.need.cpus if kubelet.cpu else 0
        if cpus and kubelet.cpu and not self.free.cpus(self.node, kubelet.cpu)[2]:
            return None
        if policy == NONE:
            return FastPlacement(0, preferred=False, cpus=cpus)
        aligned, common = self.aligned, self.common
        lowest = common & -common
        if policy == SINGLE_NUMA_NODE:
            if aligned and kubelet.strategy != NO_STRATEGY:
                return None
            return FastPlacement(lowest if aligned and lowest != every else 0, preferred=True, cpus=cpus)
        if not aligned or (len(pod.containers) > 1 and settings.topology_manager_scope == "container"):
            return FastPlacement(every, preferred=True, cpus=cpus)
        if kubelet.strategy != NO_STRATEGY:
            return None
        return FastPlacement(lowest, preferred=True, cpus=cpus)

    def _refusal(self) -> FastRefusal | None:
        """The refusal; None where the free amounts do not decide it. Resources without alignment are not merged."""
        policy = self.node.kubelet.topology_manager_policy
        if policy != SINGLE_NUMA_NODE and (
            policy != RESTRICTED or self.kubelet.numa.distances is not None or self._may_hang()
        ):
            return None
        common, preferred = self.kubelet.numa.nodes, True
        merged: dict[str, NUMAMask] = {}
        for resource, precheck in self._parts():
            if precheck is Precheck.NOT_ALIGNED:
                continue
            if not isinstance(precheck, _SingleNodes):
                return None
            named = {resource: precheck.nodes}
            if resource == qos.MEMORY and self.kubelet.memory:
                fitting = self._fitting_memory(precheck.nodes, self.free.memory(self.node, self.kubelet.memory))
                if fitting is None:
                    return None
                named = fitting
            if named:
                merged |= named
                common &= precheck.nodes
                preferred = preferred and (precheck.preferred or precheck.impossible)
        if common or not (preferred or policy == SINGLE_NUMA_NODE):
            return None
        return FastRefusal(
            TOPOLOGY_AFFINITY_ERROR, tuple([name for name, nodes in merged.items() if not nodes] or merged)
        )

    def _fitting_memory(self, together: NUMAMask, pages: tuple[NUMAMemory, ...]) -> dict[str, NUMAMask] | None:
        """For each kind of memory the NUMA nodes with enough of it; ``together`` have enough of every kind.

        Empty where the Memory Manager has no preference because no mask has enough of every kind. None where that is
        not known.
        """
        if not together:
            if any(page.grouped for page in pages):
                return None
            new_group = [page.free for page in pages if not page.touched]
            if len(new_group) < 2 or any(
                sum([free[name] for free in new_group]) < size for name, size in self.need.memory
            ):
                return {}
        return {
            name: sum([1 << page.node for page in pages if page.free[name] >= size]) for name, size in self.need.memory
        }

    def _parts(self) -> Iterator[tuple[str, _SingleNodes | Precheck]]:
        """The precheck of each requested resource, in the order in which the kubelet asks its managers."""
        for resource, count in self.need.devices:
            yield resource, self._devices(resource, count)
        if self.need.cpus and self.kubelet.cpu:
            yield qos.CPU, self._cpus(self.kubelet.cpu)
        if self.need.memory and self.kubelet.memory:
            yield qos.MEMORY, self._memory(self.kubelet.memory)

    def _cpus(self, policy: cpu_static.StaticPolicy) -> _SingleNodes | Precheck:
        count, options = self.need.cpus, policy.options
        space, physical, _ = self.free.cpus(self.node, policy)
        if options.full_pcpus_only and (count % policy.topology.cpus_per_core or count > physical):
            return Precheck.REFUSED
        if options.distribute_across_numa or options.align_by_socket:
            return Precheck.UNCLEAR
        if self.node.kubelet.topology_manager_policy == NONE and space.total < count:
            # Cores that are partly offline are counted whole, and then even this can be admitted.
            return Precheck.UNCLEAR
        return _SingleNodes(_holding(space, count), space.widest >= count)

    def _memory(self, policy: memory_static.StaticPolicy) -> _SingleNodes | Precheck:
        """The NUMA nodes with enough of every kind of memory.

        If none has enough, the Memory Manager may have no preference, but it cannot allocate anything either. If a NUMA
        node of a group has enough, ``admit`` decides.
        """
        nodes, need = 0, self.need.memory
        preferred = False
        for number, free, grouped, _ in self.free.memory(self.node, policy):
            enough, could = True, policy.allocatable[number]
            would_be_enough = True
            for resource, size in need:
                if resource not in free:
                    return Precheck.UNCLEAR
                enough = enough and free[resource] >= size
                would_be_enough = would_be_enough and could[resource] >= size
            preferred = preferred or would_be_enough
            if enough and grouped:
                return Precheck.UNCLEAR
            nodes |= enough << number
        return _SingleNodes(nodes, preferred)

    def _devices(self, resource: str, count: int) -> _SingleNodes | Precheck:
        space = self.free.devices(self.node, self.kubelet, resource)
        if isinstance(space, Precheck):
            return space
        if space.total < count:
            return _SingleNodes(0, preferred=False, impossible=True) if space.nodes else Precheck.REFUSED
        return _SingleNodes(_holding(space, count), space.widest >= count) if space.nodes else Precheck.NOT_ALIGNED


def _holding(space: NUMACapacity, amount: int) -> NUMAMask:
    """The NUMA nodes that have at least ``amount`` free."""
    return sum([bit for bit, free in space.nodes if free >= amount])
