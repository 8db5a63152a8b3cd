"""``kubectl numa fit``: how many replicas of a pod the nodes would admit now, and where."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import click

from topomend.alignment.requested import aligned_numa_nodes, is_aligned, why_not_aligned
from topomend.cache.snapshot import Snapshot
from topomend.cli.input.workload import MOST_REPLICAS
from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod, pods_of_file
from topomend.cli.numa.cluster.cluster import TOTALS_NOT_CHECKED, Cluster, cluster_options
from topomend.cli.numa.cluster.devices.device_claims import Devices, can_have
from topomend.cli.numa.cluster.volumes import located
from topomend.cli.output.console import echo, echo_lines
from topomend.cli.output.failures import NO, NOT_KNOWN, YES, CannotAsk
from topomend.cli.output.formats import DOCUMENTS, NAME, WIDE, Printer, Row, echo_document, output_option
from topomend.cli.output.terminal import BAD, GOOD, UNSURE
from topomend.decide.claims.beside_devices import preference_words
from topomend.decide.claims.device_claims import ClaimAnswer, Sharing, claims_on
from topomend.decide.diagnosis.feasibility import diagnose
from topomend.decide.diagnosis.node_status import UNKNOWN, NodeStatus
from topomend.decide.diagnosis.totals import Requests, status_by_totals, too_small
from topomend.explain.explanation import blocking_resources, explain, numa_nodes_text
from topomend.explain.trace_text import numa_text
from topomend.kube.resources import NODE_TOPOLOGIES
from topomend.model.devices.device_supply import DeviceSupply, PodClaims
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import ONE_POD, Pod, requests_of, sum_of
from topomend.model.verdict import Verdict
from topomend.replay.admission import admit


@dataclass(frozen=True)
class NodeFit:
    """The replicas that one node admits, by NUMA nodes, and in a word and a sentence why it admits no more.

    ``replicas`` is None if the node's state is unknown. Of a pod with claims, ``claims`` is the answer for the first
    replica, and ``count_by_sharing`` has the replicas by whether their devices would be where the kubelet places them.
    """

    node: str
    replicas: int | None
    count_by_place: Mapping[str, int] = field(default_factory=dict)
    limit: str = ""
    explanation: str = ""
    claims: ClaimAnswer | None = None
    count_by_sharing: Mapping[Sharing, int] = field(default_factory=dict)

    @property
    def place(self) -> tuple[bool, int]:
        """Its place among the nodes that were asked: those with room first, of these those whose devices are near."""
        return not self.replicas, self.claims.rank if self.claims else 0


MOST_TOLD = 5
"""Of how many nodes a sentence says where the devices of claims would be."""


@dataclass(frozen=True)
class _Wanted:
    """So many replicas of a pod, its claims, None if it has none, and the devices that there are for them."""

    pod: Pod
    replicas: int
    claims: PodClaims | None
    supply: DeviceSupply


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

    A replica fits where the scheduler finds enough of the node's totals beside the requests of all its pods, and a
    device for each of its claims, and where its kubelet would admit it. NUMA is how many replicas get which NUMA nodes
    (0:2 0,1:1), any: those that are aligned to none. Nodes with room come first, the best first: those that have the
    devices of claims where they would place the replicas. Exits with 1 if fewer than wanted fit, and with 3 if the
    answer depends on a node whose state is unknown, or on what you may not read.
    """
    pods = pods_of_file(filename, cluster)
    snapshot = cluster.with_claims(cluster.snapshot_of(next(cluster.pictures(cluster.readable_states))))
    if NODE_TOPOLOGIES.plural in cluster.not_read:
        raise CannotAsk(cluster.unread)
    if not snapshot.nodes:
        raise CannotAsk("the cluster has no nodes")
    devices = Devices(cluster, snapshot)
    results = [_result(cluster, snapshot, devices, asked, replicas or max(1, asked.replicas)) for asked in pods]
    _echo(results, output)
    if cluster.nodes_read and any(not result.totals_checked for result in results):
        echo(TOTALS_NOT_CHECKED, err=True)
    for problem in dict.fromkeys(problem for result in results for problem in result.unlocated):
        echo(problem, err=True)
    if cluster.unread:
        echo(cluster.unread, err=True)
    if code := _exit_code(results, is_partial=cluster.is_partial):
        context.exit(code)


@dataclass(frozen=True)
class Result:
    """How many of the ``wanted`` replicas of a pod fit, node by node.

    ``unlocated`` says of which of its volumes it is not known where they are.
    """

    asked: RequestedPod
    wanted: int
    nodes: Sequence[NodeFit]
    totals_checked: bool
    unlocated: Sequence[str] = ()

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


def _result(cluster: Cluster, snapshot: Snapshot, devices: Devices, asked: RequestedPod, wanted: int) -> Result:
    asked, unlocated = located(cluster, asked)
    claims = devices.claims_of(asked)
    of_pod = _Wanted(asked.pod, wanted, claims, devices.supply if claims else DeviceSupply())
    candidates = [candidate.node for candidate in diagnose(snapshot, asked.pod, asked.placement).candidates]
    used = cluster.requests_on(candidates) if cluster.nodes_read else None
    fits = (*_admitting(snapshot, of_pod, candidates, used), *_rejected(snapshot, asked))
    return Result(asked, wanted, fits, used is not None, unlocated)


def _exit_code(results: Sequence[Result], *, is_partial: bool) -> int:
    """No if one does not fit for certain, unknown if one might or if totals might leave too little, yes if all fit."""
    short = [result for result in results if result.fitting < result.wanted]
    if any(not result.unknown for result in short) and not is_partial:
        return NO
    certain = not short and not is_partial and all(result.totals_checked for result in results)
    return YES if certain else NOT_KNOWN


def _echo(results: Sequence[Result], output: str) -> None:
    """Print the answers: of several pods each with its name, and each as if the others were not there."""
    several = len(results) > 1
    with_claims = any(node_fit.claims for result in results for node_fit in result.nodes)
    heading = ("NODE", "REPLICAS", "NUMA", *(["CLAIMS"] if with_claims else []), "LIMITED-BY")
    if output in DOCUMENTS:
        workloads = [{"workload": result.asked.shown, **result.record()} for result in results]
        echo_document({"workloads": workloads} if several else results[0].record(), output)
        return
    if output == NAME:
        rows = [_row(node_fit, with_claims) for result in results for node_fit in result.nodes if node_fit.replicas]
        Printer(output, heading).first(rows, {})
        return
    for number, result in enumerate(results):
        printer = Printer(output, heading, ("WHY",))
        if several:
            echo_lines([*([""] if number else []), f"{result.asked.shown}:"])
        printer.first([_row(node_fit, with_claims) for node_fit in result.nodes], {})
        echo_lines(_claim_lines(result.nodes, wide=output == WIDE))
        _echo_overall(result)
    if several:
        echo("each is counted as if the others were not there", err=True)


def _claim_lines(nodes: Sequence[NodeFit], *, wide: bool) -> list[str]:
    """What the nodes say of the pod's claims, in the order of the table; of a few, or with ``wide`` of all."""
    said = [node_fit.claims.words for node_fit in nodes if node_fit.claims]
    most = len(said) if wide else MOST_TOLD
    more = [f"and {len(said) - most} more nodes, with -o wide"] if len(said) > most else []
    answers = {node_fit.node: node_fit.claims for node_fit in nodes if node_fit.claims}
    preference = preference_words(answers, len(answers))
    return [*said[:most], *more, *([preference] if preference else [])]


def _echo_overall(result: Result) -> None:
    fitting, wanted = min(result.fitting, result.wanted), result.wanted
    if fitting < wanted and result.unknown:
        nodes = f"{len(result.unknown)} node{'s' if len(result.unknown) != 1 else ''}"
        echo(f"overall: at least {fitting} of {wanted} fit now; {nodes} unknown; see kubectl numa check", style=UNSURE)
    elif fitting < wanted:
        echo(f"overall: {fitting} of {wanted} fit now", style=BAD)
    elif result.totals_checked:
        echo(f"overall: {fitting} of {wanted} fit now", style=GOOD)
    else:
        echo(f"overall: {fitting} of {wanted} fit now if totals leave enough", style=UNSURE)


def _admitting(
    snapshot: Snapshot, wanted: _Wanted, candidates: Sequence[str], used: Mapping[str, Requests] | None
) -> list[NodeFit]:
    fits = [_fit_on(snapshot, name, wanted, None if used is None else used.get(name, {})) for name in candidates]
    return sorted(fits, key=lambda node_fit: node_fit.place)


def _fit_on(snapshot: Snapshot, name: str, wanted: _Wanted, used: Requests | None) -> NodeFit:
    """Admit replicas one after another until the scheduler or the node refuses one, or all ``wanted`` fit.

    ``used`` is what the node's pods request; None where that is not known.
    """
    node, state, count_by_place = snapshot.nodes[name], snapshot.publications[name].state, Counter[str]()
    occupied = state
    requests, supply, answers = requests_of(wanted.pod), wanted.supply, list[ClaimAnswer]()

    def fit(limit: str = "", explanation: str = "") -> NodeFit:
        sharing = Counter(answer.sharing for answer in answers if can_have(answer))
        first = answers[0] if answers else None
        return NodeFit(name, count_by_place.total(), count_by_place, limit, explanation, first, sharing)

    # Replay would take a pod of the same name that runs, as of a StatefulSet, for the replica.
    numbered = (f"{wanted.pod.name}-{number}" for number in count())
    names = (each for each in numbered if not occupied.holds(wanted.pod.namespace, each))
    for _ in range(wanted.replicas):
        if used is not None and (lacking := status_by_totals(node, requests, used)):
            return fit(f"total {lacking.summary}", lacking.why)
        replica, before = replace(wanted.pod, name=next(names), uid=""), state
        verdict, state = admit(before, replica)
        if not verdict.admitted:
            return fit(blocking_resources(verdict), explain(verdict, before, replica))
        if not is_aligned(state, replica):
            return fit("not aligned", why_not_aligned(state, replica))
        if wanted.claims and (answer := claims_on(supply, node, state, replica, wanted.claims)):
            answers.append(answer)
            if not can_have(answer):
                return fit("claims", answer.words)
            supply = supply.without(answer.parts)
        count_by_place[_place(state, replica, verdict)] += 1
        used = None if used is None else sum_of(used, {**requests, **ONE_POD})
    return fit()


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


def _row(node_fit: NodeFit, with_claims: bool = False) -> Row:
    places = " ".join(f"{place}:{count}" for place, count in sorted(node_fit.count_by_place.items()))
    sharing = {each.value: count for each, count in node_fit.count_by_sharing.items()}
    together = " ".join(f"{word}:{count}" for word, count in sharing.items())
    cells = (
        node_fit.node,
        "?" if node_fit.replicas is None else str(node_fit.replicas),
        places or "-",
        *([together or "-"] if with_claims else []),
        node_fit.limit or "-",
    )
    record: dict[str, Any] = {
        "node": node_fit.node,
        "replicas": node_fit.replicas,
        "byNUMANodes": dict(sorted(node_fit.count_by_place.items())),
        "limitedBy": node_fit.limit,
        "explanation": node_fit.explanation,
        **({"bySharing": sharing, "claims": node_fit.claims.words} if node_fit.claims else {}),
    }
    style = UNSURE if node_fit.replicas is None else GOOD if node_fit.replicas else BAD
    wide, styles = (node_fit.explanation or "-",), {"REPLICAS": style}
    return Row((node_fit.node,), cells, record, f"node/{node_fit.node}", wide, styles)
