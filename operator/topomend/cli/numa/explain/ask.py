"""Ask the nodes about one pod: the kubelet of one by replay, all by replay, totals and the devices of claims.

Owns who is asked and in which order. Leaves what one node says to ``node_answer``, and which pods are asked about to
``explain``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from topomend.cache.snapshot import Snapshot
from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod
from topomend.cli.numa.cluster.cluster import TOTALS_NOT_CHECKED, Cluster
from topomend.cli.numa.cluster.devices.claims import Claims, claim_lines, claims_of
from topomend.cli.numa.cluster.devices.device_claims import can_have
from topomend.cli.numa.cluster.volumes import located
from topomend.cli.numa.explain.answer import Answer
from topomend.cli.numa.explain.node_answer import (
    NodeAnswer,
    after_its_end,
    answer_of_kubelet,
    by_filters,
    by_totals,
    holds,
    not_published,
    resized,
    with_devices,
    without_totals,
)
from topomend.cli.numa.explain.pod_state import State, scheduling_event, scheduling_words
from topomend.cli.numa.explain.question import Facts, Question, RequestsOn
from topomend.cli.numa.explain.waiting_pod.wait import NO_WAIT, Wait, wait_of
from topomend.cli.output.failures import NO, NOT_KNOWN, YES
from topomend.decide.claims.device_claims import ClaimAnswer
from topomend.decide.diagnosis.feasibility import Diagnosis, diagnose
from topomend.decide.diagnosis.node_status import UNKNOWN, NodeStatus
from topomend.decide.diagnosis.totals import Requests, status_by_totals, too_small
from topomend.kube.resources import NODE_TOPOLOGIES
from topomend.model.narrowing import ANYWHERE
from topomend.model.pods.pod import Pod, requests_of
from topomend.model.relaunch_record import Relaunch
from topomend.relaunch import narrowed_affinity


def answer_to(facts: Facts, question: Question, requests_on: RequestsOn | None = None) -> Answer:
    """Ask the nodes. Raises BadInput, CannotAsk and APIError.

    By default the pods of nodes are listed for this question: of all nodes for a pod that waits.
    """
    cluster, snapshot, bound = facts.cluster, facts.snapshot, question.bound
    asked, unlocated = located(cluster, question.asked)
    nodes = _ask_all(facts, question, asked, requests_on or _listed(facts, question, asked))
    on_node, wait = _chosen(facts, question, asked, nodes)
    running = question.running
    if running and question.is_over:
        on_node = after_its_end(snapshot, running, question.chosen, on_node)
    claims = claims_of(cluster, running.content, bound) if running and bound and question.chosen == bound else Claims()
    lines = [*on_node.lines, *(f"  {line}" for line in claim_lines(claims, snapshot, bound, asked.pod))]
    return Answer(
        pod=asked.pod,
        node=question.chosen,
        on_node=replace(on_node, lines=lines),
        diagnosis=nodes.diagnosis,
        relaunches=_history(facts, asked),
        claims=claims,
        needs_claims=_needs_claims(snapshot, asked),
        totals_checked=nodes.used is not None,
        nodes_known=NODE_TOPOLOGIES.plural not in cluster.not_read,
        notes=(*((TOTALS_NOT_CHECKED,) if cluster.nodes_read and nodes.used is None else ()), *unlocated),
        wait=wait,
        by_claims=nodes.by_claims,
    )


@dataclass(frozen=True)
class _Nodes:
    """What all nodes say: ``used`` is what other pods request of each that was asked, None where that is not known.

    ``lacking`` are those of which others leave too little, which are rejected in the ``diagnosis`` too.
    """

    used: Mapping[str, Requests] | None
    lacking: Mapping[str, NodeStatus]
    diagnosis: Diagnosis
    by_claims: Mapping[str, ClaimAnswer]


def _ask_all(facts: Facts, question: Question, asked: RequestedPod, listed: RequestsOn) -> _Nodes:
    snapshot = facts.snapshot
    first = diagnose(snapshot, asked.pod, asked.placement)
    used = _requests_on(snapshot, question, first, listed) if facts.cluster.nodes_read else None
    lacking = _lacking_in_total(snapshot, asked.pod, used or {})
    lacking |= too_small(snapshot.nodes, first.rejected, requests_of(asked.pod))
    diagnosis = diagnose(snapshot, asked.pod, asked.placement, excluded_nodes=lacking)
    by_claims = _by_claims(facts, asked, diagnosis, question.bound)
    return _Nodes(used, lacking, _ordered(diagnosis, by_claims), by_claims)


def _listed(facts: Facts, question: Question, asked: RequestedPod) -> RequestsOn:
    if question.state is State.WAITS:
        return facts.around.requests_on
    return partial(facts.cluster.requests_on, but=asked.content.get("metadata", {}).get("uid", ""))


def _chosen(facts: Facts, question: Question, asked: RequestedPod, nodes: _Nodes) -> tuple[NodeAnswer, Wait]:
    """The answer of the node that was chosen, or of all, and why a pod waits that no node was chosen for."""
    cluster, snapshot, node = facts.cluster, facts.snapshot, question.chosen
    if question.running and question.is_resize:
        return resized(cluster, snapshot, question.running, asked), NO_WAIT
    if question.is_over and node not in snapshot.nodes.keys() | snapshot.publications.keys():
        return NodeAnswer([], YES), NO_WAIT
    if unpublished := not_published(snapshot, question):
        return unpublished, NO_WAIT
    if node:
        return _on_node(facts, question, asked, nodes), NO_WAIT
    waits = question.state is State.WAITS
    wait = wait_of(cluster, snapshot, asked, nodes.diagnosis, facts.around) if waits else NO_WAIT
    return _anywhere(cluster, asked, nodes, wait), wait


def _on_node(facts: Facts, question: Question, asked: RequestedPod, nodes: _Nodes) -> NodeAnswer:
    """The answer of the chosen node: of its kubelet, and of the scheduler where the pod is not there yet."""
    snapshot, node, used = facts.snapshot, question.chosen, nodes.used
    answer = answer_of_kubelet(facts.cluster, snapshot, asked, node, (used or {}).get(node))
    answer = with_devices(by_totals(answer, nodes.lacking.get(node)), nodes.by_claims.get(node))
    if used is None and not holds(snapshot, question, node):
        answer = replace(answer, code=without_totals(answer.code))
    return answer if node == question.bound else by_filters(answer, snapshot.nodes.get(node), asked)


def _anywhere(cluster: Cluster, asked: RequestedPod, nodes: _Nodes, wait: Wait) -> NodeAnswer:
    """The answer of all nodes together."""
    lines = [*(wait.why or _not_scheduled(cluster, asked)), *_narrowed(asked)]
    code = NOT_KNOWN if cluster.is_partial else _code_anywhere(nodes)
    return NodeAnswer(lines, without_totals(code) if nodes.used is None else code)


def _code_anywhere(nodes: _Nodes) -> int:
    if any(can_have(nodes.by_claims.get(candidate.node)) for candidate in nodes.diagnosis.candidates):
        return YES
    return NOT_KNOWN if any(rejected.reason == UNKNOWN for rejected in nodes.diagnosis.rejected) else NO


def _history(facts: Facts, asked: RequestedPod) -> tuple[Relaunch, ...]:
    """The relaunches of the pod; a pod of a file has none."""
    if not asked.content.get("metadata", {}).get("uid"):
        return ()
    return tuple(relaunch for relaunch in facts.relaunches if _is_of(relaunch, asked.pod))


def _by_claims(facts: Facts, asked: RequestedPod, diagnosis: Diagnosis, bound: str) -> Mapping[str, ClaimAnswer]:
    """Of the nodes that would admit the pod, but for the one that it is on, what they say of its claims."""
    claims = facts.devices.claims_of(asked)
    nodes = (candidate.node for candidate in diagnosis.candidates if candidate.node != bound)
    return facts.devices.answers(nodes, asked.pod, claims) if claims else {}


def _ordered(diagnosis: Diagnosis, by_claims: Mapping[str, ClaimAnswer]) -> Diagnosis:
    """With the nodes first on which the devices of claims can be where the kubelet would place the pod."""
    if not by_claims:
        return diagnosis
    ranks = {node: answer.rank for node, answer in by_claims.items()}
    candidates = sorted(diagnosis.candidates, key=lambda candidate: ranks.get(candidate.node, 0))
    return replace(diagnosis, candidates=tuple(candidates))


def _is_of(relaunch: Relaunch, pod: Pod) -> bool:
    return (relaunch.namespace, relaunch.pod_name) == (pod.namespace, pod.name)


def _requests_on(
    snapshot: Snapshot, question: Question, first: Diagnosis, requests_on: RequestsOn
) -> dict[str, Requests] | None:
    """What other pods request on the nodes that would admit the pod, and on the chosen one; None where unknown.

    The node on which the pod runs is not asked: it has room for it.
    """
    names = {candidate.node for candidate in first.candidates}
    names |= {question.chosen} & snapshot.nodes.keys()
    if question.asked.content.get("status", {}).get("phase") == "Running":
        names.discard(question.bound)
    used = requests_on(names)
    return None if used is None else {name: used.get(name, {}) for name in names}


def _lacking_in_total(snapshot: Snapshot, pod: Pod, used: Mapping[str, Requests]) -> dict[str, NodeStatus]:
    """The nodes of which the other pods leave too little in total."""
    requests = requests_of(pod)
    answers = (status_by_totals(snapshot.nodes[name], requests, used[name]) for name in sorted(used))
    return {answer.node: answer for answer in answers if answer}


def _not_scheduled(cluster: Cluster, asked: RequestedPod) -> Iterator[str]:
    """What the scheduler, or who gates the pod, says of a pod that is bound to no node."""
    if words := scheduling_words(asked.content) or scheduling_event(cluster, asked.content):
        yield f"{asked.pod.name} is not scheduled {words}"


def _needs_claims(snapshot: Snapshot, asked: RequestedPod) -> bool:
    """Whether the pod names claims, or requests a resource that claims provide."""
    named = asked.content.get("spec", {}).get("resourceClaims")
    return bool(named) or any(resource in snapshot.by_claim for resource in requests_of(asked.pod))


def _narrowed(asked: RequestedPod) -> Iterator[str]:
    """A line about a pod that the operator has ungated for some nodes and that is still not bound."""
    affinity = asked.content.get("spec", {}).get("affinity", {}).get("nodeAffinity") or {}
    narrowed = narrowed_affinity.narrowing_of(affinity) if narrowed_affinity.is_narrowed(asked.content) else ANYWHERE
    if narrowed:
        hosts = narrowed.excluded or narrowed.hosts
        where = f"all nodes but {', '.join(hosts)}" if narrowed.excluded else f"{', '.join(hosts)} only"
        best = narrowed_affinity.preferred_hosts(affinity)
        where += f", of which a preferred node affinity names {', '.join(best)}" if best else ""
        yield (
            f"topomend ungated {asked.pod.name} for {where}, and no scheduler has bound it since. "
            "The node affinity of an ungated pod cannot be widened: to try other nodes, delete and recreate the pod"
        )
