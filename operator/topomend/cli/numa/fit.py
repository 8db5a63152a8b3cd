"""``kubectl numa fit``: how many replicas of a pod the nodes would admit now, and where."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import click

from topomend.cache.snapshot import Snapshot
from topomend.cli.failures import NO, NOT_KNOWN, CannotAsk
from topomend.cli.numa.cluster import Cluster, cluster_options
from topomend.cli.numa.pod_argument import RequestedPod, pod_of_file
from topomend.cli.output import Printer, Row, output_option
from topomend.decide.explanation import blocking_resources, explain, numa_nodes_text
from topomend.decide.feasibility import diagnose
from topomend.decide.node_status import UNKNOWN, NodeStatus
from topomend.decide.requested_alignment import aligned_numa_nodes, is_aligned, why_not_aligned
from topomend.decide.trace_text import numa_text
from topomend.model.node_state import NodeState
from topomend.model.pod import Pod
from topomend.model.verdict import Verdict
from topomend.replay.admission import admit

MOST_REPLICAS = 10_000


@dataclass(frozen=True)
class NodeFit:
    """The replicas that one node admits, by NUMA nodes, and in a word and a sentence why it admits no more.

    ``replicas`` is None if the node's state is unknown.
    """

    node: str
    replicas: int | None
    count_by_place: Mapping[str, int] = field(default_factory=dict)
    limit: str = ""
    explanation: str = ""


_EXAMPLES = """\b
Examples:
  kubectl numa fit -f pod.yaml                      # does it fit anywhere?
  kubectl numa fit -f deployment.yaml --replicas 12
  kubectl numa fit -f job.yaml -o name              # the nodes that have room
  kubectl create job j --image=x --dry-run=client -o yaml | kubectl numa fit -f -
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "-f",
    "--filename",
    metavar="FILE",
    required=True,
    type=click.Path(),
    help="A Pod, or a workload with a pod template; - is stdin.",
)
@click.option(
    "--replicas",
    type=click.IntRange(1, MOST_REPLICAS),
    default=1,
    show_default=True,
    help="The number of replicas wanted.",
)
@output_option()
@cluster_options
@click.pass_context
def fit(context: click.Context, /, *, cluster: Cluster, filename: str, replicas: int, output: str) -> None:
    """Count the replicas of a pod that fit now, node by node.

    Does not subtract the requests of other pods from a node's totals: that is the scheduler's decision. Exits with 1 if
    fewer than --replicas fit, and with 3 if the answer depends on a node whose state is unknown.
    """
    asked = pod_of_file(filename)
    snapshot = cluster.snapshot()
    if not snapshot.nodes:
        raise CannotAsk("the cluster has no nodes")
    fits = [*_admitting(snapshot, asked, replicas), *_rejected(snapshot, asked)]
    fitting = sum(node_fit.replicas or 0 for node_fit in fits)
    unknown = [node_fit.node for node_fit in fits if node_fit.replicas is None]
    rows = [_row(node_fit) for node_fit in fits]
    printer = Printer(output, ("NODE", "REPLICAS", "NUMA", "LIMITED-BY"), ("WHY",))
    document = {"wanted": replicas, "fitting": fitting, "nodes": [row.record for row in rows]}
    printer.first(rows if printer.for_people else [row for row in rows if row.record["replicas"]], document)
    if printer.for_people:
        _echo_overall(fitting, replicas, unknown)
    if fitting < replicas:
        context.exit(NOT_KNOWN if unknown else NO)


def _echo_overall(fitting: int, replicas: int, unknown: Sequence[str]) -> None:
    if fitting >= replicas or not unknown:
        click.echo(f"overall: {min(fitting, replicas)} of {replicas} fit now")
    else:
        nodes = f"{len(unknown)} node{'s' if len(unknown) != 1 else ''}"
        click.echo(f"overall: at least {fitting} of {replicas} fit now; {nodes} unknown; see kubectl numa check")


def _admitting(snapshot: Snapshot, asked: RequestedPod, wanted: int) -> list[NodeFit]:
    return [
        _fit_on(snapshot.publications[candidate.node].state, asked, wanted)
        for candidate in diagnose(snapshot, asked.pod, asked.placement).candidates
    ]


def _fit_on(state: NodeState, asked: RequestedPod, wanted: int) -> NodeFit:
    """Admit replicas one after another until the node refuses one, or all ``wanted`` fit."""
    name, count_by_place = state.name, Counter[str]()
    for number in range(wanted):
        replica, before = replace(asked.pod, name=f"{asked.pod.name}-{number}", uid=""), state
        verdict, state = admit(before, replica)
        if not verdict.admitted:
            why = explain(verdict, before, replica)
            return NodeFit(name, count_by_place.total(), count_by_place, blocking_resources(verdict), why)
        if not is_aligned(state, replica):
            return NodeFit(name, count_by_place.total(), count_by_place, "not aligned", why_not_aligned(state, replica))
        count_by_place[_place(state, replica, verdict)] += 1
    return NodeFit(name, count_by_place.total(), count_by_place)


def _place(state: NodeState, pod: Pod, verdict: Verdict) -> str:
    aligned = aligned_numa_nodes(state, pod) if pod.single_numa_node else 0
    return (numa_text(aligned) if aligned else numa_nodes_text(verdict)).removeprefix("NUMA ") or "any"


def _rejected(snapshot: Snapshot, asked: RequestedPod) -> list[NodeFit]:
    diagnosis = diagnose(snapshot, asked.pod, asked.placement)
    return [_misfit(rejected, diagnosis.explanation(rejected)) for rejected in diagnosis.rejected]


def _misfit(rejected: NodeStatus, explanation: str) -> NodeFit:
    if rejected.reason == UNKNOWN:
        why = f"unknown: {explanation.removeprefix(f'{rejected.node}: ')}"
        return NodeFit(rejected.node, None, limit=why, explanation=explanation)
    return NodeFit(rejected.node, 0, limit=rejected.summary, explanation=explanation)


def _row(node_fit: NodeFit) -> Row:
    places = " ".join(f"{place}:{count}" for place, count in sorted(node_fit.count_by_place.items()))
    cells = (
        node_fit.node,
        "?" if node_fit.replicas is None else str(node_fit.replicas),
        places or "-",
        node_fit.limit or "-",
    )
    record: dict[str, Any] = {
        "node": node_fit.node,
        "replicas": node_fit.replicas,
        "byNUMANodes": dict(sorted(node_fit.count_by_place.items())),
        "limitedBy": node_fit.limit,
        "explanation": node_fit.explanation,
    }
    return Row((node_fit.node,), cells, record, f"node/{node_fit.node}", (node_fit.explanation or "-",))
