"""The cause of a merge that the policy refused, from the masks and preferences that were merged."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import or_
from typing import TypeAlias

from topomend.explain.cause import Cause, Kind
from topomend.explain.manager_error import cause_of_failure
from topomend.explain.pinned_memory import cause_of_pinned_memory
from topomend.explain.trace_text import amount_text, by_node_text, free_text, masks_text, numa_text
from topomend.model.bitmask import CPUSet, NUMAMask, mask_of
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import ContainerKind, Pod
from topomend.model.verdict import Failure, MergeTrace, Preference, ResourceTrace, Verdict
from topomend.replay import qos
from topomend.replay.admission import is_admitted, is_with_scope_admitted, reserved_cpus
from topomend.replay.devices.manager import numa_mask
from topomend.replay.effort import Effort
from topomend.replay.topology.hints import Family, Threshold
from topomend.replay.topology.merge import least_width

Amounts: TypeAlias = tuple[tuple[NUMAMask, int], ...]
"""Amounts, each with the NUMA nodes that it belongs to."""


def refused_merge(verdict: Verdict) -> MergeTrace | None:
    """The merge that ended the admission, None where none did."""
    return next((merge for merge in verdict.merges if not merge.admitted), None)


def cause_of_merge(verdict: Verdict, merge: MergeTrace, node: NodeState, pod: Pod, effort: Effort) -> Cause:
    """Why the policy refused ``merge``: of a whole pod the scope, where one container at a time would be admitted."""
    failed = next((trace for trace in merge.resources if trace.error), None)
    if failed is not None:
        failure = Failure(merge.container, failed.provider, failed.error)
        return cause_of_failure(failure, verdict, node, pod, effort)
    cause = _of_merge(verdict, merge, node, pod, effort)
    if not merge.container and is_with_scope_admitted(node, pod, "container", effort):
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


def _of_merge(verdict: Verdict, merge: MergeTrace, node: NodeState, pod: Pod, effort: Effort) -> Cause:
    """The cause by the resources that offer no mask which the policy could admit, or by all of them together."""
    aligned = _aligned(merge)
    stuck = [trace for trace in aligned if not trace.preferred]
    short = [trace for trace in stuck if _is_short(trace, merge)]
    if short:
        causes = [_cause_of_shortage(trace, verdict, merge, node) for trace in short]
        sentence = "; ".join(cause.sentence for cause in causes)
        remedy = next((cause.remedy for cause in causes if cause.remedy), "")
        return Cause(causes[0].kind, merge.container, blocking(merge), sentence, remedy)
    if stuck:
        return _cause_of_stuck(stuck[0], verdict, merge, node, lambda state: is_admitted(state, pod, effort))
    if aligned and not set.intersection(*(set(trace.preferred_widths) for trace in aligned)):
        return _cause_of_widths(aligned, merge)
    return _cause_of_places(aligned, merge, pod)


def _aligned(merge: MergeTrace) -> list[ResourceTrace]:
    """The resources that the Topology Manager had a hint for."""
    return [trace for trace in merge.resources if trace.preference != Preference.NONE]


def blocking(merge: MergeTrace) -> tuple[str, ...]:
    """The resources that the policy refused the merge for."""
    aligned = _aligned(merge)
    stuck = [trace for trace in aligned if not trace.preferred]
    short = [trace for trace in stuck if _is_short(trace, merge)]
    grouped = [trace for trace in stuck if trace.groups]
    return tuple(trace.resource for trace in short or grouped or aligned)


def lacking(merge: MergeTrace) -> tuple[tuple[ResourceTrace, int], ...]:
    """The resources of which no NUMA nodes have enough free, as many as the policy lets the pod have, and how much
    the best of them lack: in CPUs, bytes or devices."""
    short = [trace for trace in _aligned(merge) if not trace.preferred and _is_short(trace, merge)]
    missing = ((trace, trace.requested - _most(_free(trace), _width(trace, merge))) for trace in short)
    return tuple((trace, amount) for trace, amount in missing if amount > 0)


def _width(trace: ResourceTrace, merge: MergeTrace) -> int:
    """How many NUMA nodes the policy would let the resource have."""
    if merge.policy == "single-numa-node":
        return 1
    if trace.width is not None:
        return trace.width
    capacity = _capacity(trace)
    widths = range(1, len(trace.capacity) + 1)
    return next((width for width in widths if _most(capacity, width) >= trace.requested), len(trace.capacity) or 1)


def _is_short(trace: ResourceTrace, merge: MergeTrace) -> bool:
    """Whether no NUMA nodes have enough free, as many as the policy would let the resource have."""
    return trace.preference == Preference.IMPOSSIBLE or _most(_free(trace), _width(trace, merge)) < trace.requested


def _free(trace: ResourceTrace) -> Amounts:
    return trace.free_sets or _by_mask(trace.free)


def _capacity(trace: ResourceTrace) -> Amounts:
    return trace.capacity_sets or _by_mask(trace.capacity)


def _by_mask(by_node: Iterable[tuple[int, int]]) -> Amounts:
    return tuple([(1 << node, amount) for node, amount in by_node])


def _most(amounts: Amounts, width: int) -> int:
    """The most that ``width`` NUMA nodes have together."""
    by_mask: dict[NUMAMask, int] = {}
    for mask, amount in amounts:
        by_mask[mask] = by_mask.get(mask, 0) + amount
    if all(mask.bit_count() == 1 for mask in by_mask):
        return sum(sorted(by_mask.values(), reverse=True)[:width])
    nodes, total = reduce(or_, by_mask), sum(by_mask.values())
    return bisect_left(range(total), x=True, key=lambda need: not _holds(amounts, nodes, need + 1, width))


def _holds(amounts: Amounts, nodes: NUMAMask, need: int, width: int) -> bool:
    least = least_width(Family(nodes, (Threshold(amounts, need),)))
    return least is not None and least <= width


def _cause_of_shortage(trace: ResourceTrace, verdict: Verdict, merge: MergeTrace, node: NodeState) -> Cause:
    """Why a resource has too little free."""
    if trace.provider == "device":
        cause = _cause_of_devices(trace, merge, node)
        if cause is not None:
            return cause
    width = _width(trace, merge)
    most, capacity = _most(_free(trace), width), _most(_capacity(trace), width)
    asked = f"{trace.resource} requests {amount_text(trace, trace.requested)}"
    lacks = f", lacks {amount_text(trace, trace.requested - most)}" if trace.requested > most else ""
    sentence = f"{asked} and {_fits_none(width)}: free {free_text(trace)}{lacks}"
    kind = Kind.NOT_ENOUGH_FREE
    unreserved = _unreserved(trace, node)
    if trace.requested > capacity:
        kind = Kind.LARGER_THAN_A_NUMA_NODE if width == 1 else Kind.NOT_ENOUGH_FREE
        physical = _physical_memory(trace, node)
        if trace.provider == "memory" and _most(physical, width) >= trace.requested:
            kind = Kind.RESERVED_MEMORY
            sentence += "; the rest is reserved for the system or set aside as huge pages"
        else:
            sentence += f"; even empty {_at_most(trace, node, width, capacity)}"
    elif unreserved and _most(unreserved, width) < trace.requested:
        kind = Kind.RESERVED_CPUS
        place = "it" if width == 1 else f"{width} NUMA nodes"
        sentence += (
            f"; {place} would have enough CPUs if none were reserved for the system, and those count for the size; "
            f"{_most(unreserved, width)} are not reserved"
        )
    elif merge.policy == "restricted" and any(mask.bit_count() > width for mask, _ in trace.fits):
        kind = Kind.PREFERRED_BY_NONE
        sentence += f"; more NUMA nodes together have it, but {width} could hold it, so restricted refuses more"
    sentence += _taken_before(trace, verdict)
    return Cause(kind, merge.container, (trace.resource,), sentence)


def _taken_before(trace: ResourceTrace, verdict: Verdict) -> str:
    """How much of the resource the pod's own containers before this one took."""
    first = next(each for merge in verdict.merges for each in merge.resources if each.resource == trace.resource)
    taken = sum(amount for _, amount in first.free) - sum(amount for _, amount in trace.free)
    return f"; its own containers before it took {amount_text(trace, taken)}" if taken > 0 else ""


def _at_most(trace: ResourceTrace, node: NodeState, width: int, capacity: int) -> str:
    """The most that an empty node has: in all, or on as many NUMA nodes as are preferred."""
    devices = sum(device.resource == trace.resource for device in node.devices)
    total = devices or sum(amount for _, amount in trace.capacity)
    if width > 1 and trace.requested > total:
        return f"the node has no more than {amount_text(trace, total)}"
    if not capacity:
        return "no NUMA node has any"
    have = "no NUMA node has" if width == 1 else f"no {width} NUMA nodes have"
    return f"{have} more than {amount_text(trace, capacity)}"


def _fits_none(width: int) -> str:
    return "fits no NUMA node" if width == 1 else f"prefers {width} NUMA nodes and fits no {width} of them"


def _unreserved(trace: ResourceTrace, node: NodeState) -> Amounts:
    """The CPUs of each NUMA node that are not reserved; empty for other resources."""
    if trace.provider != "cpu":
        return ()
    reserved: CPUSet = reserved_cpus(node)
    return _by_mask((number, (cpus & ~reserved).bit_count()) for number, cpus in node.machine.cpus_of_numa_node.items())


def _physical_memory(trace: ResourceTrace, node: NodeState) -> Amounts:
    return _by_mask((numa.id, numa.memory) for numa in node.machine.numa_nodes) if trace.resource == qos.MEMORY else ()


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
    unhealthy = [(number, sum(number in (device.numa_nodes or ()) for device in sick)) for number, _ in trace.free]
    repaired = (*_free(trace), *((numa_mask(device.numa_nodes), 1) for device in sick))
    if sick and _most(repaired, width) >= trace.requested:
        sentence = (
            f"{asked} and {_fits_none(width)}: free {free_text(trace)}; unhealthy {by_node_text(trace, unhealthy)}"
        )
        return Cause(Kind.DEVICE_UNHEALTHY, container, resources, sentence, "the device plugin's log says why")
    known = set(node.machine.numa_nodes and [numa.id for numa in node.machine.numa_nodes])
    lost = [device for device in healthy if not known & set(device.numa_nodes or ())]
    if lost and len(healthy) >= trace.requested and _most(_capacity(trace), width) < trace.requested:
        sentence = (
            f"{asked}, but {len(lost)} of {len(devices)} stand on no NUMA node that the machine has, and such devices "
            "fit nowhere once any device of the resource names a NUMA node"
        )
        return Cause(Kind.DEVICE_WITHOUT_NUMA_NODE, container, resources, sentence, "correct what the plugin reports")
    return None


def _cause_of_stuck(
    trace: ResourceTrace, verdict: Verdict, merge: MergeTrace, node: NodeState, admits: Callable[[NodeState], bool]
) -> Cause:
    """Why a resource offers no usable mask although enough is free: groups of memory, init containers, kinds of it.

    ``admits`` is whether the node would admit the pod in another state.
    """
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
        return _cause_of_memory(kinds, verdict, merge, node, admits)
    sentence = f"{asked}, which {width} NUMA nodes could hold: free {free_text(trace)}"
    return Cause(Kind.PREFERRED_BY_NONE, merge.container, (trace.resource,), sentence)


def _cause_of_memory(
    kinds: Sequence[ResourceTrace],
    verdict: Verdict,
    merge: MergeTrace,
    node: NodeState,
    admits: Callable[[NodeState], bool],
) -> Cause:
    """Why memory and huge pages, which come from the same NUMA nodes, fit none although enough of each is free."""
    width = _width(kinds[0], merge)
    free = tuple([Threshold(_free(kind), kind.requested) for kind in kinds])
    least = least_width(Family(mask_of(number for number, _ in kinds[0].free), free))
    if least is not None and least <= width:
        return cause_of_pinned_memory(kinds, verdict, node, admits, width)
    if width == 1:
        return _cause_of_places(kinds, merge, None)
    asked = " and ".join(f"{kind.resource} requests {amount_text(kind, kind.requested)}" for kind in kinds)
    free_words = "; ".join(f"{kind.resource} {free_text(kind)}" for kind in kinds)
    sentence = f"{asked}, and no {width} NUMA nodes have enough of both: free {free_words}"
    return Cause(Kind.DIFFERENT_NUMA_NODES, merge.container, tuple(kind.resource for kind in kinds), sentence)


def _cause_of_widths(aligned: Sequence[ResourceTrace], merge: MergeTrace) -> Cause:
    parts = [
        f"{trace.resource} ({amount_text(trace, trace.requested)}) prefers "
        + " or ".join(map(str, trace.preferred_widths))
        for trace in aligned
    ]
    sentence = (
        f"its resources prefer different numbers of NUMA nodes: {', '.join(parts)}; restricted admits only NUMA nodes "
        "that all of them prefer, even where the node is empty"
    )
    return Cause(Kind.PREFERENCES_DIFFER, merge.container, tuple(trace.resource for trace in aligned), sentence)


def _cause_of_places(aligned: Sequence[ResourceTrace], merge: MergeTrace, pod: Pod | None) -> Cause:
    """All resources fit, but nowhere together."""
    limited = [trace for trace in aligned if not trace.anywhere]
    sentence = ", ".join(
        f"{trace.resource} fits {_places_text(trace)} only"
        + (f" (its init containers left theirs on {numa_text(trace.required)})" if trace.required else "")
        for trace in limited or aligned
    )
    kind = Kind.DIFFERENT_NUMA_NODES
    if any(trace.required for trace in aligned) and pod and _has_init(pod):
        kind = Kind.INIT_CONTAINERS
    return Cause(kind, merge.container, tuple(trace.resource for trace in aligned), sentence)


def _places_text(trace: ResourceTrace) -> str:
    """The NUMA nodes that a resource could have; of memory that groups keep away those that have enough."""
    enough = [1 << number for number, free in trace.free if free >= trace.requested]
    return masks_text(trace.preferred, trace.preferred_widths) if trace.preferred else masks_text(enough, (1,))


def _has_init(pod: Pod) -> bool:
    return any(container.kind is ContainerKind.INIT for container in pod.containers)
