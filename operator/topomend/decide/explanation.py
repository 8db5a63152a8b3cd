"""A Verdict in one line: which container, which resource, how much was requested and free on each NUMA node.

Owns the wording. Leaves tables for a terminal to ``cli``.
"""

from collections.abc import Sequence

from topomend.model.bitmask import NUMAMask, members
from topomend.model.quantity import format_bytes
from topomend.model.verdict import MergeTrace, Preference, ResourceTrace, Verdict
from topomend.replay.resize import DEFERRED, Resized


def explain(verdict: Verdict, node: str, policy: str) -> str:
    """Why ``node`` refuses the pod, or that it admits it and on which NUMA nodes."""
    remarks = _unmodelled(verdict.unmodelled)
    if verdict.admitted:
        return f"{node} admits {verdict.name}{_placement(verdict)}{remarks}"
    if verdict.failure:
        failure = verdict.failure
        return f"{node} refuses container {failure.container}: {failure.provider}: {failure.error}{remarks}"
    merge = refused_merge(verdict)
    if merge is None:
        return f"{node} refuses {verdict.name}: {verdict.message}{remarks}"
    subject = f"container {merge.container}" if merge.container else f"{verdict.name} as a whole (scope pod)"
    return f"{node} refuses {subject}: {_why(merge)} ({policy}){remarks}"


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
    aligned = [trace for trace in merge.resources if is_aligned(trace)]
    short = [trace for trace in aligned if not _fitting(trace)]
    return ",".join(trace.resource for trace in short or aligned) or verdict.reason


def numa_nodes_text(verdict: Verdict) -> str:
    """The NUMA nodes that an admitted pod is aligned to: ``NUMA 0,1``; empty where it is not aligned."""
    mask = 0
    for container in verdict.containers:
        mask |= container.affinity or 0
    return numa_text(mask) if mask else ""


def _placement(verdict: Verdict) -> str:
    numa_nodes = numa_nodes_text(verdict)
    return f" on {numa_nodes}" if numa_nodes else ""


def _unmodelled(remarks: Sequence[str]) -> str:
    return f"; not modelled: {', '.join(remarks)}" if remarks else ""


def _why(merge: MergeTrace) -> str:
    aligned = [trace for trace in merge.resources if is_aligned(trace)]
    short = [trace for trace in aligned if not _fitting(trace)]
    if short:
        return "; ".join(_shortage_text(trace) for trace in short)
    every_node = {node for trace in aligned for node, _ in trace.free}
    restricted = [trace for trace in aligned if set(members(_fitting(trace))) != every_node]
    if restricted:
        return ", ".join(f"{trace.resource} fits {numa_text(_fitting(trace))} only" for trace in restricted)
    return "no NUMA nodes suit all of " + ", ".join(trace.resource for trace in aligned)


def _shortage_text(trace: ResourceTrace) -> str:
    free = _free_by_node(trace) or "none"
    most = max((amount for _, amount in trace.free), default=0)
    lacks = f", lacks {amount_text(trace, trace.requested - most)}" if trace.requested > most else ""
    requested = amount_text(trace, trace.requested)
    return f"{trace.resource} asks {requested} and fits no NUMA node: free {free}{lacks}"


def _request_text(trace: ResourceTrace) -> str:
    return f"{trace.resource} asks {amount_text(trace, trace.requested)}, free {_free_by_node(trace)}"


def _free_by_node(trace: ResourceTrace) -> str:
    return ", ".join(f"{amount_text(trace, amount)} on NUMA {node}" for node, amount in trace.free)


def is_aligned(trace: ResourceTrace) -> bool:
    """Whether the Topology Manager had a hint for the resource."""
    return trace.preference != Preference.NONE


def _fitting(trace: ResourceTrace) -> NUMAMask:
    """The NUMA nodes that have enough free for all of the request."""
    mask = 0
    for node, amount in trace.free:
        if trace.preference == Preference.HINTS and amount >= trace.requested:
            mask |= 1 << node
    return mask


def amount_text(trace: ResourceTrace, number: int) -> str:
    """An amount of the resource: ``1Gi`` for memory, ``3`` for others."""
    in_bytes = trace.resource == "memory" or trace.resource.startswith("hugepages-")
    return format_bytes(number) if in_bytes else str(number)


def numa_text(mask: NUMAMask) -> str:
    """``NUMA 0,1`` for the mask of these NUMA nodes."""
    return "NUMA " + ",".join(map(str, members(mask)))
