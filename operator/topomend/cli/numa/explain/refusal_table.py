"""A refused merge as a table for a terminal: the requested and the free amounts of each NUMA node."""

from collections.abc import Iterable, Sequence

from topomend.cli.output.table import aligned_rows
from topomend.explain.refused_merge import refused_merge
from topomend.explain.trace_text import amount_text
from topomend.model.verdict import ResourceTrace, Verdict

_FIT_RULES = {
    "single-numa-node": "single-numa-node refuses what is not one NUMA node",
    "restricted": "restricted refuses more NUMA nodes than the fewest that could ever hold it",
}


def refusal_table(verdict: Verdict, policy: str) -> tuple[str, ...]:
    """The table, the missing amounts of each NUMA node, and the policy's rule; empty without a refused merge."""
    merge = refused_merge(verdict)
    if merge is None:
        return ()
    traces = [trace for trace in merge.resources if trace.free]
    nodes = sorted({node for trace in traces for node, _ in trace.free})
    heading = ("", "asked", *(f"NUMA {node} free" for node in nodes))
    rows = [(trace.resource, amount_text(trace, trace.requested), *_cells(trace, nodes)) for trace in traces]
    missing = "; ".join(filter(None, (_missing_on(node, traces) for node in nodes)))
    remarks = (missing, _FIT_RULES.get(policy, ""))
    return (*aligned_rows([heading, *rows]), *filter(None, remarks))


def _missing_on(node: int, traces: Iterable[ResourceTrace]) -> str:
    missing = [
        f"{amount_text(trace, trace.requested - amount)} {trace.resource}"
        for trace in traces
        for where, amount in trace.free
        if where == node and amount < trace.requested
    ]
    return f"NUMA {node} lacks {' and '.join(missing)}" if missing else ""


def _cells(trace: ResourceTrace, nodes: Sequence[int]) -> tuple[str, ...]:
    free = dict(trace.free)
    return tuple(
        f"{amount_text(trace, free.get(node, 0))} {'yes' if free.get(node, 0) >= trace.requested else 'no'}"
        for node in nodes
    )
