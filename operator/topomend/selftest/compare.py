"""Compare what replay predicts of a pod with what its kubelet did: verdict, CPUs, memory, devices.

Owns what counts as equal. Replay knows which devices a kubelet chooses among, and not which of them it takes; that
is compared as such. Leaves what is printed to the command.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import reduce
from operator import or_

from topomend.model.bitmask import NUMAMask, format_id_list
from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import ContainerAllocation, NodeState, PodAllocation
from topomend.model.pods.bound_pod import BoundPod
from topomend.model.pods.pod import sum_of, usage_of
from topomend.model.quantity import MilliQuantity, exact_bytes
from topomend.model.verdict import ContainerPlacement, Verdict
from topomend.replay.admission import allocation_of
from topomend.replay.devices.manager import numa_mask
from topomend.replay.simulation import simulation_of
from topomend.selftest.cases import free_devices

PodKey = tuple[str, str]


@dataclass(frozen=True)
class Seen:
    """A node at one moment: its Node, its published state, and all pods on it that have not ended.

    ``uids`` are those of the pods that are not the test's.
    """

    node: Node
    state: NodeState
    pods: tuple[BoundPod, ...]
    uids: frozenset[str]

    @property
    def used(self) -> Mapping[str, MilliQuantity]:
        """What the pods take of the node's totals."""
        return reduce(sum_of, (usage_of(bound.pod) for bound in self.pods), {})


@dataclass(frozen=True)
class Prediction:
    """What replay says of a pod, and what that would hold; None where nothing. ``seen`` is the node before."""

    seen: Seen
    verdict: Verdict
    allocation: PodAllocation | None


@dataclass(frozen=True)
class Answer:
    """What the kubelet did. ``reason`` and ``message`` are the pod's, empty for one that was admitted.

    ``allocation`` is what the node's agent publishes of the pod, which the kubelet told it; None where nothing.
    """

    admitted: bool
    reason: str = ""
    message: str = ""
    allocation: PodAllocation | None = None


class Agreement(Enum):
    """Whether the kubelet did as predicted. ``UNSURE``: something else may be to blame, or nothing was found out."""

    AGREES = "agrees"
    DIFFERS = "differs"
    UNSURE = "unsure"


@dataclass(frozen=True)
class Judgement:
    """Whether the kubelet did as predicted, and in words what it did not, or why that is not known."""

    agreement: Agreement
    why: tuple[str, ...] = ()


def predict(seen: Seen, bound: BoundPod) -> Prediction:
    """What replay says of one more pod on the node, by the path of ``simulate``: its managers, then the fit check."""
    verdict, after = simulation_of(seen.state, seen.node, seen.pods).answer(bound)
    held = allocation_of(after.kubelet.state, bound.pod.namespace, bound.pod.name, bound.pod.uid)
    return Prediction(seen, verdict, held if verdict.admitted else None)


def is_held_as_predicted(predicted: Prediction, actual: PodAllocation) -> bool:
    """Whether an admitted pod holds what was predicted."""
    return predicted.verdict.admitted and not any(_held_otherwise(predicted, actual))


def judge(predicted: Prediction, answer: Answer, after: Seen) -> Judgement:
    """Compare the kubelet's answer with the prediction. ``after`` is the node once it had answered."""
    differences = tuple(_differences(predicted, answer))
    if not differences:
        return Judgement(Agreement.AGREES)
    doubts = [f"replay does not model: {remark}" for remark in predicted.verdict.unmodelled]
    key = predicted.verdict.namespace, predicted.verdict.name
    doubts += [changed] if (changed := what_changed(predicted.seen, after, key)) else []
    return Judgement(Agreement.UNSURE if doubts else Agreement.DIFFERS, (*differences, *doubts))


def what_changed(before: Seen, after: Seen, own: PodKey) -> str:
    """What else changed on the node while the pod ``own`` was tried, in words; empty where nothing did."""
    if before.uids != after.uids:
        return "other pods came to the node or left it meanwhile"
    old, new = _others(before.state, own), _others(after.state, own)
    if old.pods != new.pods:
        return "what other pods hold changed meanwhile"
    if old.devices != new.devices:
        return "devices of the node changed meanwhile"
    if (old.machine, old.kubelet) != (new.machine, new.kubelet):
        return "the machine or the kubelet's settings changed meanwhile"
    return "" if before.node == after.node else "the Node object changed meanwhile"


def _others(state: NodeState, own: PodKey) -> NodeState:
    pods = sorted(
        (pod for pod in state.pods if (pod.namespace, pod.name) != own), key=lambda pod: (pod.namespace, pod.name)
    )
    return replace(state, pods=tuple(pods))


def _differences(predicted: Prediction, answer: Answer) -> Iterator[str]:
    verdict = predicted.verdict
    if verdict.admitted != answer.admitted:
        yield f"predicted: {_outcome(verdict)}; what happened: {_outcome(answer)}"
    elif not verdict.admitted:
        if (verdict.reason, verdict.message) != (answer.reason, answer.message):
            yield f"predicted: {_outcome(verdict)}; what happened: {_outcome(answer)}"
    else:
        yield from _held_otherwise(predicted, answer.allocation)


def _outcome(answer: Verdict | Answer) -> str:
    return "admitted" if answer.admitted else f"refused, {answer.reason}: {answer.message}"


def _held_otherwise(predicted: Prediction, actual: PodAllocation | None) -> Iterator[str]:
    """What the pod's containers hold other than predicted.

    An init container counts only if it is published: pod-resources do not tell it.
    """
    ours = {each.name: each for each in predicted.allocation.containers} if predicted.allocation else {}
    theirs = {each.name: each for each in actual.containers} if actual else {}
    placements = {each.name: each for each in predicted.verdict.containers}
    for name in dict.fromkeys([*ours, *theirs]):
        expected, found = ours.get(name), theirs.get(name)
        if expected and expected.init and not found:
            continue
        nothing = ContainerAllocation(name)
        for difference in _container_differs(
            predicted.seen.state, placements.get(name), expected or nothing, found or nothing
        ):
            yield f"container {name}: {difference}"


def _container_differs(
    state: NodeState, placement: ContainerPlacement | None, expected: ContainerAllocation, found: ContainerAllocation
) -> Iterator[str]:
    if expected.cpus != found.cpus:
        yield f"{_cpus(expected)} predicted, {_cpus(found)} allocated"
    if Counter(expected.memory) != Counter(found.memory):
        yield f"{memory_text(expected) or 'no pinned memory'} predicted, {memory_text(found) or 'none'} allocated"
    affinity = placement.affinity if placement else None
    ours = {each.resource: each.ids for each in expected.devices}
    theirs = {each.resource: each.ids for each in found.devices}
    for resource in dict.fromkeys([*ours, *theirs]):
        yield from _devices_differ(state, resource, affinity, ours.get(resource, ()), theirs.get(resource, ()))


def _devices_differ(
    state: NodeState, resource: str, affinity: NUMAMask | None, expected: tuple[str, ...], found: tuple[str, ...]
) -> Iterator[str]:
    """Whether these are none of the devices that the kubelet chooses among.

    It takes as many as it can near the NUMA nodes of the affinity, and which of equal ones is chance
    (devicemanager/manager.go:devicesToAllocate).
    """
    if len(expected) != len(found):
        yield f"{len(expected)} {resource} predicted, {len(found)} allocated"
        return
    free = {each.id: numa_mask(each.numa_nodes) for each in free_devices(state) if each.resource == resource}
    if strange := sorted(set(found) - free.keys()):
        yield f"{resource} {', '.join(strange)} allocated, which was not published as free"
        return
    near = sum(1 for name in found if affinity and free[name] & affinity)
    wanted = sum(1 for name in expected if affinity and free.get(name, 0) & affinity)
    if near != wanted:
        numa_nodes = format_id_list(affinity or 0)
        yield f"{wanted} of {len(found)} {resource} near NUMA node {numa_nodes} predicted, {near} allocated"


def _cpus(container: ContainerAllocation) -> str:
    return f"CPUs {format_id_list(container.cpus)}" if container.cpus else "shared CPUs"


def memory_text(container: ContainerAllocation) -> str:
    """``32Mi memory on NUMA node 0``; empty for a container without pinned memory."""
    return " and ".join(
        f"{exact_bytes(block.size)} {block.resource} on NUMA node {format_id_list(block.numa_nodes)}"
        for block in container.memory
    )


def held_text(state: NodeState, allocation: PodAllocation | None, names: Iterable[str]) -> str:
    """``main: CPUs 2-3, memory on 0, 1 vendor.com/gpu on 0``: what containers of these ``names`` hold, for a table."""
    held = {each.name: each for each in allocation.containers} if allocation else {}
    texts = [(name, ", ".join(_parts(state, held.get(name, ContainerAllocation(name))))) for name in names]
    return texts[0][1] if len(texts) == 1 else "; ".join(f"{name}: {text}" for name, text in texts)


def _parts(state: NodeState, container: ContainerAllocation) -> Iterator[str]:
    yield _cpus(container)
    masks = dict[str, NUMAMask]()
    for block in container.memory:
        masks[block.resource] = masks.get(block.resource, 0) | block.numa_nodes
    yield from (f"{resource} on {format_id_list(mask)}" for resource, mask in masks.items())
    for devices in container.devices:
        near = {each.id: numa_mask(each.numa_nodes) for each in state.devices if each.resource == devices.resource}
        mask = reduce(or_, (near.get(name, 0) for name in devices.ids), 0)
        place = f" on {format_id_list(mask)}" if mask else ""
        yield f"{len(devices.ids)} {devices.resource}{place}"
