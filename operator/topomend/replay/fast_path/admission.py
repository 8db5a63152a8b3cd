"""Whether nodes admit a pod, for thousands of them at once: the yes or no of ``admission.admit``, sooner.

Of a pod that asks for something in one container it can mostly be told from what is free on each NUMA node (``free``).
Whatever depends on more than that is asked of ``admit``.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from topomend.model.bitmask import NUMAMask
from topomend.model.bounded_dict import BoundedDict
from topomend.model.kubelet import KubeletSettings
from topomend.model.node_state import NodeState
from topomend.model.pod import ContainerKind, Pod, Resources
from topomend.model.quantity import MAX_INT64, value
from topomend.replay import qos
from topomend.replay.admission import admit
from topomend.replay.container_manager import ContainerManager, start
from topomend.replay.cpu import static as cpu_static
from topomend.replay.errors import TOPOLOGY_AFFINITY_ERROR
from topomend.replay.fast_path.capacity import Free, Page, Precheck, Space, free_of
from topomend.replay.gates import read_gates
from topomend.replay.identity_cache import IdentityCache
from topomend.replay.memory import static as memory_static
from topomend.replay.topology.policies import BEST_EFFORT, NONE, RESTRICTED, SINGLE_NUMA_NODE
from topomend.replay.topology.walk_time import is_too_long

MAX_ANSWERS = 16
"""Of how many kinds of pods a state remembers its answer; the first is forgotten first."""

_ANY_GATES = read_gates(KubeletSettings())
"""No gate changes the class of a pod without pod-level resources, and no others are asked about."""


@dataclass(frozen=True, slots=True)
class FastPlacement:
    """An admitted pod's place: the NUMA nodes that its containers are aligned to, none where they are not.

    ``preferred`` is whether every container's affinity is; ``cpus`` is how many CPUs the pod takes for itself, all on
    these NUMA nodes where there are any.
    """

    numa_nodes: NUMAMask
    preferred: bool
    cpus: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """The Topology Manager's refusal: its reason, and the resources that fit no NUMA node by themselves.

    Where each of them fits some but no NUMA node suits all, all are named.
    """

    reason: str
    lacking: tuple[str, ...]


class Fit:
    """One pod's answers, remembered with the states of the nodes for all pods that ask for the same."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self._need = _need_of(pod)
        self.kind = kind_of(_likeness(pod))

    def admits(self, node: NodeState) -> bool:
        """Whether the kubelet of ``node`` would admit the pod: ``admit(node, pod)[0].admitted``."""
        if self.is_held_by(node):
            return admit(node, self.pod)[0].admitted
        answers = _answers.of(node)
        answer = answers.get(self.kind)
        if answer is None:
            answer = self._told_by_what_is_free(node)
            if answer is None:
                answer = admit(node, self.pod)[0].admitted
            answers[self.kind] = answer
        return answer

    def is_held_by(self, node: NodeState) -> bool:
        """Whether the node holds a pod of this name already: its answer is then about this pod alone."""
        return free_of(node).holds(node, self.pod.namespace, self.pod.name)

    def outcome(self, node: NodeState) -> FastPlacement | Refusal | None:
        """What ``admit`` would say, as far as rank and reason go; None where only ``admit`` can tell."""
        question = self._question(node)
        return question.outcome(self.pod) if isinstance(question, _Question) else None

    def _told_by_what_is_free(self, node: NodeState) -> bool | None:
        question = self._question(node)
        return question.admits() if isinstance(question, _Question) else question

    def _question(self, node: NodeState) -> "_Question | bool | None":
        """The need asked of the node, or the answer without it."""
        kubelet = start(node.machine, node.kubelet)
        if isinstance(kubelet, str):
            return False
        if self._need is None or kubelet.numa.nodes >> 64 or self.is_held_by(node):
            return None
        return _Question(node, kubelet, free_of(node), self._need)


class Kind:
    """All pods that ask for the same, whatever their names."""

    __slots__ = ()


@lru_cache(maxsize=256)
def kind_of(_: Hashable) -> Kind:
    """The kind of all pods that are alike in this."""
    return Kind()


def _likeness(pod: Pod) -> Hashable:
    """Equal for pods that differ in nothing but who they are."""
    containers = tuple((each.name, each.kind, _asked(each.resources)) for each in pod.containers)
    return containers, pod.qos_class, pod.resources and _asked(pod.resources)


def _asked(resources: Resources) -> Hashable:
    return tuple(resources.requests.items()), tuple(resources.limits.items())


@dataclass(frozen=True, slots=True)
class _Need:
    """What a pod asks for in its one container that asks for anything: exclusive CPUs, bytes, devices."""

    cpus: int = 0
    memory: tuple[tuple[str, int], ...] = ()
    devices: tuple[tuple[str, int], ...] = ()


def _need_of(pod: Pod) -> _Need | None:
    """None where more than one container asks, or none that is an app, or the pod as a whole, or in odd numbers."""
    if pod.resources is not None:
        return None
    pinned = qos.is_guaranteed(pod, _ANY_GATES)
    asking = [each for each in pod.containers if pinned or any(map(_is_extended, each.resources.limits))]
    if not asking:
        return _Need()
    if len(asking) > 1 or asking[0].kind is not ContainerKind.APP:
        return None
    resources = asking[0].resources
    cpus = cpu_static.whole_cpus(resources.requests.get(qos.CPU, 0)) if pinned else 0
    memory = memory_static.bytes_by_resource(resources.requests) if pinned else {}
    devices = {name: value(amount) for name, amount in resources.limits.items() if _is_extended(name)}
    if memory is None or (pinned and qos.MEMORY not in memory):
        return None
    if not all(0 <= amount <= MAX_INT64 for amount in (cpus, *memory.values(), *devices.values())):
        return None
    return _Need(cpus, tuple(memory.items()), tuple(sorted(devices.items())))


def _is_extended(resource: str) -> bool:
    """Whether a plugin can offer it (pkg/apis/core/v1/helper:IsExtendedResourceName)."""
    return "/" in resource


_answers: IdentityCache[NodeState, BoundedDict[Kind, bool]] = IdentityCache(lambda: BoundedDict(MAX_ANSWERS))


class _Singles(NamedTuple):
    """The NUMA nodes that hold a part of the need each on its own.

    ``preferred`` tells whether the Topology Manager prefers single NUMA nodes for it: where one would do if nothing
    were taken. ``impossible`` is whether no mask holds the part, however wide.
    """

    nodes: NUMAMask
    preferred: bool
    impossible: bool = False


@dataclass(slots=True)
class _Question:
    """A need asked of a node.

    ``admits`` leaves behind whether any part of it is aligned, and the NUMA nodes that hold all such parts.
    """

    node: NodeState
    kubelet: ContainerManager
    free: Free
    need: _Need
    aligned: bool = False
    common: NUMAMask = 0

    def admits(self) -> bool | None:
        """Whether the node admits it; None where that does not follow from what is free.

        Where every part prefers single NUMA nodes, all policies but none take the lowest one that holds all of it, and
        all but best-effort refuse where there is none. What a NUMA node holds can then be allocated from it.
        """
        policy = self.node.kubelet.topology_manager_policy
        common, aligned, preferred = self.kubelet.numa.nodes, False, True
        for _, told in self._parts():
            if isinstance(told, _Singles):
                aligned = True
                common &= told.nodes
                if told.impossible or (not common and policy == SINGLE_NUMA_NODE):
                    return False
                preferred = preferred and told.preferred
            elif told is Precheck.REFUSED:
                return False
            elif told is Precheck.UNCLEAR:
                return None
        self.aligned, self.common = aligned, common
        if not aligned:
            return True
        if policy == NONE:
            return None if self.kubelet.memory and self.need.memory else True
        if policy == SINGLE_NUMA_NODE:
            return True
        if not preferred or self.kubelet.numa.distances is not None or self._may_hang():
            return None
        return True if common else None if policy == BEST_EFFORT else False

    def _may_hang(self) -> bool:
        """Whether the kubelet might walk the hints for longer than anybody waits, if every list were full."""
        lists = len(self.need.devices) + len(self.need.memory) + 1
        return is_too_long(((1 << self.kubelet.numa.nodes.bit_count()) - 1) ** lists)

    def outcome(self, pod: Pod) -> FastPlacement | Refusal | None:
        """The answer with its place or its reason, where both follow from what is free."""
        admitted = self.admits()
        if admitted is None or not pod.containers:
            return None
        return self._standing(pod) if admitted else self._refusal()

    def _standing(self, pod: Pod) -> FastPlacement | None:
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
            if aligned and kubelet.prefer_most_allocated:
                return None
            return FastPlacement(lowest if aligned and lowest != every else 0, preferred=True, cpus=cpus)
        if not aligned or (len(pod.containers) > 1 and settings.topology_manager_scope == "container"):
            return FastPlacement(every, preferred=True, cpus=cpus)
        return FastPlacement(lowest, preferred=True, cpus=cpus)

    def _refusal(self) -> Refusal | None:
        """A part without preference is not merged: the others then need to be refused by themselves."""
        policy = self.node.kubelet.topology_manager_policy
        if policy != SINGLE_NUMA_NODE and (
            policy != RESTRICTED or self.kubelet.numa.distances is not None or self._may_hang()
        ):
            return None
        common, preferred, impossible = self.kubelet.numa.nodes, True, False
        merged: dict[str, NUMAMask] = {}
        for resource, told in self._parts():
            if told is Precheck.NOT_ALIGNED:
                continue
            if not isinstance(told, _Singles):
                return None
            named = {resource: told.nodes}
            if resource == qos.MEMORY and self.kubelet.memory:
                fitting = self._fitting_memory(told.nodes, self.free.memory(self.node, self.kubelet.memory))
                if fitting is None:
                    return None
                named = fitting
            if named:
                merged |= named
                common &= told.nodes
                impossible = impossible or told.impossible
                preferred = preferred and told.preferred
        if common or not (preferred or impossible or policy == SINGLE_NUMA_NODE):
            return None
        return Refusal(TOPOLOGY_AFFINITY_ERROR, tuple([name for name, nodes in merged.items() if not nodes] or merged))

    def _fitting_memory(self, together: NUMAMask, pages: tuple[Page, ...]) -> dict[str, NUMAMask] | None:
        """The NUMA nodes that hold each resource by itself, where ``together`` hold all of them; empty where the
        Memory Manager has no preference, which it has not where no mask holds all; None where that is not known."""
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

    def _parts(self) -> Iterator[tuple[str, _Singles | Precheck]]:
        """What each part of the need comes to, in the order in which the kubelet asks its managers."""
        for resource, count in self.need.devices:
            yield resource, self._devices(resource, count)
        if self.need.cpus and self.kubelet.cpu:
            yield qos.CPU, self._cpus(self.kubelet.cpu)
        if self.need.memory and self.kubelet.memory:
            yield qos.MEMORY, self._memory(self.kubelet.memory)

    def _cpus(self, policy: cpu_static.StaticPolicy) -> _Singles | Precheck:
        count, options = self.need.cpus, policy.options
        space, physical, _ = self.free.cpus(self.node, policy)
        if options.full_pcpus_only and (count % policy.topology.cpus_per_core or count > physical):
            return Precheck.REFUSED
        if options.distribute_across_numa or options.align_by_socket:
            return Precheck.UNCLEAR
        if self.node.kubelet.topology_manager_policy == NONE and space.total < count:
            # Cores that are partly offline are counted whole, and then even this can be admitted.
            return Precheck.UNCLEAR
        return _Singles(_holding(space, count), space.widest >= count)

    def _memory(self, policy: memory_static.StaticPolicy) -> _Singles | Precheck:
        """Where no NUMA node has enough the Memory Manager may have no preference, but can allocate nothing either.

        A group of NUMA nodes that has enough on one of them is left to the Memory Manager.
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
        return _Singles(nodes, preferred)

    def _devices(self, resource: str, count: int) -> _Singles | Precheck:
        space = self.free.devices(self.node, self.kubelet, resource)
        if isinstance(space, Precheck):
            return space
        if space.total < count:
            return _Singles(0, preferred=False, impossible=True) if space.nodes else Precheck.REFUSED
        return _Singles(_holding(space, count), space.widest >= count) if space.nodes else Precheck.NOT_ALIGNED


def _holding(space: Space, amount: int) -> NUMAMask:
    """The NUMA nodes that hold so much each on its own."""
    return sum([bit for bit, free in space.nodes if free >= amount])
