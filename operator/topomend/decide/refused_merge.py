"""The cause of a merge that the policy refused, from the masks and preferences that were merged."""

from collections.abc import Iterable, Sequence

from topomend.decide.cause import Cause, Kind
from topomend.decide.manager_error import cause_of_failure
from topomend.decide.trace_text import amount_text, by_node_text, free_text, masks_text, numa_text
from topomend.model.bitmask import CPUSet, NUMAMask
from topomend.model.node_state import NodeState
from topomend.model.pod import ContainerKind, Pod
from topomend.model.verdict import Failure, MergeTrace, Preference, ResourceTrace, Verdict
from topomend.replay import qos
from topomend.replay.admission import is_with_scope_admitted, reserved_cpus


def refused_merge(verdict: Verdict) -> MergeTrace | None:
    """The merge that ended the admission, None where none did."""
    return next((merge for merge in verdict.merges if not merge.admitted), None)


def cause_of_merge(merge: MergeTrace, node: NodeState, pod: Pod) -> Cause:
    """Why the policy refused ``merge``: of a whole pod the scope, where one container at a time would be admitted."""
    failed = next((trace for trace in merge.resources if trace.error), None)
    if failed is not None:
        return cause_of_failure(Failure(merge.container, failed.provider, failed.error), pod)
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
        return Cause(causes[0].kind, merge.container, blocking(merge), sentence, remedy)
    if stuck:
        return _cause_of_stuck(stuck[0], merge, node)
    widths = {trace.resource: {mask.bit_count() for mask in _usable(trace, merge)} for trace in aligned}
    if aligned and not set.intersection(*widths.values()):
        return _cause_of_widths(aligned, merge)
    return _cause_of_places(aligned, merge, pod)


def _aligned(merge: MergeTrace) -> list[ResourceTrace]:
    """The resources that the Topology Manager had a hint for."""
    return [trace for trace in merge.resources if trace.preference != Preference.NONE]


def _usable(trace: ResourceTrace, merge: MergeTrace) -> tuple[NUMAMask, ...]:
    """The masks of a resource that its policy could admit."""
    if merge.policy == "single-numa-node":
        return tuple(mask for mask in trace.preferred if mask.bit_count() == 1)
    return trace.preferred


def blocking(merge: MergeTrace) -> tuple[str, ...]:
    """The resources that the policy refused the merge for."""
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
    sentence = f"{asked} and {fits}: free {free_text(trace)}{lacks}"
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
        place = "it" if width == 1 else f"{width} NUMA nodes"
        sentence += (
            f"; {place} would have enough CPUs if none were reserved for the system, and those count for the size"
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
        where = by_node_text(trace, [(number, amount - dict(trace.free)[number]) for number, amount in repaired])
        sentence = f"{asked} and fits no NUMA node: free {free_text(trace)}; unhealthy {where}"
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
            f"free {free_text(trace)}"
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
    sentence = f"{asked}, which {width} NUMA nodes could hold: free {free_text(trace)}"
    return Cause(Kind.PREFERRED_BY_NONE, merge.container, (trace.resource,), sentence)


def _cause_of_groups(trace: ResourceTrace, merge: MergeTrace, node: NodeState, width: int) -> Cause:
    asked = f"{trace.resource} requests {amount_text(trace, trace.requested)}"
    free = f"free {free_text(trace)}"
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
        f"{trace.resource} fits {masks_text(places[trace.resource])} only"
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


def _has_init(pod: Pod) -> bool:
    return any(container.kind is ContainerKind.INIT for container in pod.containers)
