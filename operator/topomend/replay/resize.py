"""In-place resize: what the kubelet answers to a running pod whose containers are to have other CPUs or memory.

Source: pkg/kubelet/allocation/handlers.go:podResizesAdmitHandler.Admit, allocation_manager.go:handlePodResourcesResize
and status/status_manager.go:SetPodResizePendingCondition; for what older kubelets do otherwise see ``gates``.

What the API server refuses never reaches a kubelet: another quality of service, a request taken away
(validation.go:ValidatePodResize), since 1.36 more than the node has allocatable (plugin/pkg/admission/podresize). Of
what a kubelet asks, swap, static pods, memory-backed volumes, evictions and the filters that a running pod has passed
are left out: nothing that a node publishes tells them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from topomend.model.node_state import NodeState, emptied
from topomend.model.pod import Container, ContainerKind, Pod, Resources, requests_of
from topomend.model.quantity import MilliQuantity, value
from topomend.model.verdict import Verdict
from topomend.replay import qos
from topomend.replay.admission import admit, held_by
from topomend.replay.errors import KUBELET_WOULD_CRASH, KUBELET_WOULD_HANG, KUBELET_WOULD_NOT_START, MESSAGE_PREFIX
from topomend.replay.gates import RESIZE, Gates, read_gates

DEFERRED = "Deferred"
"""It may succeed later: the kubelet asks again when a pod ends or is resized, and every few minutes."""

INFEASIBLE = "Infeasible"
"""It never succeeds on this node with these settings: the kubelet does not ask again."""

KUBELET_DOES_NOT_RESIZE = "KubeletDoesNotResize"
"""Not the kubelet's: it takes no notice of a resize, and the pod gets no condition."""

_BREAKS = (KUBELET_WOULD_NOT_START, KUBELET_WOULD_CRASH, KUBELET_WOULD_HANG)


@dataclass(frozen=True)
class Totals:
    """What a node has in all, in thousandths. A resource that is not named is not checked.

    ``allocatable`` is the Node's, ``used`` what all other pods there request. ``unreserved`` is what is left of the
    capacity without the thresholds of evictions, where it differs from ``allocatable`` (kubelets 1.34 and 1.35 ask it).
    """

    allocatable: Mapping[str, MilliQuantity] = field(default_factory=dict)
    used: Mapping[str, MilliQuantity] = field(default_factory=dict)
    unreserved: Mapping[str, MilliQuantity] = field(default_factory=dict)


@dataclass(frozen=True)
class Resized:
    """The kubelet's answer. ``reason`` and ``message`` are those of the pod's condition PodResizePending.

    Both are empty where the containers get what they ask for, or ask for nothing new. ``verdict`` is what the managers
    said to the pod as it would be, None where they were not asked.
    """

    reason: str = ""
    message: str = ""
    verdict: Verdict | None = None
    unmodelled: tuple[str, ...] = ()


def resize(node: NodeState, allocated: Pod, desired: Pod, totals: Totals | None = None) -> tuple[Resized, NodeState]:
    """The answer to a pod of ``node`` that holds what ``allocated`` asks and now asks what ``desired`` does.

    The second value is the node's state after it. Without ``totals`` the pod is taken to fit them. Total, as ``admit``.
    """
    gates = read_gates(node.kubelet)
    totals = totals or Totals()
    if not _is_resized(allocated, desired, gates):
        return Resized(unmodelled=gates.unmodelled), node
    if not gates.resize:
        return _not_resized(node, gates), node
    infeasible = _why_infeasible(node, allocated, desired, totals, gates)
    if infeasible:
        return Resized(INFEASIBLE, infeasible, unmodelled=gates.unmodelled), node
    verdict, after = admit(node, desired)
    if verdict.reason in _BREAKS:
        return Resized(verdict.reason, verdict.message, verdict, verdict.unmodelled), node
    if not verdict.admitted:
        remarks = (*verdict.unmodelled, *_kept_in_part(gates))
        return Resized(DEFERRED, verdict.message.removeprefix(MESSAGE_PREFIX), verdict, remarks), node
    lacking = _why_not_fitting(requests_of(desired), totals)
    return Resized(DEFERRED if lacking else "", lacking, verdict, verdict.unmodelled), after


def is_shown(node: NodeState, running: Pod) -> bool:
    """Whether the state shows all that the containers of a running pod hold: it may be older than the pod.

    What they must hold is told by the empty node; a pod that even that one refuses is taken to be shown. Init
    containers, which have ended, are not asked about: not every source tells of them.
    """
    _, alone = admit(emptied(node), running)
    return _held_while_running(alone, running) <= _held_while_running(node, running)


def _held_while_running(node: NodeState, pod: Pod) -> set[tuple[str, str]]:
    """The pod's containers, each with the resources of which it has something for itself."""
    own = held_by(node, pod.namespace, pod.name, pod.uid)
    held: set[tuple[str, str]] = set()
    for container in own.containers if own else ():
        if not container.init:
            resources = [block.resource for block in container.memory] + [
                devices.resource for devices in container.devices
            ]
            held.update((container.name, resource) for resource in (*resources, *([qos.CPU] if container.cpus else [])))
    return held


def _not_resized(node: NodeState, gates: Gates) -> Resized:
    version = node.kubelet.version
    if node.kubelet.feature_gates.get(RESIZE, False):
        told = f"feature gate {RESIZE} is alpha in kubelet {version}: what it does there is not replayed"
        return Resized(KUBELET_DOES_NOT_RESIZE, told, unmodelled=(*gates.unmodelled, told))
    told = f"kubelet {version} resizes no pod in place: its feature gate {RESIZE} is off"
    return Resized(KUBELET_DOES_NOT_RESIZE, told, unmodelled=gates.unmodelled)


def _is_resized(allocated: Pod, desired: Pod, gates: Gates) -> bool:
    """Whether anything differs that a kubelet looks at (allocation_manager.go:UpdatePodFromAllocation)."""
    if gates.resize_pod_level and allocated.resources != desired.resources:
        return True
    before = _resizable(allocated, gates)
    return any(before.get(name, now) != now for name, now in _resizable(desired, gates).items())


def _resizable(pod: Pod, gates: Gates) -> dict[str, Resources]:
    """What the containers ask for that may be resized (allocation_manager.go:IsResizableContainer)."""
    return {container.name: container.resources for container in pod.containers if _is_resizable(container, gates)}


def _is_resizable(container: Container, gates: Gates) -> bool:
    return container.kind is not ContainerKind.INIT or gates.resize_init_containers


def _why_infeasible(node: NodeState, allocated: Pod, desired: Pod, totals: Totals, gates: Gates) -> str:
    if qos.is_guaranteed(desired, gates):
        for resource, told in _static_policies(node, gates):
            if _is_judged(resource, allocated, desired, gates):
                return f"Resize is infeasible for Guaranteed Pods alongside {told}"
    return _why_too_large(requests_of(desired), totals) if gates.resize_checks_node else ""


def _static_policies(node: NodeState, gates: Gates) -> Iterator[tuple[str, str]]:
    """The policies that let no Guaranteed pod be resized: their resource, and the kubelet's words for them."""
    quoted = gates.resize_judges_resource
    if node.kubelet.cpu_manager_policy == "static" and not gates.resize_exclusive_cpus:
        yield qos.CPU, 'CPU Manager policy "static"' if quoted else "CPU Manager static policy"
    if node.kubelet.memory_manager_policy == "Static" and not gates.resize_exclusive_memory:
        yield qos.MEMORY, 'Memory Manager policy "Static"' if quoted else "Memory Manager static policy"


def _is_judged(resource: str, allocated: Pod, desired: Pod, gates: Gates) -> bool:
    """Whether a static policy minds this resize (handlers.go:guaranteedPodResourceResizeRequired)."""
    if not gates.resize_judges_resource:
        return True
    before = _resizable(allocated, gates)
    return any(
        now.requests.get(resource, 0) != before.get(name, Resources()).requests.get(resource, 0)
        for name, now in _resizable(desired, gates).items()
    )


def _why_too_large(asked: Mapping[str, MilliQuantity], totals: Totals) -> str:
    """What even the empty node would lack, memory before CPUs (allocation_manager.go:canResizePod)."""
    there = {**totals.allocatable, **totals.unreserved}
    for resource in (qos.MEMORY, qos.CPU):
        if asked.get(resource, 0) > there.get(resource, asked.get(resource, 0)):
            requested, capacity = (_counted(resource, amount) for amount in (asked[resource], there[resource]))
            return f"Node didn't have enough capacity: {resource}, requested: {requested}, capacity: {capacity}"
    return ""


def _why_not_fitting(asked: Mapping[str, MilliQuantity], totals: Totals) -> str:
    """What the node lacks beside its other pods, CPUs before memory (noderesources/fit.go:fitsRequest).

    The words are lifecycle/predicate.go:InsufficientResourceError's.
    """
    for resource in (qos.CPU, qos.MEMORY):
        amounts = (asked.get(resource, 0), totals.used.get(resource, 0), totals.allocatable.get(resource))
        if amounts[0] and amounts[2] is not None and amounts[0] > amounts[2] - amounts[1]:
            requested, used, capacity = (_counted(resource, amount) for amount in amounts if amount is not None)
            return (
                f"Node didn't have enough resource: {resource}, "
                f"requested: {requested}, used: {used}, capacity: {capacity}"
            )
    return ""


def _counted(resource: str, amount: MilliQuantity) -> int:
    """CPUs count in thousandths, memory in bytes."""
    return amount if resource == qos.CPU else value(amount)


def _kept_in_part(gates: Gates) -> tuple[str, ...]:
    """Containers served before the refusal keep what is new to them; only the alpha gates let anything be new."""
    if not (gates.resize_exclusive_cpus or gates.resize_exclusive_memory):
        return ()
    return ("a resize that is deferred may leave some containers what they were given before the refusal",)
