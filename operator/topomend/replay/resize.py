"""In-place resize: the kubelet's answer to a running pod whose containers shall get other CPUs or memory.

Source: pkg/kubelet/allocation/handlers.go:podResizesAdmitHandler.Admit, allocation_manager.go:handlePodResourcesResize
and status/status_manager.go:SetPodResizePendingCondition. ``gates`` says how older kubelets differ.

Leaves out resizes that the API server rejects, which reach no kubelet: another QoS class, a removed request
(validation.go:ValidatePodResize), since 1.36 a request above the node's allocatable (plugin/pkg/admission/podresize).
Leaves out the kubelet's checks of swap, static pods, memory-backed volumes and evictions, because no node publishes
the facts, and the filters that a running pod has passed before.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from topomend.model.nodes.node_state import NodeState, emptied
from topomend.model.pods.pod import Container, ContainerKind, Pod, Resources, is_extended, requests_of
from topomend.model.quantity import MilliQuantity, value
from topomend.model.verdict import Verdict
from topomend.replay import qos
from topomend.replay.admission import admit, allocation_of
from topomend.replay.errors import KUBELET_WOULD_CRASH, KUBELET_WOULD_HANG, KUBELET_WOULD_NOT_START, MESSAGE_PREFIX
from topomend.replay.gates import RESIZE, Gates, read_gates

DEFERRED = "Deferred"
"""The resize may succeed later: the kubelet retries when a pod ends or is resized, and every few minutes."""

INFEASIBLE = "Infeasible"
"""The resize cannot succeed on this node with these settings: the kubelet does not retry."""

KUBELET_DOES_NOT_RESIZE = "KubeletDoesNotResize"
"""Topomend's own reason: this kubelet ignores resizes, and the pod gets no condition."""

_BREAKS = (KUBELET_WOULD_NOT_START, KUBELET_WOULD_CRASH, KUBELET_WOULD_HANG)


@dataclass(frozen=True)
class Totals:
    """A node's totals, in thousandths. Resources without an entry are not checked.

    ``allocatable`` is the Node's. ``used`` is the sum of all other pods' requests there. ``unreserved`` is the capacity
    without reservations, eviction thresholds not deducted, if it differs from ``allocatable``. Kubelets 1.34 and 1.35
    compare with it.
    """

    allocatable: Mapping[str, MilliQuantity] = field(default_factory=dict)
    used: Mapping[str, MilliQuantity] = field(default_factory=dict)
    unreserved: Mapping[str, MilliQuantity] = field(default_factory=dict)


@dataclass(frozen=True)
class Resized:
    """The kubelet's answer. ``reason`` and ``message`` are those of the pod's condition PodResizePending.

    Both are empty if the containers get their new resources, or request nothing new. ``verdict`` is the admission of
    the resized pod, None if the kubelet answers without it.
    """

    reason: str = ""
    message: str = ""
    verdict: Verdict | None = None
    unmodelled: tuple[str, ...] = ()


def resize(node: NodeState, allocated: Pod, desired: Pod, totals: Totals | None = None) -> tuple[Resized, NodeState]:
    """Resize a pod of ``node`` from ``allocated`` to ``desired``. Returns the answer and the node's state after it.

    Without ``totals`` the pod counts as fitting them. Never raises.
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
    verdict, after = _admitted_again(node, desired, gates)
    if verdict.reason in _BREAKS:
        return Resized(verdict.reason, verdict.message, verdict, verdict.unmodelled), node
    if not verdict.admitted:
        remarks = (*verdict.unmodelled, *_kept_in_part(gates))
        return Resized(DEFERRED, verdict.message.removeprefix(MESSAGE_PREFIX), verdict, remarks), node
    lacking = _why_not_fitting(requests_of(desired), totals)
    return Resized(DEFERRED if lacking else "", lacking, verdict, verdict.unmodelled), after


def _admitted_again(node: NodeState, desired: Pod, gates: Gates) -> tuple[Verdict, NodeState]:
    """The admission of the resized pod, and the node's state after it."""
    if not gates.resize_skips_managers:
        return admit(node, desired)
    verdict, _ = admit(node, _with_devices_alone(desired))
    return verdict, node


def _with_devices_alone(pod: Pod) -> Pod:
    """The pod as the Topology Manager sees it where the Device Manager alone makes hints."""
    containers = (replace(container, resources=_devices_of(container.resources)) for container in pod.containers)
    return replace(pod, containers=tuple(containers), resources=None)


def _devices_of(resources: Resources) -> Resources:
    requests, limits = (
        {name: amount for name, amount in amounts.items() if is_extended(name)}
        for amounts in (resources.requests, resources.limits)
    )
    return Resources(requests, limits)


def is_shown(node: NodeState, running: Pod) -> bool:
    """Whether the state contains all exclusive resources of a running pod. A state older than the pod does not.

    Expected resources are computed on the empty node. A pod that is refused even there counts as shown. Init containers
    are ignored: they have ended, and not every source reports them.
    """
    _, alone = admit(emptied(node), running)
    return _held_by_running(alone, running) <= _held_by_running(node, running)


def _held_by_running(node: NodeState, pod: Pod) -> set[tuple[str, str]]:
    """Pairs of container and resource: the exclusive resources that the pod's running containers have."""
    allocation = allocation_of(node, pod.namespace, pod.name, pod.uid)
    pairs: set[tuple[str, str]] = set()
    for container in allocation.containers if allocation else ():
        if not container.init:
            resources = [block.resource for block in container.memory] + [
                devices.resource for devices in container.devices
            ]
            pairs.update(
                (container.name, resource) for resource in (*resources, *([qos.CPU] if container.cpus else []))
            )
    return pairs


def _not_resized(node: NodeState, gates: Gates) -> Resized:
    version = node.kubelet.version
    if node.kubelet.feature_gates.get(RESIZE, False):
        words = f"feature gate {RESIZE} is alpha in kubelet {version}: what it does there is not replayed"
        return Resized(KUBELET_DOES_NOT_RESIZE, words, unmodelled=(*gates.unmodelled, words))
    words = f"kubelet {version} resizes no pod in place: its feature gate {RESIZE} is off"
    return Resized(KUBELET_DOES_NOT_RESIZE, words, unmodelled=gates.unmodelled)


def _is_resized(allocated: Pod, desired: Pod, gates: Gates) -> bool:
    """Whether a resource that the kubelet compares differs (allocation_manager.go:UpdatePodFromAllocation)."""
    if gates.resize_pod_level and allocated.resources != desired.resources:
        return True
    before = _resizable(allocated, gates)
    return any(before.get(name, now) != now for name, now in _resizable(desired, gates).items())


def _resizable(pod: Pod, gates: Gates) -> dict[str, Resources]:
    """The resources of the containers that may be resized (allocation_manager.go:IsResizableContainer)."""
    return {container.name: container.resources for container in pod.containers if _is_resizable(container, gates)}


def _is_resizable(container: Container, gates: Gates) -> bool:
    return container.kind is not ContainerKind.INIT or gates.resize_init_containers


def _why_infeasible(node: NodeState, allocated: Pod, desired: Pod, totals: Totals, gates: Gates) -> str:
    if qos.is_guaranteed(desired, gates):
        for resource, words in _static_policies(node, gates):
            if _is_judged(resource, allocated, desired, gates):
                return f"Resize is infeasible for Guaranteed Pods {words}"
    return _why_too_large(requests_of(desired), totals) if gates.resize_checks_node else ""


def _static_policies(node: NodeState, gates: Gates) -> Iterator[tuple[str, str]]:
    """The policies that forbid resizing Guaranteed pods: pairs of resource and the kubelet's words for the policy."""
    if node.kubelet.cpu_manager_policy == "static" and not gates.resize_exclusive_cpus:
        yield qos.CPU, _words("CPU", "CPU", "static", gates)
    if node.kubelet.memory_manager_policy == "Static" and not gates.resize_exclusive_memory:
        yield qos.MEMORY, _words("memory", "Memory", "Static", gates)


def _words(resource: str, manager: str, policy: str, gates: Gates) -> str:
    if gates.resize_names_mode:
        return f"when {resource} allocation mode is exclusive"
    if gates.resize_judges_resource:
        return f'alongside {manager} Manager policy "{policy}"'
    return f"alongside {manager} Manager static policy"


def _is_judged(resource: str, allocated: Pod, desired: Pod, gates: Gates) -> bool:
    """Whether the resource's static policy refuses this resize (handlers.go:guaranteedPodResourceResizeRequired)."""
    if not gates.resize_judges_resource:
        return True
    before = _resizable(allocated, gates)
    return any(
        now.requests.get(resource, 0) != before.get(name, Resources()).requests.get(resource, 0)
        for name, now in _resizable(desired, gates).items()
    )


def _why_too_large(requests: Mapping[str, MilliQuantity], totals: Totals) -> str:
    """The error if the request exceeds the empty node, memory before CPUs (allocation_manager.go:canResizePod)."""
    there = {**totals.allocatable, **totals.unreserved}
    for resource in (qos.MEMORY, qos.CPU):
        if requests.get(resource, 0) > there.get(resource, requests.get(resource, 0)):
            requested, capacity = (_counted(resource, amount) for amount in (requests[resource], there[resource]))
            return f"Node didn't have enough capacity: {resource}, requested: {requested}, capacity: {capacity}"
    return ""


def _why_not_fitting(requests: Mapping[str, MilliQuantity], totals: Totals) -> str:
    """The error if the request exceeds what other pods leave, CPUs before memory (noderesources/fit.go:fitsRequest).

    The words are those of lifecycle/predicate.go:InsufficientResourceError.
    """
    for resource in (qos.CPU, qos.MEMORY):
        amounts = (requests.get(resource, 0), totals.used.get(resource, 0), totals.allocatable.get(resource))
        if amounts[0] and amounts[2] is not None and amounts[0] > amounts[2] - amounts[1]:
            requested, used, capacity = (_counted(resource, amount) for amount in amounts if amount is not None)
            return (
                f"Node didn't have enough resource: {resource}, "
                f"requested: {requested}, used: {used}, capacity: {capacity}"
            )
    return ""


def _counted(resource: str, amount: MilliQuantity) -> int:
    """The amount in the kubelet's unit: CPUs in thousandths, memory in bytes."""
    return amount if resource == qos.CPU else value(amount)


def _kept_in_part(gates: Gates) -> tuple[str, ...]:
    """A remark for the alpha gates: containers that were handled before the refusal keep their new resources."""
    if gates.resize_skips_managers:
        return ()
    if not (gates.resize_exclusive_cpus or gates.resize_exclusive_memory):
        return ()
    return ("a resize that is deferred may leave some containers what they were given before the refusal",)
