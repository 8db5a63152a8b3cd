"""``kubectl numa fit``: how many replicas of a pod the nodes would admit now, and where."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import click

from topomend.alignment.requested import aligned_numa_nodes, is_aligned, why_not_aligned
from topomend.cache.snapshot import Snapshot
from topomend.cli.input.workload import MOST_REPLICAS
from topomend.cli.numa.cluster.cluster import TOTALS_NOT_CHECKED, Cluster, cluster_options
from topomend.cli.numa.cluster.pod_argument import RequestedPod, pods_of_file
from topomend.cli.output.console import echo, echo_lines
from topomend.cli.output.failures import NO, NOT_KNOWN, YES, CannotAsk
from topomend.cli.output.formats import DOCUMENTS, NAME, Printer, Row, echo_document, output_option
from topomend.decide.feasibility import diagnose
from topomend.decide.node_status import UNKNOWN, NodeStatus
from topomend.decide.totals import Requests, status_by_totals, too_small
from topomend.explain.explanation import blocking_resources, explain, numa_nodes_text
from topomend.explain.trace_text import numa_text
from topomend.kube.client import NODE_TOPOLOGIES
from topomend.model.node_state import NodeState
from topomend.model.pod import ONE_POD, Pod, requests_of, sum_of
from topomend.model.verdict import Verdict
from topomend.replay.admission import admit


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
  kubectl numa fit -f deployment.yaml               # as many replicas as it asks for
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
    help="Pods, or workloads with a pod template; - is stdin.",
)
@click.option(
    "--replicas",
    type=click.IntRange(1, MOST_REPLICAS),
    help="The number of replicas wanted. Default: the workload's own.",
)
@output_option()
@cluster_options
@click.pass_context
def fit(context: click.Context, /, *, cluster: Cluster, filename: str, replicas: int | None, output: str) -> None:
    """Count the replicas of a pod that fit now, node by node.

    Of a workload its own replicas are wanted: those of a Deployment or StatefulSet, the pods that a Job runs at a time,
    one of a DaemonSet. Of several in FILE each is counted by itself, and objects without pods are passed over.

    A replica fits where the scheduler finds enough of the node's totals beside the requests of all its pods, and where
    its kubelet would admit it. Exits with 1 if fewer than wanted fit, and with 3 if the answer depends on a node
    whose state is unknown, or on what you may not read.
    """
    pods = pods_of_file(filename, cluster)
    snapshot = cluster.with_claims(cluster.snapshot_of(next(cluster.pictures(cluster.readable_states))))
    if NODE_TOPOLOGIES.plural in cluster.not_read:
        raise CannotAsk(cluster.unread)
    if not snapshot.nodes:
        raise CannotAsk("the cluster has no nodes")
    results = [_result(cluster, snapshot, asked, replicas or max(1, asked.replicas)) for asked in pods]
    _echo(results, output)
    if cluster.nodes_read and any(not result.totals_checked for result in results):
        echo(TOTALS_NOT_CHECKED, err=True)
    if cluster.unread:
        echo(cluster.unread, err=True)
    if code := _exit_code(results, is_partial=cluster.is_partial):
        context.exit(code)


@dataclass(frozen=True)
class Result:
    """How many of the ``wanted`` replicas of a pod fit, node by node."""

    asked: RequestedPod
    wanted: int
    nodes: Sequence[NodeFit]
    totals_checked: bool

    @property
    def fitting(self) -> int:
        """On all nodes together, which may be more than are wanted."""
        return sum(node_fit.replicas or 0 for node_fit in self.nodes)

    @property
    def unknown(self) -> list[str]:
        """The nodes whose state is unknown."""
        return [node_fit.node for node_fit in self.nodes if node_fit.replicas is None]

    def record(self) -> dict[str, Any]:
        """What programs read; docs/reference.md lists the fields."""
        return {
            "wanted": self.wanted,
            "fitting": self.fitting,
            "totalsChecked": self.totals_checked,
            "nodes": [_row(node_fit).record for node_fit in self.nodes],
        }


def _result(cluster: Cluster, snapshot: Snapshot, asked: RequestedPod, wanted: int) -> Result:
    readable = cluster.as_readable(asked.placement)
    asked = replace(asked, placement=readable)
    candidates = [candidate.node for candidate in diagnose(snapshot, asked.pod, readable).candidates]
    used = cluster.requests_on(candidates) if cluster.nodes_read else None
    fits = (*_admitting(snapshot, asked, wanted, candidates, used), *_rejected(snapshot, asked))
    return Result(asked, wanted, fits, used is not None)


def _exit_code(results: Sequence[Result], *, is_partial: bool) -> int:
    """No if one does not fit for certain, unknown if one might, yes if all fit."""
    short = [result for result in results if result.fitting < result.wanted]
    if any(not result.unknown for result in short) and not is_partial:
        return NO
    return NOT_KNOWN if short or is_partial else YES


def _echo(results: Sequence[Result], output: str) -> None:
    """Print the answers: of several pods each with its name, and each as if the others were not there."""
    heading, several = ("NODE", "REPLICAS", "NUMA", "LIMITED-BY"), len(results) > 1
    if output in DOCUMENTS:
        workloads = [{"workload": result.asked.shown, **result.record()} for result in results]
        echo_document({"workloads": workloads} if several else results[0].record(), output)
        return
    if output == NAME:
        rows = [_row(node_fit) for result in results for node_fit in result.nodes if node_fit.replicas]
        Printer(output, heading).first(rows, {})
        return
    for number, result in enumerate(results):
        printer = Printer(output, heading, ("WHY",))
        if several:
            echo_lines([*([""] if number else []), f"{result.asked.shown}:"])
        printer.first([_row(node_fit) for node_fit in result.nodes], {})
        _echo_overall(result.fitting, result.wanted, result.unknown)
    if several:
        echo("each is counted as if the others were not there", err=True)


def _echo_overall(fitting: int, replicas: int, unknown: Sequence[str]) -> None:
    if fitting >= replicas or not unknown:
        echo(f"overall: {min(fitting, replicas)} of {replicas} fit now")
    else:
        nodes = f"{len(unknown)} node{'s' if len(unknown) != 1 else ''}"
        echo(f"overall: at least {fitting} of {replicas} fit now; {nodes} unknown; see kubectl numa check")


def _admitting(
    snapshot: Snapshot,
    asked: RequestedPod,
    wanted: int,
    candidates: Sequence[str],
    used: Mapping[str, Requests] | None,
) -> list[NodeFit]:
    fits = [_fit_on(snapshot, name, asked, wanted, None if used is None else used.get(name, {})) for name in candidates]
    return sorted(fits, key=lambda node_fit: not node_fit.replicas)


def _fit_on(snapshot: Snapshot, name: str, asked: RequestedPod, wanted: int, used: Requests | None) -> NodeFit:
    """Admit replicas one after another until the scheduler or the node refuses one, or all ``wanted`` fit.

    ``used`` is what the node's pods request; None where that is not known.
    """
    node, state, count_by_place = snapshot.nodes[name], snapshot.publications[name].state, Counter[str]()
    requests = requests_of(asked.pod)
    for number in range(wanted):
        if used is not None and (lacking := status_by_totals(node, requests, used)):
            return NodeFit(name, number, count_by_place, f"total {lacking.summary}", lacking.why)
        replica, before = replace(asked.pod, name=f"{asked.pod.name}-{number}", uid=""), state
        verdict, state = admit(before, replica)
        if not verdict.admitted:
            why = explain(verdict, before, replica)
            return NodeFit(name, number, count_by_place, blocking_resources(verdict), why)
        if not is_aligned(state, replica):
            return NodeFit(name, number, count_by_place, "not aligned", why_not_aligned(state, replica))
        count_by_place[_place(state, replica, verdict)] += 1
        used = None if used is None else sum_of(used, {**requests, **ONE_POD})
    return NodeFit(name, wanted, count_by_place)


def _place(state: NodeState, pod: Pod, verdict: Verdict) -> str:
    aligned = aligned_numa_nodes(state, pod) if pod.single_numa_node else 0
    return (numa_text(aligned) if aligned else numa_nodes_text(verdict)).removeprefix("NUMA ") or "any"


def _rejected(snapshot: Snapshot, asked: RequestedPod) -> list[NodeFit]:
    first = diagnose(snapshot, asked.pod, asked.placement)
    small = too_small(snapshot.nodes, first.rejected, requests_of(asked.pod))
    diagnosis = diagnose(snapshot, asked.pod, asked.placement, excluded_nodes=small)
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
