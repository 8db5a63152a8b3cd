"""``kubectl numa explain``: why a node's kubelet refuses a pod, and which nodes would admit it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import click

from topomend.alignment.requested import places_text, why_not_aligned
from topomend.cache.snapshot import Snapshot
from topomend.cli.numa.cluster.claims import Claims, claim_lines, claim_records, claims_of
from topomend.cli.numa.cluster.cluster import TOTALS_NOT_CHECKED, Cluster, cluster_options, snapshot_of
from topomend.cli.numa.cluster.completion import complete_nodes, complete_pods
from topomend.cli.numa.cluster.picture import Picture, Source
from topomend.cli.numa.cluster.pod_argument import RequestedPod, pod_of_cluster, pod_of_file, read_requested, short_name
from topomend.cli.numa.explain.earlier_refusal import after_refusal, refusal_by
from topomend.cli.numa.explain.refusal_table import refusal_table
from topomend.cli.numa.explain.resize import explain_resized, is_pending
from topomend.cli.output.console import echo, echo_data, echo_lines
from topomend.cli.output.failures import NO, NOT_KNOWN, YES, BadInput, CannotAsk
from topomend.cli.output.formats import DOCUMENTS, NAME, TABLE, WIDE, document_text, output_option, watch_option
from topomend.cli.output.refusal_record import refusal_record
from topomend.decide.feasibility import Diagnosis, diagnose
from topomend.decide.node_status import UNKNOWN, NodeStatus
from topomend.decide.totals import Requests, ask_with_totals, status_by_totals
from topomend.explain.explanation import cause_of
from topomend.explain.explanation import explain as explanation
from topomend.explain.remedy import remedy_of
from topomend.kube.client import PODS, RELAUNCHES
from topomend.model.narrowing import ANYWHERE
from topomend.model.node_state import NodeState
from topomend.model.pod import Pod, requests_of
from topomend.model.relaunch_record import Relaunch
from topomend.relaunch import narrowed_affinity
from topomend.replay.admission import admit
from topomend.wire.document import MalformedObject
from topomend.wire.group import ALIGNMENT_ANNOTATION
from topomend.wire.relaunch_record import read_relaunch

_EXAMPLES = """\b
Examples:
  kubectl numa explain pod/train-9                    # why was it refused, and which nodes admit it?
  kubectl numa explain -f pod.yaml --node gpu-01      # would gpu-01 admit it?
  kubectl numa explain pod/train-9 -f larger.yaml     # how would its kubelet answer a resize in place?
  kubectl numa explain pod/train-9 --watch            # until you interrupt it
  kubectl numa explain -f pod.yaml -o name            # the nodes that would admit it
"""


@dataclass(frozen=True)
class NodeAnswer:
    """The answer of the node that was asked, or of all nodes together, in lines and as an exit code.

    ``refusal`` has the cause, the remedy and the nearest amounts where replay refuses the pod; empty elsewhere.
    ``aligned`` is whether a pod that asks for alignment has it on the node, or would; None for any other.
    """

    lines: Sequence[str]
    code: int
    refusal: Mapping[str, Any] = field(default_factory=dict)
    aligned: bool | None = None


@dataclass(frozen=True)
class Answer:
    """What is known of one pod: the answer of ``node`` (all nodes if empty), that of every node, and its history.

    ``claims`` are the devices that a pod on a node has by claims. ``needs_claims`` is whether the pod has any.
    ``totals_checked`` is whether the requests of the other pods were read.
    """

    pod: Pod
    node: str
    on_node: NodeAnswer
    diagnosis: Diagnosis
    relaunches: tuple[Relaunch, ...]
    claims: Claims
    needs_claims: bool
    totals_checked: bool


@click.command(epilog=_EXAMPLES)
@click.argument("pod", default="", metavar="[pod/NAME]", shell_complete=complete_pods)
@click.option(
    "-f",
    "--filename",
    metavar="FILE",
    default="",
    type=click.Path(),
    help="A Pod, or a workload with a pod template; - is stdin.",
)
@click.option(
    "--node",
    metavar="NODE",
    default="",
    shell_complete=complete_nodes,
    help="The node to ask. Default: the node that the pod is bound to.",
)
@output_option()
@watch_option
@cluster_options
@click.pass_context
def explain(context: click.Context, /, *, cluster: Cluster, output: str, watch: bool, **asked: str) -> None:
    """Explain in numbers why a node refuses a pod, and name the nodes that would admit it now.

    If you name a running pod and -f, the command says how the pod's kubelet would answer a resize in place to the
    resources in FILE.

    Exits with 0 if the node admits the pod, with 1 if it refuses the pod or does not align it as its annotation
    topomend.io/alignment asks, and with 3 if that is unknown. A pod that is bound to no node is judged by all nodes: 0
    if any admits it.
    """
    name, filename, node = short_name(asked["pod"]), asked["filename"], asked["node"]
    if not name and not filename:
        raise BadInput("name a pod, as in kubectl numa explain pod/train-9, or a file with -f")
    desired = pod_of_file(filename) if filename else None
    if name:
        pod_of_cluster(cluster, name)
    printed: list[str] = []
    code = YES
    for picture in cluster.pictures(_sources(cluster, name), watch=watch):
        running = next((read_requested(content, f"pod {name}") for content in picture.get(PODS, ())), None)
        if name and running is None:
            echo(f"pod {name} is gone", err=True)
            break
        answer = _answer(cluster, picture, running, desired, node)
        code, lines = answer.on_node.code, _printed(answer, output)
        if lines and lines != printed:
            _echo(lines, output, apart=bool(printed))
        printed = lines
    if code:
        context.exit(code)


def _echo(lines: Sequence[str], output: str, *, apart: bool) -> None:
    """Print an answer, ``apart`` from the one before."""
    if output not in (TABLE, WIDE):
        echo_data("\n".join(lines))
        return
    echo_lines([*([""] if apart else []), *lines])


def _sources(cluster: Cluster, pod: str) -> list[Source]:
    of_pod = Source(PODS, lambda content: [content], cluster.namespace, f"metadata.name={pod}")
    of_relaunches = Source(RELAUNCHES, _readable_relaunches, cluster.namespace)
    return [*cluster.states, of_relaunches, *([of_pod] if pod else [])]


def _readable_relaunches(content: dict[str, Any]) -> Iterable[Relaunch]:
    try:
        return [read_relaunch(content)]
    except MalformedObject as error:
        echo(f"relaunch {content['metadata']['name']} is skipped: {error}", err=True)
        return []


def _answer(
    cluster: Cluster, picture: Picture, running: RequestedPod | None, desired: RequestedPod | None, node: str
) -> Answer:
    """The answer for the pod ``running``, for the pod ``desired`` of a file, or for a resize of the one to the other.

    ``node`` is the one that the user named, or empty. Raises BadInput, CannotAsk and APIError.
    """
    asked = desired or running
    assert asked is not None  # noqa: S101 - the verb has checked that one of them is given
    snapshot = cluster.with_claims(snapshot_of(picture))
    bound = (running or asked).content.get("spec", {}).get("nodeName", "")
    chosen = node or bound
    used = _requests_on(cluster, snapshot, asked, bound, chosen)
    lacking = _lacking_in_total(snapshot, asked.pod, used or {})
    diagnosis = diagnose(snapshot, asked.pod, asked.placement, excluded_nodes=lacking)
    if running and chosen == bound and (desired or is_pending(running)):
        on_node = _resized(cluster, snapshot, running, asked)
    elif chosen:
        on_node = _by_totals(_on_node(cluster, snapshot, asked, chosen, (used or {}).get(chosen)), lacking.get(chosen))
    else:
        on_node = NodeAnswer([*_not_scheduled(asked), *_narrowed(asked)], _anywhere(diagnosis))
    has_history = bool(asked.content.get("metadata", {}).get("uid"))
    relaunches = [relaunch for relaunch in picture[RELAUNCHES] if has_history and relaunch.pod_name == asked.pod.name]
    claims = claims_of(cluster, running.content, bound) if running and bound and chosen == bound else Claims()
    lines = [*on_node.lines, *(f"  {line}" for line in claim_lines(claims, snapshot, bound, asked.pod))]
    on_node = replace(on_node, lines=lines)
    needs_claims = _needs_claims(snapshot, asked)
    checked = used is not None
    return Answer(asked.pod, chosen, on_node, diagnosis, tuple(relaunches), claims, needs_claims, checked)


def _requests_on(
    cluster: Cluster, snapshot: Snapshot, asked: RequestedPod, bound: str, chosen: str
) -> dict[str, Requests] | None:
    """What other pods request on the nodes that would admit the pod, and on the ``chosen`` one; None where unknown.

    The node on which the pod runs is not asked: it has room for it.
    """
    content = asked.content
    names = {candidate.node for candidate in diagnose(snapshot, asked.pod, asked.placement).candidates}
    names |= {chosen} & snapshot.nodes.keys()
    if content.get("status", {}).get("phase") == "Running":
        names.discard(bound)
    used = cluster.requests_on(names, but=content.get("metadata", {}).get("uid", ""))
    return None if used is None else {name: used.get(name, {}) for name in names}


def _lacking_in_total(snapshot: Snapshot, pod: Pod, used: Mapping[str, Requests]) -> dict[str, NodeStatus]:
    """The nodes of which the other pods leave too little in total."""
    requests = requests_of(pod)
    answers = (status_by_totals(snapshot.nodes[name], requests, used[name]) for name in sorted(used))
    return {answer.node: answer for answer in answers if answer}


def _by_totals(answer: NodeAnswer, lacking: NodeStatus | None) -> NodeAnswer:
    """The answer of a node that would admit the pod and has too little left in total: no."""
    return replace(answer, lines=[lacking.why, *answer.lines], code=NO) if lacking and answer.code == YES else answer


def _not_scheduled(asked: RequestedPod) -> Iterator[str]:
    """What the scheduler, or who gates the pod, says of a pod that is bound to no node."""
    for condition in asked.content.get("status", {}).get("conditions") or ():
        if (condition.get("type"), condition.get("status")) == ("PodScheduled", "False") and condition.get("message"):
            reason, message = condition.get("reason", ""), condition["message"]
            yield f"{asked.pod.name} is not scheduled ({reason}): {message}"


def _needs_claims(snapshot: Snapshot, asked: RequestedPod) -> bool:
    """Whether the pod names claims, or requests a resource that claims provide."""
    named = asked.content.get("spec", {}).get("resourceClaims")
    return bool(named) or any(resource in snapshot.by_claim for resource in requests_of(asked.pod))


def _printed(answer: Answer, output: str) -> list[str]:
    """The lines to print in this format."""
    if output == NAME:
        return [f"node/{candidate.node}" for candidate in answer.diagnosis.candidates]
    if output in DOCUMENTS:
        return [document_text(_record(answer), output)]
    elsewhere = [*_elsewhere(answer, most=None if output == WIDE else 5)]
    if not answer.totals_checked:
        elsewhere.append(TOTALS_NOT_CHECKED)
    return [*answer.on_node.lines, *elsewhere, *_done(answer.relaunches)]


def _record(answer: Answer) -> dict[str, Any]:
    """What programs read; docs/reference.md lists the fields."""
    return {
        "namespace": answer.pod.namespace,
        "name": answer.pod.name,
        "node": answer.node or None,
        "admitted": True if answer.on_node.aligned is False else {YES: True, NO: False}.get(answer.on_node.code),
        **({} if answer.on_node.aligned is None else {"aligned": answer.on_node.aligned}),
        "explanation": list(answer.on_node.lines),
        "totalsChecked": answer.totals_checked,
        **answer.on_node.refusal,
        **({"claims": claim_records(answer.claims.devices)} if answer.claims.devices else {}),
        "nodes": [
            *({"node": one.node, "admits": True, "place": one.place} for one in answer.diagnosis.candidates),
            *(
                {
                    "node": one.node,
                    "admits": None if one.reason == UNKNOWN else False,
                    "reason": one.reason,
                    "explanation": answer.diagnosis.explanation(one),
                }
                for one in answer.diagnosis.rejected
            ),
        ],
        "relaunches": [
            {
                "name": relaunch.name,
                "refusedBy": relaunch.refused_by,
                "reason": relaunch.reason,
                "step": relaunch.step.value,
                "newPod": relaunch.new_name or None,
            }
            for relaunch in answer.relaunches
        ],
    }


def _on_node(cluster: Cluster, snapshot: Snapshot, asked: RequestedPod, node: str, used: Requests | None) -> NodeAnswer:
    """The node's answer. A pod whose allocation the node publishes counts as admitted.

    ``used`` is what other pods request there; None where that is not known or does not matter.
    """
    if node not in snapshot.nodes and node not in snapshot.publications:
        raise cluster.no_node(node, snapshot.nodes)
    pod = asked.pod
    refusal = refusal_by(asked, node)
    if snapshot.why_unknown(node):
        past = f"{node} refused {pod.name} ({refusal.reason}); " if refusal else ""
        line = f"{past}whether {node} admits {pod.name} now is unknown: {_unknown(snapshot, node)}"
        return NodeAnswer([line], NOT_KNOWN)
    publication = snapshot.publications[node]
    if refusal is None and (pod.namespace, pod.name) in publication.shown:
        return _aligned([f"{node} has admitted {pod.name}; see: kubectl numa show {node}"], publication.state, pod)
    verdict, after = admit(publication.state, pod)
    if refusal and verdict.admitted:
        return NodeAnswer(*after_refusal(cluster, publication, refusal, verdict))
    state = publication.state
    numbers = (f"  {line}" for line in refusal_table(verdict, state.kubelet.topology_manager_policy))
    lines = [explanation(verdict, state, pod), *numbers]
    if verdict.admitted:
        return _aligned(lines, after, pod)
    ask = None if used is None else partial(ask_with_totals, snapshot.nodes[node], state, used)
    remedy = remedy_of(state, pod, verdict, ask=ask)
    lines += [f"  {remedy.words}"] if remedy.words else []
    return NodeAnswer(lines, NO, refusal_record(cause_of(verdict, state, pod), remedy))


def _aligned(lines: Sequence[str], state: NodeState, pod: Pod) -> NodeAnswer:
    """The answer of a node that holds the pod, in fact or by replay: these lines, and whether it is aligned."""
    if not pod.single_numa_node:
        return NodeAnswer(lines, YES)
    why = why_not_aligned(state, pod)
    line = (
        f"not on one NUMA node, as {ALIGNMENT_ANNOTATION} asks: {why}" if why else f"aligned: {places_text(state, pod)}"
    )
    return NodeAnswer([*lines, f"  {line}"], NO if why else YES, aligned=not why)


def _unknown(snapshot: Snapshot, node: str) -> str:
    return f"{snapshot.why_unknown(node)}; see: kubectl numa check"


def _anywhere(answers: Diagnosis) -> int:
    """The exit code if the user names no node."""
    if answers.candidates:
        return YES
    return NOT_KNOWN if any(rejected.reason == UNKNOWN for rejected in answers.rejected) else NO


def _narrowed(asked: RequestedPod) -> Iterator[str]:
    """A line about a pod that the operator has ungated for some nodes and that is still not bound."""
    affinity = asked.content.get("spec", {}).get("affinity", {}).get("nodeAffinity") or {}
    narrowed = narrowed_affinity.narrowing_of(affinity) if narrowed_affinity.is_narrowed(asked.content) else ANYWHERE
    if narrowed:
        hosts = narrowed.excluded or narrowed.hosts
        where = f"all nodes but {', '.join(hosts)}" if narrowed.excluded else f"{', '.join(hosts)} only"
        yield (
            f"topomend ungated {asked.pod.name} for {where}, and no scheduler has bound it since. "
            "The node affinity of an ungated pod cannot be widened: to try other nodes, delete and recreate the pod"
        )


def _resized(cluster: Cluster, snapshot: Snapshot, running: RequestedPod, desired: RequestedPod) -> NodeAnswer:
    """The kubelet's answer to a resize of a running pod. Raises BadInput, CannotAsk."""
    node = running.content["spec"].get("nodeName", "")
    if running.content.get("status", {}).get("phase") != "Running":
        raise BadInput(f"pod {running.pod.name} does not run; only a running pod can be resized in place")
    if snapshot.why_unknown(node):
        raise CannotAsk(f"the answer of {node} to a resize is unknown: {_unknown(snapshot, node)}")
    lines, resized = explain_resized(cluster, snapshot, snapshot.publications[node].state, running, desired)
    return NodeAnswer(lines, YES if resized else NO)


def _elsewhere(answer: Answer, most: int | None) -> Iterator[str]:
    """What the other nodes say; the names of at most ``most`` that would admit the pod."""
    others = [candidate for candidate in answer.diagnosis.candidates if candidate.node != answer.node]
    rejected = [rejected for rejected in answer.diagnosis.rejected if rejected.node != answer.node]
    if others:
        yield f"elsewhere: {', '.join(candidate.place for candidate in others[:most])} would admit it now"
        if answer.needs_claims:
            yield "  which of these can have its claims is for the scheduler to say"
    elif not rejected:
        yield "elsewhere: there is no other node"
    elif any(one.reason == UNKNOWN for one in rejected):
        yield "elsewhere: no other node is known to admit it now"
    else:
        yield "elsewhere: no other node would admit it now"
    for one in rejected:
        yield f"  {answer.diagnosis.explanation(one)}"


def _done(relaunches: Iterable[Relaunch]) -> Iterator[str]:
    """A line for each relaunch."""
    for relaunch in relaunches:
        yield (
            f"done: refused by {relaunch.refused_by} ({relaunch.reason}), relaunch {relaunch.name} is "
            f"{relaunch.step.value}{f', new pod {relaunch.new_name}' if relaunch.new_name else ''}"
        )
