"""What one node says of a pod: of its admission, of a resize, or of the pod's end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from topomend.alignment.requested import places_text, why_not_aligned
from topomend.cache.snapshot import Snapshot
from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.numa.cluster.devices.device_claims import can_have
from topomend.cli.numa.explain.earlier_refusal import after_refusal, explained_then, refusal_by
from topomend.cli.numa.explain.pod_state import State, ended_words, state_of
from topomend.cli.numa.explain.question import Question
from topomend.cli.numa.explain.refusal_table import refusal_table
from topomend.cli.numa.explain.resize import explain_resized
from topomend.cli.output.failures import NO, NOT_KNOWN, YES, BadInput, CannotAsk
from topomend.cli.output.refusal_record import refusal_record
from topomend.decide.claims.device_claims import ClaimAnswer
from topomend.decide.diagnosis.node_status import INSUFFICIENT, NodeStatus, filtered
from topomend.decide.diagnosis.totals import Requests, ask_with_totals
from topomend.explain.explanation import cause_of
from topomend.explain.explanation import explain as explanation
from topomend.explain.remedy import remedy_of
from topomend.kube.resources import NODE_TOPOLOGIES
from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod, requests_of
from topomend.model.pods.scheduling import REFUSAL_PREFIX, WatchedPod
from topomend.replay.admission import admit
from topomend.replay.resize import is_shown
from topomend.wire.group import ALIGNMENT_ANNOTATION


@dataclass(frozen=True)
class NodeAnswer:
    """The answer of the node that was asked, or of all nodes together, in lines and as an exit code.

    ``refusal`` has the cause, the remedy and the nearest amounts where replay refuses the pod; empty elsewhere.
    ``aligned`` is whether a pod that asks for alignment has it on the node, or would; None for any other. ``remedy`` is
    what would get it admitted, in words; empty where nothing would, or where that was not asked. ``numbers`` are those
    of the lines that are a table of amounts. ``over`` is whether the pod has ended, so that nothing is to be admitted.
    """

    lines: Sequence[str]
    code: int
    refusal: Mapping[str, Any] = field(default_factory=dict)
    aligned: bool | None = None
    remedy: str = ""
    numbers: Sequence[str] = ()
    over: bool = False

    @property
    def admits(self) -> bool | None:
        """What the exit code says; None where that is not known, and of a pod that has ended."""
        return None if self.over else {YES: True, NO: False}.get(self.code)


def answer_of_kubelet(
    cluster: Cluster, snapshot: Snapshot, asked: RequestedPod, node: str, used: Requests | None
) -> NodeAnswer:
    """The node's answer. A pod whose allocation the node publishes counts as admitted.

    ``used`` is what other pods request there; None where that is not known or does not matter.
    """
    pod = asked.pod
    refusal = refusal_by(asked, node)
    if NODE_TOPOLOGIES.plural in cluster.not_read:
        return _without_topologies(cluster, pod, refusal, node)
    if node not in snapshot.nodes and node not in snapshot.publications:
        raise cluster.no_node(node, snapshot.nodes)
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
    numbers = [f"  {line}" for line in refusal_table(verdict, state.kubelet.topology_manager_policy)]
    lines = [explanation(verdict, state, pod), *numbers]
    if verdict.admitted:
        return _aligned(lines, after, pod)
    ask = None if used is None else partial(ask_with_totals, snapshot.nodes[node], state, used)
    remedy = remedy_of(state, pod, verdict, ask=ask)
    lines += [f"  {remedy.words}"] if remedy.words else []
    return NodeAnswer(
        lines, NO, refusal_record(cause_of(verdict, state, pod), remedy), remedy=remedy.words, numbers=numbers
    )


def not_published(snapshot: Snapshot, question: Question) -> NodeAnswer | None:
    """The answer of the chosen node where its agent does not show the pod that runs there; None for any other pod.

    Its kubelet has admitted it, so replay would answer what nobody asks. A pod that holds nothing exclusive is in no
    publication.
    """
    running, node = question.running, question.chosen
    publication = snapshot.publications.get(node)
    if running is None or publication is None or node != question.bound or snapshot.why_unknown(node):
        return None
    pod = running.pod
    if state_of(running.content) is not State.RUNS or _shows(snapshot, node, pod):
        return None
    verdict, _ = admit(publication.state, pod)
    if verdict.admitted and is_shown(publication.state, pod):
        return None
    line = f"{pod.name} runs, and {node} has not published it: ask again in a moment, then run kubectl numa check"
    return NodeAnswer([line], NOT_KNOWN)


def after_its_end(snapshot: Snapshot, ended: RequestedPod, node: str, answer: NodeAnswer) -> NodeAnswer:
    """The answer about a pod that has ended or is being deleted: that, and what a pod like it would meet now.

    As long as its node shows it, that is what the node says.
    """
    pod, words = ended.pod, f"{ended.pod.name} {ended_words(ended.content)}"
    if _shows(snapshot, node, pod):
        return replace(answer, lines=[words, *answer.lines])
    return NodeAnswer([words, "a pod like it now:", *answer.lines], YES, over=True)


def resized(cluster: Cluster, snapshot: Snapshot, running: RequestedPod, desired: RequestedPod) -> NodeAnswer:
    """The kubelet's answer to a resize of a running pod. Raises BadInput, CannotAsk."""
    node = running.content["spec"].get("nodeName", "")
    if running.content.get("status", {}).get("phase") != "Running":
        raise BadInput(f"pod {running.pod.name} does not run; only a running pod can be resized in place")
    if snapshot.why_unknown(node):
        raise CannotAsk(f"the answer of {node} to a resize is unknown: {_unknown(snapshot, node)}")
    lines, resized = explain_resized(cluster, snapshot, snapshot.publications[node].state, running, desired)
    return NodeAnswer(lines, YES if resized else NO)


def with_devices(answer: NodeAnswer, claims: ClaimAnswer | None) -> NodeAnswer:
    """The answer of a node that would admit the pod, with what it says of the pod's claims: no without a device."""
    if claims is None or answer.code != YES:
        return answer
    return replace(answer, lines=[*answer.lines, f"  {claims.words}"], code=YES if can_have(claims) else NO)


def by_totals(answer: NodeAnswer, lacking: NodeStatus | None) -> NodeAnswer:
    """The answer of a node that would admit the pod and has too little left in total: no."""
    return replace(answer, lines=[lacking.why, *answer.lines], code=NO) if lacking and answer.code == YES else answer


def without_totals(code: int) -> int:
    """The exit code where nobody knows what other pods leave in total: they may turn a yes into a no."""
    return NOT_KNOWN if code == YES else code


def holds(snapshot: Snapshot, question: Question, node: str) -> bool:
    """Whether the node has admitted the pod, which then has its share of the totals."""
    asked = question.asked
    runs = node == question.bound and asked.content.get("status", {}).get("phase") == "Running"
    return runs or _shows(snapshot, node, asked.pod)


def by_filters(answer: NodeAnswer, node: Node | None, asked: RequestedPod) -> NodeAnswer:
    """The answer of a node that the scheduler would not use for the pod, whatever its kubelet would say: no.

    What the node has in total is asked with the other pods there (``by_totals``).
    """
    status = filtered(node, asked.placement, requests_of(asked.pod)) if node else None
    if status is None or status.reason == INSUFFICIENT:
        return answer
    # A pod that is only not aligned there counts as admitted.
    return replace(answer, lines=[status.why, *answer.lines], code=NO, aligned=answer.aligned or None)


def _shows(snapshot: Snapshot, node: str, pod: Pod) -> bool:
    """Whether the node publishes a pod of this name."""
    publication = snapshot.publications.get(node)
    return publication is not None and (pod.namespace, pod.name) in publication.shown


def _without_topologies(cluster: Cluster, pod: Pod, refusal: WatchedPod | None, node: str) -> NodeAnswer:
    """What is known of a pod on a node whose state the user may not read."""
    unknown = f"whether {node} admits {pod.name} now is unknown: you may not read what it publishes"
    if refusal is None:
        return NodeAnswer([unknown], NOT_KNOWN)
    then = explained_then(cluster, refusal) or refusal.message.removeprefix(REFUSAL_PREFIX)
    return NodeAnswer([f"{node} refused {pod.name} ({refusal.reason}); {unknown}", f"  then: {then}"], NOT_KNOWN)


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
