"""The cause of a refusal by a manager's own error: it could not give what the hints had promised, or gave no hint."""

from topomend.decide.cause import Cause, Kind
from topomend.model.pod import ContainerKind, Pod
from topomend.model.quantity import value
from topomend.model.verdict import Failure
from topomend.replay import qos


def cause_of_failure(failure: Failure, pod: Pod) -> Cause:
    """Why a manager could not give what the merge had agreed upon."""
    sentence = f"{failure.provider}: {failure.error}"
    resources = (failure.provider,)
    known = next(((kind, why, remedy) for kind, words, why, remedy in _ERRORS if words in failure.error), None)
    if known is None:
        return Cause(Kind.MANAGER_ERROR, failure.container, resources, sentence)
    kind, why, remedy = known
    if kind in {Kind.NO_FREE_CORES, Kind.NOT_ENOUGH_FREE} and _follows_init(pod, failure):
        return Cause(Kind.INIT_CONTAINERS, failure.container, resources, f"{sentence}: {why}; {_INIT_HOLDS}", remedy)
    return Cause(kind, failure.container, resources, f"{sentence}: {why}", remedy)


def device_cause(message: str, pod: Pod) -> tuple[str, str]:
    """Why a kubelet refused a pod whose devices its plugin does not offer (yet), and their resource, by its message.

    Both empty for any other refusal. After a reboot the node publishes no such device, so replay cannot tell it.
    """
    error = message.removeprefix(_REJECTED).removesuffix(_UNEXPECTED)
    for kind, words, why, remedy in _ERRORS:
        if kind in _OF_DEVICES and words in error and message != error:
            resource = error.split()[-1]
            return f"{error}: {why}{_of_init_containers(pod, resource)}; {remedy}", resource
    return "", ""


def _of_init_containers(pod: Pod, resource: str) -> str:
    """What a restart of the kubelet asks of init containers with such devices; empty where the pod has none.

    Source: devicemanager/manager.go:isContainerAlreadyRunning. No status says of a refused pod what of it has run.
    """
    asking = [
        container.name
        for container in pod.containers
        if container.kind is ContainerKind.INIT and container.resources.limits.get(resource, 0) > 0
    ]
    if not asking:
        return ""
    return f"; a kubelet that restarts asks for the devices of init container {asking[0]} again, though it has ended"


_REJECTED, _UNEXPECTED = "Pod was rejected: Allocate failed due to ", ", which is unexpected"
"""Around a manager's error in the status of the pod (cm/admission/errors.go)."""

_OF_DEVICES = (Kind.DEVICE_NOT_BACK, Kind.DEVICE_UNHEALTHY)

_INIT_HOLDS = "CPUs that its init containers took stay with the pod and are not counted"


_ERRORS: tuple[tuple[Kind, str, str, str], ...] = (
    (
        Kind.PART_OF_A_CORE,
        "not multiple cpus per core",
        "option full-pcpus-only gives whole cores",
        "request a multiple of the CPUs of a core",
    ),
    (
        Kind.NO_FREE_CORES,
        "not enough free physical CPUs",
        "option full-pcpus-only counts cores of which no CPU is taken or reserved",
        "",
    ),
    (
        Kind.EMPTY_SHARED_POOL,
        "pod rejected, ",
        "containers without exclusive resources would have nothing left of the pod's",
        "request more for the pod as a whole",
    ),
    (Kind.NOT_ENOUGH_FREE, "not enough cpus available", "the node has too few free CPUs in all", ""),
    (Kind.NOT_ENOUGH_FREE, "requested number of devices unavailable", "too few healthy devices are free", ""),
    (
        Kind.DEVICE_NOT_BACK,
        "no healthy devices present",
        "their plugin is not back yet, or reports a fault",
        "check the device plugin's pod on the node",
    ),
    (
        Kind.DEVICE_NOT_BACK,
        "unregistered device",
        "no plugin offers it now, though pods hold some",
        "check the device plugin's pod on the node",
    ),
    (
        Kind.DEVICE_UNHEALTHY,
        "no longer healthy",
        "a device that the container holds is unhealthy now",
        "the device plugin's log says why",
    ),
    (
        Kind.MEMORY_GROUP,
        "violates NUMA node allocation",
        "the other resources chose NUMA nodes together whose pinned memory is one by one, which forms no group",
        "",
    ),
    (
        Kind.NOT_ENOUGH_FREE,
        "no NUMA nodes with enough memory",
        "no NUMA nodes, alone or as a group, have that much free",
        "",
    ),
    (
        Kind.NOT_ENOUGH_FREE,
        "failed to find NUMA nodes to extend",
        "neither the NUMA nodes of the other resources nor more of them have that much free",
        "",
    ),
    (
        Kind.PREFERRED_BY_NONE,
        "preferred hint",
        "memory would need more NUMA nodes than the other resources prefer",
        "",
    ),
    (Kind.MANAGER_ERROR, "as int64", "memory is requested in a fraction of a byte", "request a whole number of bytes"),
)


def _follows_init(pod: Pod, failure: Failure) -> bool:
    """Whether the CPU Manager failed for a container that comes after init containers with whole CPUs."""
    if failure.provider != "cpu":
        return False
    for other in pod.containers:
        if other.name == failure.container:
            return False
        if other.kind is ContainerKind.INIT and value(other.resources.requests.get(qos.CPU, 0)) > 0:
            return True
    return False
