"""Why a kubelet pins a container neither to CPUs nor to memory: the rule that applies.

Owns the wording. Asks replay for the rule, and leaves the place of pinned resources to ``container``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Container, Pod
from topomend.model.quantity import MilliQuantity, exact_thousandths, format_bytes
from topomend.replay import qos
from topomend.replay.container_manager import ContainerManager, start
from topomend.replay.cpu.static import CPUManager

NOT_GUARANTEED, POD_LEVEL, FRACTION, NONE_ASKED = "NotGuaranteed", "PodLevelResources", "FractionalCPU", "NoCPUAsked"
CPU_MANAGER_NONE, MEMORY_MANAGER_NONE = "CPUManagerNone", "MemoryManagerNone"
KUBELET_NOT_KNOWN = "KubeletNotKnown"


@dataclass(frozen=True, slots=True)
class NotPinned:
    """``reason`` is one word for programs, ``message`` a clause for people without a full stop."""

    reason: str
    message: str


def why_shared_cpus(state: NodeState, pod: Pod, container: Container) -> NotPinned | None:
    """Why the node's kubelet gives the container no exclusive CPUs; None if it gives it some."""
    kubelet = start(state.machine, state.kubelet)
    if isinstance(kubelet, str):
        return NotPinned(KUBELET_NOT_KNOWN, f"no kubelet starts with the settings that are published: {kubelet}")
    if kubelet.cpu is None:
        return NotPinned(CPU_MANAGER_NONE, f"the CPU Manager of {state.name} has the policy none")
    if CPUManager(kubelet.cpu, 0, {}, 0).requested(pod, container) and not qos.is_skipped(pod, kubelet.gates):
        return None
    by_pod = _why_left_out(pod, kubelet)
    if by_pod:
        return by_pod
    asked = container.resources.requests.get(qos.CPU, 0)
    if not asked:
        return NotPinned(NONE_ASKED, f"container {container.name} asks for no CPU")
    if asked % 1000 == 0:
        return NotPinned(POD_LEVEL, f"container {container.name} shares the CPUs of its pod")
    message = f"container {container.name} asks for {exact_thousandths(asked)} CPUs, and only whole CPUs are exclusive"
    return NotPinned(FRACTION, message)


def why_any_memory(state: NodeState, pod: Pod) -> NotPinned | None:
    """Why the node's kubelet pins no memory of the pod's containers to NUMA nodes; None if it does."""
    kubelet = start(state.machine, state.kubelet)
    if isinstance(kubelet, str):
        return NotPinned(KUBELET_NOT_KNOWN, f"no kubelet starts with the settings that are published: {kubelet}")
    if kubelet.memory is None:
        return NotPinned(MEMORY_MANAGER_NONE, f"the Memory Manager of {state.name} has the policy None")
    return _why_left_out(pod, kubelet)


def _why_left_out(pod: Pod, kubelet: ContainerManager) -> NotPinned | None:
    """The rule by which both managers leave out the whole pod."""
    if not qos.is_guaranteed(pod, kubelet.gates):
        quality = qos.qos_class(pod, kubelet.gates)
        causes = "; ".join(_why_not_guaranteed(pod, kubelet)) or f"the API server says that it is {quality}"
        return NotPinned(NOT_GUARANTEED, f"the pod is {quality}, not Guaranteed: {causes}")
    if qos.is_skipped(pod, kubelet.gates):
        return NotPinned(POD_LEVEL, "the pod has pod-level resources, which this kubelet pins to no NUMA node")
    return None


def _why_not_guaranteed(pod: Pod, kubelet: ContainerManager) -> Iterator[str]:
    """A clause for each amount that keeps the pod from being Guaranteed (qos.go:ComputePodQOS)."""
    if pod.resources is not None and kubelet.gates.pod_level_resources and qos.has_pod_level_resources(pod):
        yield from _unequal("the pod as a whole", pod.resources.requests, pod.resources.limits)
        return
    for container in pod.containers:
        resources = container.resources
        yield from _unequal(f"container {container.name}", resources.requests, resources.limits)


def _unequal(subject: str, requests: Mapping[str, MilliQuantity], limits: Mapping[str, MilliQuantity]) -> Iterator[str]:
    missing = [resource for resource in (qos.CPU, qos.MEMORY) if not limits.get(resource, 0)]
    if missing:
        yield f"{subject} has no {' and no '.join(missing)} limit"
    for resource in (qos.CPU, qos.MEMORY):
        request, limit = requests.get(resource, 0), limits.get(resource, 0)
        if limit and request != limit:
            asked, allowed = _amounts(resource, request, limit)
            yield f"{subject} requests {asked} {resource} with a limit of {allowed}"


def _amounts(resource: str, *amounts: MilliQuantity) -> tuple[str, ...]:
    """The amounts for people, to the byte where they would read alike otherwise."""
    if resource == qos.CPU:
        return tuple(map(exact_thousandths, amounts))
    texts = tuple(format_bytes(amount // 1000) for amount in amounts)
    return texts if len(set(texts)) == len(texts) else tuple(str(amount // 1000) for amount in amounts)
