"""QoS classes and pod-level resources: for which pods the CPU and Memory Managers allocate anything.

Source: pkg/apis/core/v1/helper/qos/qos.go, component-helpers/resource/helpers.go, pkg/kubelet/cm/qos/helpers.go.
"""

from collections.abc import Iterable

from topomend.model.pods.pod import Container, Pod, Resources
from topomend.replay.gates import Gates

GUARANTEED, BURSTABLE, BEST_EFFORT = "Guaranteed", "Burstable", "BestEffort"

CPU, MEMORY, HUGEPAGES_PREFIX = "cpu", "memory", "hugepages-"


def qos_class(pod: Pod, gates: Gates) -> str:
    """The QoS class of the pod's status, otherwise the computed one (qos.go:GetPodQOS)."""
    return pod.qos_class or computed_qos_class(pod, gates)


def is_guaranteed(pod: Pod, gates: Gates) -> bool:
    """Whether the pod is Guaranteed. The CPU and Memory Managers ignore all other pods."""
    return qos_class(pod, gates) == GUARANTEED


def computed_qos_class(pod: Pod, gates: Gates) -> str:
    """The QoS class that follows from the pod's resources (qos.go:ComputePodQOS).

    If the pod has pod-level resources, only those count. Requests without limits then do not disqualify the pod at
    once; comparing requests and limits does.
    """
    whole = pod.resources if gates.pod_level_resources else None
    if whole is not None and not gates.blank_pod_resources_count and not has_pod_level_resources(pod):
        whole = None
    units = [container.resources for container in pod.containers] if whole is None else [whole]
    if gates.qos_by_container:
        classes = {_class_of(unit) for unit in units} or {BEST_EFFORT}
        return classes.pop() if len(classes) == 1 else BURSTABLE
    limited = all(_has_both(unit) for unit in units) if whole is None else not whole.limits or _has_both(whole)
    requests = _totals(unit.requests.items() for unit in units)
    limits = _totals(unit.limits.items() for unit in units)
    if not requests and not limits:
        return BEST_EFFORT
    return GUARANTEED if limited and requests == limits else BURSTABLE


def is_memory(resource: str) -> bool:
    """Whether the Memory Manager allocates the resource: memory and huge pages."""
    return resource == MEMORY or resource.startswith(HUGEPAGES_PREFIX)


def has_pod_level_resources(pod: Pod) -> bool:
    """Whether ``spec.resources`` names CPUs, memory or huge pages (helpers.go:IsPodLevelResourcesSet)."""
    return pod.resources is not None and any(
        name == CPU or is_memory(name) for name in (*pod.resources.requests, *pod.resources.limits)
    )


def uses_pod_level_managers(pod: Pod, gates: Gates) -> bool:
    """Whether the managers allocate by the pod's own resources instead of its containers'."""
    return gates.pod_level_resource_managers and has_pod_level_resources(pod)


def is_skipped(pod: Pod, gates: Gates) -> bool:
    """Whether the CPU and Memory Managers skip the pod, because they do not support its pod-level resources."""
    return gates.skips_pod_level_resources and has_pod_level_resources(pod)


def is_container_guaranteed(container: Container) -> bool:
    """Whether the container alone would be Guaranteed (qos/helpers.go:IsContainerEquivalentQOSGuaranteed)."""
    requests, limits = container.resources.requests, container.resources.limits
    return all(requests.get(name, 0) and requests[name] == limits.get(name, 0) for name in (CPU, MEMORY))


def _class_of(resources: Resources) -> str:
    """The QoS class of one container or of the pod-level resources (qos.go:requirementsQOS, resourceQOS)."""
    pairs = [(resources.requests.get(name, 0), resources.limits.get(name, 0)) for name in (CPU, MEMORY)]
    if any(request != limit for request, limit in pairs) or (pairs[0][0] == 0) != (pairs[1][0] == 0):
        return BURSTABLE
    return GUARANTEED if pairs[0][0] else BEST_EFFORT


def _has_both(resources: Resources) -> bool:
    return resources.limits.get(CPU, 0) > 0 and resources.limits.get(MEMORY, 0) > 0


def _totals(lists: Iterable[Iterable[tuple[str, int]]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for items in lists:
        for name, quantity in items:
            if name in (CPU, MEMORY) and quantity > 0:
                totals[name] = totals.get(name, 0) + quantity
    return totals
