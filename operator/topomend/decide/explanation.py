"""A Verdict in words: which container, which resource, how much was asked and free on each NUMA node, what is missing.

The first line is the answer with the names. One line each for events; ``table`` adds the numbers for a terminal.
"""

from collections.abc import Iterable, Sequence

from topomend.model.bitmask import NUMAMask, members
from topomend.model.quantity import format_bytes
from topomend.model.verdict import MergeTrace, Preference, ResourceTrace, Verdict
from topomend.replay.resize import DEFERRED, Resized

_FIT_RULES = {
    "single-numa-node": "single-numa-node refuses what is not one NUMA node",
    "restricted": "restricted refuses more NUMA nodes than the fewest that could ever hold it",
}


def explain(verdict: Verdict, node: str, policy: str) -> str:
    """One line: why ``node`` refuses the pod, or that it admits it and on which NUMA nodes."""
    remarks = _unmodelled(verdict.unmodelled)
    if verdict.admitted:
        return f"{node} admits {verdict.name}{_places(verdict)}{remarks}"
    if verdict.failure:
        failure = verdict.failure
        return f"{node} refuses container {failure.container}: {failure.provider}: {failure.error}{remarks}"
    merge = refused_merge(verdict)
    if merge is None:
        return f"{node} refuses {verdict.name}: {verdict.message}{remarks}"
    who = f"container {merge.container}" if merge.container else f"{verdict.name} as a whole (scope pod)"
    return f"{node} refuses {who}: {_why(merge)} ({policy}){remarks}"


def explain_resize(answer: Resized, pod: str, node: str) -> str:
    """One line: whether ``node`` resizes the pod in place, and in the kubelet's words why not."""
    remarks = _unmodelled(answer.unmodelled)
    if not answer.reason:
        return f"{node} resizes {pod} in place{remarks}"
    if answer.reason == DEFERRED:
        return f"{node} puts the resize of {pod} off ({DEFERRED}): {answer.message}{remarks}"
    return f"{node} does not resize {pod} ({answer.reason}): {answer.message}{remarks}"


def table(verdict: Verdict, policy: str) -> tuple[str, ...]:
    """What was asked and free, a line a resource, for the merge that was refused; empty where none was."""
    merge = refused_merge(verdict)
    if merge is None:
        return ()
    aligned = [each for each in merge.resources if each.free]
    nodes = sorted({node for each in aligned for node, _ in each.free})
    rows = [("", "asked", *(f"NUMA {node} free" for node in nodes))]
    rows += [(each.resource, _amount(each, each.requested), *_cells(each, nodes)) for each in aligned]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    missing = "; ".join(filter(None, (_missing_on(node, aligned) for node in nodes)))
    rule = _FIT_RULES.get(policy)
    return tuple(lines) + ((missing,) if missing else ()) + ((rule,) if rule else ())


def amounts(verdict: Verdict) -> tuple[str, ...]:
    """What was asked and free of each aligned resource, a line each container, or one for a whole pod."""
    return tuple(
        f"{merge.container or verdict.name}: {'; '.join(_free(trace) for trace in merge.resources if trace.free)}"
        for merge in verdict.merges
        if any(trace.free for trace in merge.resources)
    )


def refused_merge(verdict: Verdict) -> MergeTrace | None:
    """The merge that ended the admission, None where none did."""
    return next((merge for merge in verdict.merges if not merge.admitted), None)


def lacking(verdict: Verdict) -> str:
    """One word or a few for a summary: the resource that stands in the way."""
    merge = refused_merge(verdict)
    if verdict.failure:
        return verdict.failure.provider
    if merge is None:
        return verdict.reason
    impossible = [each.resource for each in merge.resources if _is_aligned(each) and not _fitting(each)]
    return ",".join(impossible or [each.resource for each in merge.resources if _is_aligned(each)]) or verdict.reason


def places(verdict: Verdict) -> str:
    """The NUMA nodes that an admitted pod stands on: ``NUMA 0``, ``NUMA 0,1``; empty where it is not aligned."""
    mask = 0
    for container in verdict.containers:
        mask |= container.affinity or 0
    return numa(mask) if mask else ""


def _places(verdict: Verdict) -> str:
    where = places(verdict)
    return f" on {where}" if where else ""


def _unmodelled(remarks: Sequence[str]) -> str:
    return f"; not modelled: {', '.join(remarks)}" if remarks else ""


def _why(merge: MergeTrace) -> str:
    aligned = [each for each in merge.resources if _is_aligned(each)]
    short = [each for each in aligned if not _fitting(each)]
    if short:
        return "; ".join(_shortage(each) for each in short)
    everywhere = {node for each in aligned for node, _ in each.free}
    partly = [each for each in aligned if set(members(_fitting(each))) != everywhere]
    if partly:
        return ", ".join(f"{each.resource} fits {numa(_fitting(each))} only" for each in partly)
    return "no NUMA nodes suit all of " + ", ".join(each.resource for each in aligned)


def _shortage(trace: ResourceTrace) -> str:
    free = _free_by_node(trace)
    most = max((amount for _, amount in trace.free), default=0)
    lacks = f", lacks {_amount(trace, trace.requested - most)}" if trace.requested > most else ""
    return (
        f"{trace.resource} asks {_amount(trace, trace.requested)} and fits no NUMA node: free {free or 'none'}{lacks}"
    )


def _free(trace: ResourceTrace) -> str:
    return f"{trace.resource} asks {_amount(trace, trace.requested)}, free {_free_by_node(trace)}"


def _free_by_node(trace: ResourceTrace) -> str:
    return ", ".join(f"{_amount(trace, amount)} on NUMA {node}" for node, amount in trace.free)


def _is_aligned(trace: ResourceTrace) -> bool:
    return trace.preference != Preference.NONE


def _fitting(trace: ResourceTrace) -> NUMAMask:
    """The NUMA nodes that hold all of the request by themselves."""
    mask = 0
    for node, amount in trace.free:
        if trace.preference == Preference.HINTS and amount >= trace.requested:
            mask |= 1 << node
    return mask


def _missing_on(node: int, traces: Iterable[ResourceTrace]) -> str:
    missing = [
        f"{_amount(each, each.requested - amount)} {each.resource}"
        for each in traces
        for where, amount in each.free
        if where == node and amount < each.requested
    ]
    return f"NUMA {node} lacks {' and '.join(missing)}" if missing else ""


def _cells(trace: ResourceTrace, nodes: Sequence[int]) -> tuple[str, ...]:
    free = dict(trace.free)
    return tuple(
        f"{_amount(trace, free.get(node, 0))} {'yes' if free.get(node, 0) >= trace.requested else 'no'}"
        for node in nodes
    )


def _amount(trace: ResourceTrace, number: int) -> str:
    in_bytes = trace.resource == "memory" or trace.resource.startswith("hugepages-")
    return format_bytes(number) if in_bytes else str(number)


def numa(mask: NUMAMask) -> str:
    """NUMA nodes in words: ``NUMA 0,1``."""
    return "NUMA " + ",".join(map(str, members(mask)))
