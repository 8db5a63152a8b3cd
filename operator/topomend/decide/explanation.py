"""Why a kubelet refuses a pod: one structured Cause, from the masks and preferences that its decision merged.

Owns the kinds of causes and the wording: what happened, why, what to do. Leaves tables for a terminal to ``cli``, what
would be admitted instead to ``nearest`` and ``remedy``, and why a pod is not pinned at all to ``pinning``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from topomend.model.bitmask import CPUSet, NUMAMask, members
from topomend.model.node_state import NodeState
from topomend.model.pod import ContainerKind, Pod
from topomend.model.quantity import format_bytes, value
from topomend.model.verdict import Failure, MergeTrace, Preference, ResourceTrace, Verdict
from topomend.replay import errors, qos
from topomend.replay.admission import is_with_scope_admitted, reserved_cpus
from topomend.replay.resize import DEFERRED, Resized

MAX_NAMED = 8
"""Of so many NUMA nodes or masks a sentence names each; of more those with the most free."""


class Kind(Enum):
    """The causes of a refusal. The values are stable, for scripts."""

    NOT_ENOUGH_FREE = "NotEnoughFree"
    LARGER_THAN_A_NUMA_NODE = "LargerThanANUMANode"
    RESERVED_CPUS = "ReservedCPUs"
    RESERVED_MEMORY = "ReservedMemory"
    MEMORY_GROUP = "MemoryGroup"
    PREFERENCES_DIFFER = "PreferencesDiffer"
    DIFFERENT_NUMA_NODES = "DifferentNUMANodes"
    PREFERRED_BY_NONE = "PreferredByNone"
    INIT_CONTAINERS = "InitContainers"
    POD_SCOPE = "PodScope"
    PART_OF_A_CORE = "PartOfACore"
    NO_FREE_CORES = "NoFreeCores"
    DEVICE_UNHEALTHY = "DeviceUnhealthy"
    DEVICE_NOT_BACK = "DeviceNotBack"
    DEVICE_WITHOUT_NUMA_NODE = "DeviceWithoutNUMANode"
    EMPTY_SHARED_POOL = "EmptySharedPool"
    TOO_MANY_NUMA_NODES = "TooManyNUMANodes"
    KUBELET_WOULD_NOT_START = "KubeletWouldNotStart"
    KUBELET_WOULD_HANG = "KubeletWouldHang"
    KUBELET_WOULD_CRASH = "KubeletWouldCrash"
    MANAGER_ERROR = "ManagerError"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a kubelet refuses a pod.

    ``container`` is empty where the pod is refused as a whole. ``sentence`` says what happened and why, ``remedy`` what
    to do, where that needs no search. ``resources`` are those that the pod is refused for.
    """

    kind: Kind
    container: str
    resources: tuple[str, ...]
    sentence: str
    remedy: str = ""

    @property
    def text(self) -> str:
        """The sentence and the remedy."""
        return f"{self.sentence}; {self.remedy}" if self.remedy else self.sentence


def explain(verdict: Verdict, node: NodeState, pod: Pod) -> str:
    """Why the node refuses the pod, or that it admits it and on which NUMA nodes, in one line.

    ``verdict`` is the answer of ``admit(node, pod)``.
    """
    remarks = _unmodelled(verdict.unmodelled)
    if verdict.admitted:
        return f"{node.name} admits {verdict.name}{_placement(verdict)}{remarks}"
    cause = cause_of(verdict, node, pod)
    subject = f"container {cause.container}" if cause.container else verdict.name
    if refused_merge(verdict) is not None and not cause.container:
        subject = f"{verdict.name} as a whole (scope pod)"
    return f"{node.name} refuses {subject}: {cause.text} ({node.kubelet.topology_manager_policy}){remarks}"


def cause_of(verdict: Verdict, node: NodeState, pod: Pod) -> Cause:
    """The cause of a refusal: ``verdict`` is the answer of ``admit(node, pod)``, and not an admission."""
    merge = refused_merge(verdict)
    if merge is not None:
        return _cause_of_merge(merge, node, pod)
    if verdict.failure is not None:
        return _cause_of_failure(verdict.failure, pod)
    return _cause_of_kubelet(verdict, node)


def explain_resize(answer: Resized, pod: str, node: str) -> str:
    """Whether ``node`` resizes the pod in place, and in the kubelet's words why not."""
    remarks = _unmodelled(answer.unmodelled)
    if not answer.reason:
        return f"{node} resizes {pod} in place{remarks}"
    if answer.reason == DEFERRED:
        return f"{node} puts the resize of {pod} off ({DEFERRED}): {answer.message}{remarks}"
    return f"{node} does not resize {pod} ({answer.reason}): {answer.message}{remarks}"


def amounts(verdict: Verdict) -> tuple[str, ...]:
    """What was asked and free of each aligned resource, a line each container, or one for a whole pod."""
    return tuple(
        f"{merge.container or verdict.name}: {requests}"
        for merge in verdict.merges
        if (requests := "; ".join(_request_text(trace) for trace in merge.resources if trace.free))
    )


def refused_merge(verdict: Verdict) -> MergeTrace | None:
    """The merge that ended the admission, None where none did."""
    return next((merge for merge in verdict.merges if not merge.admitted), None)


def blocking_resources(verdict: Verdict) -> str:
    """For a summary: the resources that the pod was refused for, joined by commas, or the kubelet's reason."""
    merge = refused_merge(verdict)
    if verdict.failure:
        return verdict.failure.provider
    if merge is None:
        return verdict.reason
    return ",".join(_blocking(merge)) or verdict.reason


def numa_nodes_text(verdict: Verdict) -> str:
    """The NUMA nodes that an admitted pod is aligned to: ``NUMA 0,1``; empty where it is not aligned."""
    mask = 0
    for container in verdict.containers:
        mask |= container.affinity or 0
    return numa_text(mask) if mask else ""


def is_aligned(trace: ResourceTrace) -> bool:
    """Whether the Topology Manager had a hint for the resource."""
    return trace.preference != Preference.NONE


def amount_text(trace: ResourceTrace, number: int) -> str:
    """An amount of the resource: ``1Gi`` for memory, ``3`` for others."""
    return resource_amount_text(trace.resource, number)


def resource_amount_text(resource: str, number: int) -> str:
    """An amount of a resource in bytes, CPUs or devices: ``1Gi`` for memory, ``3`` for others."""
    return format_bytes(number) if qos.is_memory(resource) else str(number)


def numa_text(mask: NUMAMask) -> str:
    """``NUMA 0,1`` for the mask of these NUMA nodes."""
    return "NUMA " + ",".join(map(str, members(mask)))


def _placement(verdict: Verdict) -> str:
    numa_nodes = numa_nodes_text(verdict)
    return f" on {numa_nodes}" if numa_nodes else ""


def _unmodelled(remarks: Sequence[str]) -> str:
    return f"; not modelled: {', '.join(remarks)}" if remarks else ""


def _request_text(trace: ResourceTrace) -> str:
    return f"{trace.resource} requests {amount_text(trace, trace.requested)}, free {_free_text(trace)}"


def _free_text(trace: ResourceTrace) -> str:
    return _by_node(trace, trace.free)


def _by_node(trace: ResourceTrace, by_node: Iterable[tuple[int, int]]) -> str:
    """``2 on NUMA 0, 3 on NUMA 1``; of many NUMA nodes those with the most."""
    amounts = list(by_node)
    if len(amounts) > MAX_NAMED:
        amounts = sorted(sorted(amounts, key=lambda pair: -pair[1])[:MAX_NAMED])
    named = ", ".join(f"{amount_text(trace, amount)} on NUMA {node}" for node, amount in amounts)
    return named or "none"


# Refused merges


def _cause_of_merge(merge: MergeTrace, node: NodeState, pod: Pod) -> Cause:
    failed = next((trace for trace in merge.resources if trace.error), None)
    if failed is not None:
        return _cause_of_failure(Failure(merge.container, failed.provider, failed.error), pod)
    cause = _of_merge(merge, node, pod)
    if not merge.container and is_with_scope_admitted(node, pod, "container"):
        together = " and ".join(f"{amount_text(trace, trace.requested)} {trace.resource}" for trace in _aligned(merge))
        sentence = f"its containers together request {together}, and scope pod gives all of them the same NUMA nodes"
        return Cause(
            Kind.POD_SCOPE,
            "",
            cause.resources,
            f"{sentence}: {cause.sentence}",
            "each container alone would be admitted with scope container",
        )
    return cause


def _of_merge(merge: MergeTrace, node: NodeState, pod: Pod) -> Cause:
    """The cause by the resources that offer no mask which the policy could admit, or by all of them together."""
    aligned = _aligned(merge)
    stuck = [trace for trace in aligned if not _usable(trace, merge)]
    short = [trace for trace in stuck if _is_short(trace, merge)]
    if short:
        causes = [_cause_of_shortage(trace, merge, node) for trace in short]
        sentence = "; ".join(cause.sentence for cause in causes)
        remedy = next((cause.remedy for cause in causes if cause.remedy), "")
        return Cause(causes[0].kind, merge.container, _blocking(merge), sentence, remedy)
    if stuck:
        return _cause_of_stuck(stuck[0], merge, node)
    widths = {trace.resource: {mask.bit_count() for mask in _usable(trace, merge)} for trace in aligned}
    if aligned and not set.intersection(*widths.values()):
        return _cause_of_widths(aligned, merge)
    return _cause_of_places(aligned, merge, pod)


def _aligned(merge: MergeTrace) -> list[ResourceTrace]:
    return [trace for trace in merge.resources if is_aligned(trace)]


def _usable(trace: ResourceTrace, merge: MergeTrace) -> tuple[NUMAMask, ...]:
    """The masks of a resource that its policy could admit."""
    if merge.policy == "single-numa-node":
        return tuple(mask for mask in trace.preferred if mask.bit_count() == 1)
    return trace.preferred


def _blocking(merge: MergeTrace) -> tuple[str, ...]:
    aligned = _aligned(merge)
    short = [trace for trace in aligned if not _usable(trace, merge) and _is_short(trace, merge)]
    grouped = [trace for trace in aligned if not _usable(trace, merge) and trace.groups]
    return tuple(trace.resource for trace in short or grouped or aligned)


def _width(trace: ResourceTrace, merge: MergeTrace) -> int:
    """How many NUMA nodes the policy would let the resource have."""
    if merge.policy == "single-numa-node":
        return 1
    if trace.width is not None:
        return trace.width
    widths = range(1, len(trace.capacity) + 1)
    return next(
        (width for width in widths if _most(trace.capacity, width) >= trace.requested), len(trace.capacity) or 1
    )


def _is_short(trace: ResourceTrace, merge: MergeTrace) -> bool:
    """Whether the NUMA nodes with the most free have too little together."""
    return trace.preference == Preference.IMPOSSIBLE or _most(trace.free, _width(trace, merge)) < trace.requested


def _most(by_node: Iterable[tuple[int, int]], width: int) -> int:
    return sum(sorted((amount for _, amount in by_node), reverse=True)[:width])


def _cause_of_shortage(trace: ResourceTrace, merge: MergeTrace, node: NodeState) -> Cause:
    """Why a resource has too little free."""
    if trace.provider == "device":
        cause = _cause_of_devices(trace, merge, node)
        if cause is not None:
            return cause
    width = _width(trace, merge)
    most, capacity = _most(trace.free, width), _most(trace.capacity, width)
    asked = f"{trace.resource} requests {amount_text(trace, trace.requested)}"
    lacks = f", lacks {amount_text(trace, trace.requested - most)}" if trace.requested > most else ""
    fits = "fits no NUMA node" if width == 1 else f"prefers {width} NUMA nodes and fits no {width} of them"
    sentence = f"{asked} and {fits}: free {_free_text(trace)}{lacks}"
    kind, remedy = Kind.NOT_ENOUGH_FREE, ""
    unreserved = _unreserved(trace, node)
    if trace.requested > capacity:
        kind = Kind.LARGER_THAN_A_NUMA_NODE if width == 1 else Kind.NOT_ENOUGH_FREE
        physical = _physical_memory(trace, node)
        if trace.provider == "memory" and _most(physical, width) >= trace.requested:
            kind = Kind.RESERVED_MEMORY
            sentence += "; the rest is reserved for the system or set aside as huge pages"
        elif capacity:
            sentence += f"; even empty no NUMA node has more than {amount_text(trace, capacity)}"
            sentence = sentence if width == 1 else sentence.replace("no NUMA node has", f"no {width} NUMA nodes have")
    elif unreserved and _most(unreserved, width) < trace.requested:
        kind = Kind.RESERVED_CPUS
        each = "it" if width == 1 else f"{width} NUMA nodes"
        sentence += (
            f"; {each} would have enough CPUs if none were reserved for the system, and those count for the size"
        )
        remedy = f"request at most {_most(unreserved, width)} CPUs, or reserve fewer"
    elif merge.policy == "restricted" and any(mask.bit_count() > width for mask, _ in trace.fits):
        kind = Kind.PREFERRED_BY_NONE
        sentence += f"; more NUMA nodes together have it, but {width} could hold it, so restricted refuses more"
    elif trace.required:
        kind = Kind.INIT_CONTAINERS
    return Cause(kind, merge.container, (trace.resource,), sentence, remedy)


def _unreserved(trace: ResourceTrace, node: NodeState) -> tuple[tuple[int, int], ...]:
    """The CPUs of each NUMA node that are not reserved; empty for other resources."""
    if trace.provider != "cpu":
        return ()
    reserved: CPUSet = reserved_cpus(node)
    return tuple((number, (cpus & ~reserved).bit_count()) for number, cpus in node.machine.cpus_of_numa_node.items())


def _physical_memory(trace: ResourceTrace, node: NodeState) -> tuple[tuple[int, int], ...]:
    return tuple((numa.id, numa.memory) for numa in node.machine.numa_nodes) if trace.resource == qos.MEMORY else ()


def _cause_of_devices(trace: ResourceTrace, merge: MergeTrace, node: NodeState) -> Cause | None:
    """The causes that only devices have: unhealthy, not back, or on no NUMA node."""
    devices = [device for device in node.devices if device.resource == trace.resource]
    healthy = [device for device in devices if device.healthy]
    asked = f"{trace.resource} requests {trace.requested}"
    container, resources = merge.container, (trace.resource,)
    if not healthy:
        sentence = f"{asked}, and none of {len(devices)} is healthy: their plugin is not back yet, or reports a fault"
        return Cause(Kind.DEVICE_NOT_BACK, container, resources, sentence, "check the device plugin's pod on the node")
    width = _width(trace, merge)
    sick = [device for device in devices if not device.healthy]
    repaired = [
        (number, amount + sum(number in (device.numa_nodes or ()) for device in sick)) for number, amount in trace.free
    ]
    if sick and _most(repaired, width) >= trace.requested:
        where = _by_node(trace, [(number, amount - dict(trace.free)[number]) for number, amount in repaired])
        sentence = f"{asked} and fits no NUMA node: free {_free_text(trace)}; unhealthy {where}"
        return Cause(Kind.DEVICE_UNHEALTHY, container, resources, sentence, "the device plugin's log says why")
    known = set(node.machine.numa_nodes and [numa.id for numa in node.machine.numa_nodes])
    lost = [device for device in healthy if not known & set(device.numa_nodes or ())]
    if lost and len(healthy) >= trace.requested and _most(trace.capacity, width) < trace.requested:
        sentence = (
            f"{asked}, but {len(lost)} of {len(devices)} stand on no NUMA node that the machine has, and such devices "
            "fit nowhere once any device of the resource names a NUMA node"
        )
        return Cause(Kind.DEVICE_WITHOUT_NUMA_NODE, container, resources, sentence, "correct what the plugin reports")
    return None


def _cause_of_stuck(trace: ResourceTrace, merge: MergeTrace, node: NodeState) -> Cause:
    """Why a resource offers no usable mask although enough is free: groups of memory, init containers, kinds of it."""
    width = _width(trace, merge)
    asked = f"{trace.resource} requests {amount_text(trace, trace.requested)}"
    if trace.required:
        sentence = (
            f"{asked} and must include {numa_text(trace.required)}, where its init containers left theirs: "
            f"free {_free_text(trace)}"
        )
        remedy = "give the init containers no more than they need, or none of their own"
        return Cause(Kind.INIT_CONTAINERS, merge.container, (trace.resource,), sentence, remedy)
    if trace.provider == "memory":
        kinds = [other for other in _aligned(merge) if other.provider == "memory"]
        if width == 1 and len(kinds) > 1:
            common = set.intersection(*({n for n, free in kind.free if free >= kind.requested} for kind in kinds))
            if not common:
                return _cause_of_places(kinds, merge, None)
        return _cause_of_groups(trace, merge, node, width)
    sentence = f"{asked}, which {width} NUMA nodes could hold: free {_free_text(trace)}"
    return Cause(Kind.PREFERRED_BY_NONE, merge.container, (trace.resource,), sentence)


def _cause_of_groups(trace: ResourceTrace, merge: MergeTrace, node: NodeState, width: int) -> Cause:
    asked = f"{trace.resource} requests {amount_text(trace, trace.requested)}"
    free = f"free {_free_text(trace)}"
    if trace.groups:
        groups = " and ".join(numa_text(mask) for mask in trace.groups)
        are = "is a group" if len(trace.groups) == 1 else "are groups"
        sentence = (
            f"{asked}, and enough is free ({free}), but {groups} {are} of the Memory Manager: memory pinned across "
            "NUMA nodes keeps all other memory off each of them alone"
        )
    else:
        sentence = (
            f"{asked} and prefers {width} NUMA nodes, and enough is free ({free}), but a NUMA node that holds pinned "
            "memory of its own joins no group"
        )
    holders = _holders(node, trace.groups)
    remedy = f"waits for {holders} to end" if holders else ""
    return Cause(Kind.MEMORY_GROUP, merge.container, (trace.resource,), sentence, remedy)


def _holders(node: NodeState, groups: Sequence[NUMAMask]) -> str:
    names = [
        f"{pod.namespace}/{pod.name}"
        for pod in node.pods
        if any(block.numa_nodes in groups for container in pod.containers for block in container.memory)
    ]
    return " and ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def _cause_of_widths(aligned: Sequence[ResourceTrace], merge: MergeTrace) -> Cause:
    parts = [
        f"{trace.resource} ({amount_text(trace, trace.requested)}) prefers "
        + " or ".join(map(str, sorted({mask.bit_count() for mask in _usable(trace, merge)})))
        for trace in aligned
    ]
    sentence = (
        f"its resources prefer different numbers of NUMA nodes: {', '.join(parts)}; restricted admits only NUMA nodes "
        "that all of them prefer, even where the node is empty"
    )
    return Cause(Kind.PREFERENCES_DIFFER, merge.container, tuple(trace.resource for trace in aligned), sentence)


def _cause_of_places(aligned: Sequence[ResourceTrace], merge: MergeTrace, pod: Pod | None) -> Cause:
    """All resources fit, but nowhere together."""
    every = {node for trace in aligned for node, _ in trace.free}
    places = {trace.resource: _places(trace, merge) for trace in aligned}
    limited = [trace for trace in aligned if set(places[trace.resource]) != {1 << node for node in every}]
    sentence = ", ".join(
        f"{trace.resource} fits {_masks_text(places[trace.resource])} only"
        + (f" (its init containers left theirs on {numa_text(trace.required)})" if trace.required else "")
        for trace in limited or aligned
    )
    kind = Kind.DIFFERENT_NUMA_NODES
    if any(trace.required for trace in aligned) and pod and _has_init(pod):
        kind = Kind.INIT_CONTAINERS
    return Cause(kind, merge.container, tuple(trace.resource for trace in aligned), sentence)


def _places(trace: ResourceTrace, merge: MergeTrace) -> tuple[NUMAMask, ...]:
    masks = _usable(trace, merge)
    return masks or tuple(1 << node for node, free in trace.free if free >= trace.requested)


def _masks_text(masks: Sequence[NUMAMask]) -> str:
    """``NUMA 0,1`` for single NUMA nodes, ``NUMA 0+1 or 2+3`` for pairs."""
    if all(mask.bit_count() == 1 for mask in masks):
        together = 0
        for mask in masks:
            together |= mask
        return numa_text(together)
    named = [" + ".join(map(str, members(mask))).replace(" ", "") for mask in masks[:MAX_NAMED]]
    return "NUMA " + " or ".join(named) + (" or others" if len(masks) > MAX_NAMED else "")


def _has_init(pod: Pod) -> bool:
    return any(container.kind is ContainerKind.INIT for container in pod.containers)


# Refusals without a refused merge


def _cause_of_failure(failure: Failure, pod: Pod) -> Cause:
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


def _cause_of_kubelet(verdict: Verdict, node: NodeState) -> Cause:
    """The answer of a kubelet that would not start, would hang or would crash."""
    resources = (verdict.reason,)
    if verdict.reason == errors.KUBELET_WOULD_HANG:
        remedy = (
            "request fewer kinds of aligned resources, or use single-numa-node, which compares single NUMA nodes only"
        )
        return Cause(Kind.KUBELET_WOULD_HANG, "", resources, verdict.message, remedy)
    if verdict.reason == errors.KUBELET_WOULD_CRASH:
        return Cause(Kind.KUBELET_WOULD_CRASH, "", resources, verdict.message)
    if "NUMA Nodes" in verdict.message:
        remedy = f"set option max-allowable-numa-nodes to {len(node.machine.numa_nodes)} or more"
        return Cause(Kind.TOO_MANY_NUMA_NODES, "", resources, f"its kubelet would not start: {verdict.message}", remedy)
    sentence = f"its kubelet would not start: {verdict.message}"
    return Cause(Kind.KUBELET_WOULD_NOT_START, "", resources, sentence, "correct its configuration")
