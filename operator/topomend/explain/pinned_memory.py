"""The cause of a refusal by pinned memory: enough is free, but NUMA nodes whose memory is pinned do not give it.

The Memory Manager keeps two kinds of NUMA nodes with pinned memory apart. Those of a group hold memory that is pinned
across them, and take other memory only as the whole group. Those with memory of their own join no group.
Source: memorymanager/policy_static.go:isAffinityViolatingNUMAAllocations, calculateHints.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

from topomend.explain.cause import Cause, Kind
from topomend.explain.trace_text import amount_text, free_text, numa_text
from topomend.model.bitmask import NUMAMask, mask_of, members
from topomend.model.nodes.node_state import NodeState, PodAllocation
from topomend.model.pods.pod import Pod
from topomend.model.verdict import Preference, ResourceTrace, Verdict
from topomend.replay.admission import providers_of, release
from topomend.replay.container_manager import start
from topomend.replay.memory.static import PROVIDER
from topomend.replay.qos import qos_class
from topomend.replay.topology.hints import Family, per_node
from topomend.replay.topology.merge import least_width

MAX_HOLDERS = 2
"""Of so many pods that hold a group each is named."""


def cause_of_pinned_memory(
    kinds: Sequence[ResourceTrace],
    verdict: Verdict,
    node: NodeState,
    admits: Callable[[NodeState], bool],
    width: int,
) -> Cause:
    """Why memory fits no ``width`` NUMA nodes though enough is free; ``kinds`` are memory and huge pages.

    ``admits`` is whether the node would admit the pod in another state.
    """
    trace = kinds[0]
    asked = f"{trace.resource} requests {amount_text(trace, trace.requested)}"
    groups, alone = _in_the_way(kinds, width)
    free = f"enough is free (free {free_text(trace)})"
    words = _words(groups, alone, width) + _own_words(verdict, groups, alone)
    prefers = f" and prefers {width} NUMA nodes" if alone else ""
    sentence = f"{asked}{prefers}, and {free}, but {words}"
    return Cause(
        Kind.MEMORY_GROUP, verdict.merges[-1].container, (trace.resource,), sentence, _waits_for(groups, node, admits)
    )


def why_pinned(kinds: Sequence[ResourceTrace], verdict: Verdict, *, is_chosen: bool) -> str:
    """How pinned memory keeps the Memory Manager from giving what is free; empty where too little is free in all.

    ``is_chosen`` is whether it refuses the NUMA nodes that the merge chose. ``kinds`` are memory and huge pages.
    """
    if not kinds:
        return ""
    return _why_refused(kinds[0], verdict) if is_chosen else _why_not_given(kinds, verdict)


def _why_refused(trace: ResourceTrace, verdict: Verdict) -> str:
    chosen = (verdict.merges[-1].affinity if verdict.merges else None) or -1
    groups = tuple([mask for mask in trace.groups if mask & chosen and mask != chosen])
    alone = trace.pinned & chosen
    if not groups and not alone:
        return "the other resources chose NUMA nodes together; its own containers before it have pinned memory there"
    why = "the other resources chose NUMA nodes together"
    if alone:
        why += " whose pinned memory is one by one, which forms no group"
    return f"{why}: {_words(groups, alone, 2)}{_own_words(verdict, groups, alone)}"


def _why_not_given(kinds: Sequence[ResourceTrace], verdict: Verdict) -> str:
    groups, alone = kinds[0].groups, kinds[0].pinned
    is_short = any(sum(amount for _, amount in kind.free) < kind.requested for kind in kinds)
    if is_short or not (groups or alone):
        return ""
    asked = " and ".join(f"{kind.resource} requests {amount_text(kind, kind.requested)}" for kind in kinds)
    free = "; ".join(map(free_text, kinds))
    words = _words(groups, alone, 2) + _own_words(verdict, groups, alone)
    return f"{asked}, and enough is free in all (free {free}), but {words}"


def memory_before(node: NodeState, pod: Pod, container: str) -> list[ResourceTrace]:
    """What a container, or the whole pod where it is empty, asks of memory, and what is free before the pod."""
    kubelet = start(node.machine, node.kubelet)
    if isinstance(kubelet, str):
        return []
    memory = providers_of(kubelet, node, None).memory
    classed = replace(pod, qos_class=qos_class(pod, kubelet.gates))
    asking = next((each for each in pod.containers if each.name == container), None)
    if memory is None:
        return []
    offers = memory.pod_hints(classed) if asking is None else memory.hints(classed, asking)
    return [
        ResourceTrace(
            offer.provider,
            offer.resource,
            offer.requested,
            offer.free,
            Preference.NONE,
            groups=offer.groups,
            pinned=offer.pinned,
        )
        for offer in offers
    ]


def _words(groups: Sequence[NUMAMask], alone: NUMAMask, width: int) -> str:
    return " and ".join(
        [*([_groups_words(groups, width)] if groups else []), *([_alone_words(alone)] if alone else [])]
    )


def _own_words(verdict: Verdict, groups: Sequence[NUMAMask], alone: NUMAMask) -> str:
    """That the pod's own containers pinned memory there, where no memory was pinned so when the first one came."""
    first = next(
        (trace for merge in verdict.merges for trace in merge.resources if trace.provider == PROVIDER),
        None,
    )
    if first is None or not (alone & ~first.pinned or set(groups) - set(first.groups)):
        return ""
    return "; its own containers before it have pinned memory"


def _groups_words(groups: Sequence[NUMAMask], width: int) -> str:
    """``NUMA 0,1 is a group of the Memory Manager``, and what that keeps away: memory that prefers ``width``."""
    named = " and ".join(numa_text(mask) for mask in groups)
    are = "is a group" if len(groups) == 1 else "are groups"
    keeps = (
        "memory pinned across NUMA nodes keeps all other memory off each of them alone"
        if width == 1
        else "NUMA nodes across which memory is pinned take other memory only all together"
    )
    return f"{named} {are} of the Memory Manager: {keeps}"


def _alone_words(alone: NUMAMask) -> str:
    """That these NUMA nodes join no group."""
    hold = "holds" if alone.bit_count() == 1 else "hold"
    return (
        f"{numa_text(alone)} {hold} pinned memory, and a NUMA node that holds pinned memory of its own joins no group"
    )


def _in_the_way(kinds: Sequence[ResourceTrace], width: int) -> tuple[tuple[NUMAMask, ...], NUMAMask]:
    """The groups and the NUMA nodes with memory of their own but for which memory would fit; of both one if enough."""
    nodes = mask_of(number for number, _ in kinds[0].free)
    groups, alone = kinds[0].groups, kinds[0].pinned
    grouped = reduce(or_, groups, 0)
    if width == 1:
        able = [number for number in members(grouped) if _fits(kinds, 1 << number, 1)]
        return tuple([mask for mask in groups if any(mask >> number & 1 for number in able)]), 0
    if _fits(kinds, nodes & ~alone, width):
        return groups, 0
    return ((), alone) if _fits(kinds, nodes & ~grouped, width) else (groups, alone)


def _fits(kinds: Iterable[ResourceTrace], nodes: NUMAMask, width: int) -> bool:
    """Whether ``width`` of these NUMA nodes have enough free of every kind, were it not for pinned memory."""
    free = tuple([per_node(dict(kind.free), kind.requested) for kind in kinds])
    least = least_width(Family(nodes, free))
    return least is not None and least <= width


def _waits_for(groups: Sequence[NUMAMask], node: NodeState, admits: Callable[[NodeState], bool]) -> str:
    """The pods whose memory forms the groups, where their end would help."""
    holders = [holder for holder in node.pods if _holds(holder, groups)]
    after = node
    for holder in holders:
        after = release(after, holder.namespace, holder.name)
    if not holders or not admits(after):
        return ""
    names = [f"{holder.namespace}/{holder.name}" for holder in holders]
    more = f" and {len(names) - MAX_HOLDERS} more" if len(names) > MAX_HOLDERS else ""
    return f"waits for {' and '.join(names[:MAX_HOLDERS])}{more} to end"


def _holds(holder: PodAllocation, groups: Sequence[NUMAMask]) -> bool:
    return any(block.numa_nodes in groups for container in holder.containers for block in container.memory)
