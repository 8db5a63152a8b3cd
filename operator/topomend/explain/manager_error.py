"""The cause of a refusal by a manager's own error: it could not give what the hints had promised, or gave no hint."""

import re
from collections.abc import Iterator
from dataclasses import replace

from topomend.explain.cause import Cause, Kind
from topomend.explain.pinned_memory import memory_before, why_pinned
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import ContainerKind, Pod
from topomend.model.verdict import Failure, ResourceTrace, Verdict
from topomend.replay.admission import admit
from topomend.replay.cpu import static as cpu_static
from topomend.replay.effort import Effort
from topomend.replay.memory import static as memory_static
from topomend.replay.qos import CPU


def cause_of_failure(failure: Failure, verdict: Verdict, node: NodeState, pod: Pod, effort: Effort) -> Cause:
    """Why a manager could not give what the merge had agreed upon."""
    sentence = _in_words(failure, verdict, pod)
    resources = (failure.provider,)
    known = next(((kind, why, remedy) for kind, words, why, remedy in _ERRORS if words in failure.error), None)
    if known is None:
        return Cause(Kind.MANAGER_ERROR, failure.container, resources, sentence)
    kind, why, remedy = known
    if kind in {Kind.NO_FREE_CORES, Kind.NOT_ENOUGH_FREE} and _is_init_at_fault(failure, node, pod, effort):
        return Cause(Kind.INIT_CONTAINERS, failure.container, resources, f"{sentence}: {why}; {_INIT_HOLDS}", remedy)
    if failure.provider == memory_static.PROVIDER:
        pinned = why_pinned(_memory_traces(failure, verdict, node, pod), verdict, is_chosen=kind is Kind.MEMORY_GROUP)
        if pinned:
            return Cause(Kind.MEMORY_GROUP, failure.container, resources, f"{sentence}: {pinned}")
    return Cause(kind, failure.container, resources, f"{sentence}: {why}", remedy)


def _in_words(failure: Failure, verdict: Verdict, pod: Pod) -> str:
    """The manager's error for those who wrote the pod.

    The CPU Manager's has the numbers of its last step: of 5 CPUs it lacks 3 after it took the 2 that are free.
    """
    if _TOO_FEW_CPUS not in failure.error:
        return f"{failure.provider}: {failure.error}"
    asked = sum(_cpus_of(pod, failure.container))
    free = next((sum(count for _, count in trace.free) for trace in _traces(failure, verdict, pod)), None)
    if free is None and (step := _STEP.search(failure.error)) and int(step["requested"]) == asked:
        free = int(step["available"])
    return f"cpu requests {asked}" + ("" if free is None else f", free {free} in all")


def _cpus_of(pod: Pod, name: str) -> Iterator[int]:
    """The whole CPUs that the container of this name requests."""
    return (each.resources.requests.get(CPU, 0) // 1000 for each in pod.containers if each.name == name)


def _traces(failure: Failure, verdict: Verdict, pod: Pod) -> Iterator[ResourceTrace]:
    """What was free before the container; nothing where no merge was about it alone."""
    whole = failure.container if len(pod.containers) == 1 else None
    for merge in verdict.merges:
        if (merge.container or whole) == failure.container:
            yield from (trace for trace in merge.resources if trace.provider == failure.provider)


def lacking_in_all(verdict: Verdict, pod: Pod) -> tuple[tuple[ResourceTrace, int], ...]:
    """The resources that a manager could not give because all NUMA nodes together have too little, and how much they
    lack: in CPUs, bytes or devices. Empty for any other refusal, and where no merge tells what was free."""
    if verdict.failure is None:
        return ()
    missing = (
        (trace, trace.requested - sum(amount for _, amount in trace.free))
        for trace in _traces(verdict.failure, verdict, pod)
        if trace.free
    )
    return tuple((trace, amount) for trace, amount in missing if amount > 0)


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

_TOO_FEW_CPUS = "not enough cpus available"

_STEP = re.compile(r"requested=(?P<requested>\d+), available=(?P<available>\d+)")

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
    (Kind.NOT_ENOUGH_FREE, _TOO_FEW_CPUS, "the node has too few free CPUs", ""),
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
        "the other resources chose NUMA nodes together that form no group",
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


def _is_init_at_fault(failure: Failure, node: NodeState, pod: Pod, effort: Effort) -> bool:
    """Whether the CPU Manager would not fail for the container without the init containers before it."""
    if failure.provider != cpu_static.PROVIDER:
        return False
    position = next((at for at, each in enumerate(pod.containers) if each.name == failure.container), 0)
    others = tuple(each for each in pod.containers[:position] if each.kind is not ContainerKind.INIT)
    if len(others) == position:
        return False
    verdict, _ = admit(node, replace(pod, containers=others + pod.containers[position:]), effort)
    same = verdict.failure
    return same is None or (same.provider, same.container) != (failure.provider, failure.container)


def _memory_traces(failure: Failure, verdict: Verdict, node: NodeState, pod: Pod) -> list[ResourceTrace]:
    """Memory and huge pages as they were before the allocation that failed; without a merge as before the pod."""
    if verdict.merges:
        return [trace for trace in verdict.merges[-1].resources if trace.provider == memory_static.PROVIDER]
    return memory_before(node, pod, failure.container)
