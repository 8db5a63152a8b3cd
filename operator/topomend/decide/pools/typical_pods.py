"""The pods that typically come: which kinds there are, and how much of each resource each kind asks for.

A kind counts for what its pods ask of the resources that a kubelet's managers allocate, so that many small pods count
no more than they ask for. Owns what a kind is and how many are kept. Leaves which pods are counted to its callers, and
what a kubelet answers to ``fragmentation``.

Source of the idea: F. Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent, USENIX ATC 2023, where a typical workload is a set of kinds of tasks with their shares.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain

from topomend.decide.diagnosis.filters import filter_node
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import ContainerAllocation, NodeState, PodAllocation
from topomend.model.pods.pod import Container, ContainerKind, Pod, Resources, is_extended, largest_need, requests_of
from topomend.model.pods.scheduling import Placement
from topomend.model.quantity import MilliQuantity, value
from topomend.replay import qos
from topomend.replay.cpu.static import whole_cpus
from topomend.replay.gates import read_gates
from topomend.replay.memory.static import bytes_by_resource

MAX_KINDS = 12
"""How many kinds are kept, those with the largest share of any resource: each is asked about on each node."""

WAITING_OF_NAMESPACE, WAITING = 50, 1_000
"""How many pods count that wait, of one namespace and in all. They cost their creator nothing."""

NODES_TRIED = 4
"""So many nodes of a pool tell whether a waiting pod may go there: their labels, taints and totals are much alike."""

MAX_CONTAINERS = 20
"""A pod with more is no typical one: each node would be asked about each of its containers."""

_STEPS = 3
"""Amounts of memory are of one kind whose first bits are the same, so many below the highest: within an eighth."""

_NO_MEMORY_KNOWN = 1 << 20
"""What a pod asks for that holds exclusive CPUs on a node whose kubelet pins no memory: how much is not published."""

_ANY_GATES = read_gates(KubeletSettings())
"""By the newest release: no gate changes what pods without pod-level resources ask for."""


@dataclass(frozen=True)
class TypicalPod:
    """A kind of pods, which share ``key``. ``pod`` is the one of them that asks for most memory, without names.

    ``asked`` is what all ``number`` of them ask for: CPUs, bytes and devices by resource.
    """

    key: Hashable
    pod: Pod
    asked: Mapping[str, int]
    number: int = 1


Kinds = Mapping[Hashable, TypicalPod]
"""Kinds of pods, each under its key."""


@dataclass(frozen=True)
class Mix:
    """The kinds of pods that typically come. ``left_out`` is what pods of other kinds ask for, by resource."""

    pods: tuple[TypicalPod, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def keys(self) -> Set[Hashable]:
        """The keys of the kept kinds."""
        return {typical.key for typical in self.pods}

    @property
    def resources(self) -> tuple[str, ...]:
        """What the kept kinds ask for."""
        return tuple(dict.fromkeys(resource for typical in self.pods for resource in typical.asked))

    def shares(self, resource: str) -> Mapping[Hashable, float]:
        """Which part of what the kept kinds ask of the resource each asks, by its key. The parts sum up to 1."""
        asked = {typical.key: typical.asked[resource] for typical in self.pods if resource in typical.asked}
        total = sum(asked.values())
        return {key: amount / total for key, amount in asked.items()}

    def covered(self, resource: str) -> float:
        """Which part of all that is asked of the resource the kept kinds ask for; 0 where nothing is asked."""
        kept = sum(typical.asked.get(resource, 0) for typical in self.pods)
        total = kept + self.left_out.get(resource, 0)
        return kept / total if total else 0.0


def kinds_of(pods: Iterable[Pod]) -> Kinds:
    """The kinds of these pods, without those that ask for nothing that a manager allocates."""
    return _merged(chain.from_iterable(map(_kind_of, pods)))


def kinds_held(state: NodeState) -> Kinds:
    """The kinds of the pods that hold something on a node, by what they hold, which is what they asked for.

    What init containers held is left out, and so is the alignment that a pod asks for by annotation.
    """
    return _merged(chain.from_iterable(map(_kind_held, state.pods)))


def kinds_waiting(pods: Iterable[tuple[Pod, Placement]], nodes: Sequence[Node]) -> Kinds:
    """The kinds of pods that may go to one of the nodes, by the scheduler's filters.

    A pod that asks for more than a node has in total is none of them. Of many pods that wait, give those of
    ``of_each_namespace`` and the first NODES_TRIED nodes of a pool.
    """

    def may_go(pod: Pod, placement: Placement) -> bool:
        asked = requests_of(pod)
        return any(not filter_node(node, placement, asked) for node in nodes)

    return kinds_of(pod for pod, placement in pods if may_go(pod, placement))


def of_each_namespace(pods: Iterable[tuple[Pod, Placement]]) -> Sequence[tuple[Pod, Placement]]:
    """The first WAITING_OF_NAMESPACE of these pods of each namespace, and at most WAITING of all."""
    counts: dict[str, int] = {}
    chosen = []
    for pod, placement in pods:
        counts[pod.namespace] = counts.get(pod.namespace, 0) + 1
        if counts[pod.namespace] <= WAITING_OF_NAMESPACE:
            chosen.append((pod, placement))
            if len(chosen) >= WAITING:
                break
    return chosen


def times(kinds: Kinds, number: int) -> Kinds:
    """The kinds of so many times their pods; none of 0."""
    if number <= 0:
        return {}
    return {
        key: replace(
            typical,
            number=typical.number * number,
            asked={resource: amount * number for resource, amount in typical.asked.items()},
        )
        for key, typical in kinds.items()
    }


def merged(several: Iterable[Kinds]) -> Kinds:
    """All of them together."""
    return _merged(item for kinds in several for item in kinds.items())


def mix_of(kinds: Kinds) -> Mix:
    """The kinds that matter most: of each its largest share of any resource counts."""
    totals: dict[str, int] = {}
    for typical in kinds.values():
        _add(totals, typical.asked)

    def weight(typical: TypicalPod) -> float:
        return max(amount / totals[resource] for resource, amount in typical.asked.items())

    ordered = sorted(kinds.values(), key=weight, reverse=True)
    left_out: dict[str, int] = {}
    for typical in ordered[MAX_KINDS:]:
        _add(left_out, typical.asked)
    return Mix(tuple(ordered[:MAX_KINDS]), left_out)


def _merged(items: Iterable[tuple[Hashable, TypicalPod]]) -> Kinds:
    kinds: dict[Hashable, TypicalPod] = {}
    for key, typical in items:
        known = kinds.get(key)
        kinds[key] = _together(known, typical) if known else typical
    return kinds


def _together(left: TypicalPod, right: TypicalPod) -> TypicalPod:
    asked = dict(left.asked)
    _add(asked, right.asked)
    most = left if _memory_of_one(left) >= _memory_of_one(right) else right
    return TypicalPod(left.key, most.pod, asked, left.number + right.number)


def _memory_of_one(typical: TypicalPod) -> int:
    return sum(container.resources.requests.get(qos.MEMORY, 0) for container in typical.pod.containers)


def _add(totals: dict[str, int], amounts: Mapping[str, int]) -> None:
    for resource, amount in amounts.items():
        totals[resource] = totals.get(resource, 0) + amount


def _kind_of(pod: Pod) -> Iterator[tuple[Hashable, TypicalPod]]:
    """The pod's kind; none for a pod that asks for nothing that a manager allocates, and for one that is too large."""
    asked = _asked(pod) if len(pod.containers) <= MAX_CONTAINERS else {}
    if asked:
        key = _key(pod)
        yield key, TypicalPod(key, _without_names(pod), asked)


def _kind_held(allocation: PodAllocation) -> Iterator[tuple[Hashable, TypicalPod]]:
    """The kind of a pod that holds this; memory counts where it is pinned."""
    pod = _pod_of(allocation)
    blocks = chain(allocation.memory, *(container.memory for container in allocation.containers))
    pinned = {block.resource for block in blocks}
    for key, typical in _kind_of(pod) if pod else ():
        asked = {name: amount for name, amount in typical.asked.items() if name != qos.MEMORY or name in pinned}
        yield key, replace(typical, asked=asked)


def _without_names(pod: Pod) -> Pod:
    """The pod as admission reads it, but for names: a kubelet's managers answer the same whatever they are."""
    containers = tuple(replace(container, name=f"c{number}") for number, container in enumerate(pod.containers))
    return Pod("", "typical", containers=containers, resources=pod.resources, alignment=pod.alignment)


def _key(pod: Pod) -> Hashable:
    containers = tuple((container.kind, *_rounded(container.resources)) for container in pod.containers)
    whole = _rounded(pod.resources) if pod.resources else ()
    return pod.single_numa_node, qos.is_guaranteed(pod, _ANY_GATES), containers, whole


def _rounded(resources: Resources) -> tuple[Hashable, ...]:
    return tuple(
        tuple(sorted((name, _first_bits(name, amount)) for name, amount in amounts.items()))
        for amounts in (resources.requests, resources.limits)
    )


def _first_bits(resource: str, amount: MilliQuantity) -> int:
    """The amount, of memory rounded down to its first bits."""
    if resource != qos.MEMORY or amount <= 0:
        return amount
    places = max(0, amount.bit_length() - 1 - _STEPS)
    return amount >> places << places


def _asked(pod: Pod) -> dict[str, int]:
    """What the pod asks of managers at any one time, in CPUs, bytes and devices; nothing below 1."""
    pinned = qos.is_guaranteed(pod, _ANY_GATES)
    needs = [(container.kind, _of_managers(container.resources, pinned=pinned)) for container in pod.containers]
    names = dict.fromkeys(name for _, amounts in needs for name in amounts)
    asked = {name: largest_need((kind, amounts.get(name, 0)) for kind, amounts in needs) for name in names}
    if pod.resources and pinned:
        asked |= _of_managers(pod.resources, pinned=True)
    return {name: amount for name, amount in asked.items() if amount > 0}


def _of_managers(resources: Resources, *, pinned: bool) -> dict[str, int]:
    """What the Device Manager allocates, and for a Guaranteed pod what the CPU and the Memory Manager do."""
    amounts = {name: value(amount) for name, amount in resources.limits.items() if is_extended(name)}
    if pinned:
        amounts[qos.CPU] = whole_cpus(resources.requests.get(qos.CPU, 0))
        amounts |= bytes_by_resource(resources.requests) or {}
    return amounts


def _pod_of(allocation: PodAllocation) -> Pod | None:
    """A pod that asks for what this one holds; None where it holds nothing."""
    held = [container for container in allocation.containers if not container.init]
    if allocation.cpus or allocation.memory:  # pod-level managers: containers hold parts of it
        devices = tuple(each for container in held for each in container.devices)
        held = [ContainerAllocation("pod", cpus=allocation.cpus, memory=allocation.memory, devices=devices)]
    amounts = [amounts for container in held if (amounts := _requests_of(container))]
    containers = [Container(f"c{n}", ContainerKind.APP, Resources(each, each)) for n, each in enumerate(amounts)]
    return Pod("", "typical", containers=tuple(containers)) if containers else None


def _requests_of(container: ContainerAllocation) -> dict[str, MilliQuantity]:
    """In thousandths. One that holds memory without CPUs asks for a part of one."""
    amounts: dict[str, MilliQuantity] = {}
    for devices in container.devices:
        amounts[devices.resource] = amounts.get(devices.resource, 0) + 1000 * len(devices.ids)
    for block in container.memory:
        amounts[block.resource] = amounts.get(block.resource, 0) + 1000 * block.size
    if container.cpus or container.memory:
        amounts[qos.CPU] = 1000 * container.cpus.bit_count() or 1
        amounts.setdefault(qos.MEMORY, 1000 * _NO_MEMORY_KNOWN)
    return amounts
