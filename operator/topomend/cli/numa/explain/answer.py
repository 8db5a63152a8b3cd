"""What the nodes say of one pod: why the kubelet of one refuses it, which others would admit it, and its history.

Owns the answer, its lines and its record. Leaves which pods are asked about to ``explain``.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from topomend.alignment.requested import places_text, why_not_aligned
from topomend.cache.snapshot import Snapshot
from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod
from topomend.cli.numa.cluster.cluster import TOTALS_NOT_CHECKED, Cluster
from topomend.cli.numa.cluster.devices.claims import Claims, claim_lines, claim_records, claims_of
from topomend.cli.numa.cluster.devices.device_claims import Devices, can_have
from topomend.cli.numa.cluster.volumes import located
from topomend.cli.numa.explain.earlier_refusal import after_refusal, explained_then, refusal_by
from topomend.cli.numa.explain.refusal_table import refusal_table
from topomend.cli.numa.explain.resize import explain_resized, is_pending
from topomend.cli.numa.explain.surroundings import Surroundings
from topomend.cli.numa.explain.wait import NO_WAIT, Wait, wait_of
from topomend.cli.numa.explain.waiting import State, ended_words, scheduling_event, scheduling_words, state_of
from topomend.cli.output.failures import NO, NOT_KNOWN, YES, BadInput, CannotAsk
from topomend.cli.output.formats import WIDE
from topomend.cli.output.refusal_record import refusal_record
from topomend.decide.claims.beside_devices import preference_words
from topomend.decide.claims.device_claims import ClaimAnswer, Sharing
from topomend.decide.diagnosis.feasibility import Diagnosis, diagnose
from topomend.decide.diagnosis.node_status import INSUFFICIENT, UNKNOWN, NodeStatus, filtered
from topomend.decide.diagnosis.totals import Requests, ask_with_totals, status_by_totals, too_small
from topomend.explain.explanation import cause_of
from topomend.explain.explanation import explain as explanation
from topomend.explain.remedy import remedy_of
from topomend.kube.resources import NODE_TOPOLOGIES
from topomend.model.narrowing import ANYWHERE
from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod, requests_of
from topomend.model.pods.scheduling import REFUSAL_PREFIX, WatchedPod
from topomend.model.relaunch_record import Relaunch
from topomend.relaunch import narrowed_affinity
from topomend.relaunch.conditions import SUCCEEDED
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


@dataclass(frozen=True)
class Answer:
    """What is known of one pod: the answer of ``node`` (all nodes if empty), that of every node, and its history.

    ``claims`` are the devices that a pod on a node has by claims. ``needs_claims`` is whether the pod has any, and
    ``by_claims`` says of the nodes that would admit it whether its devices could be where they would place it.
    ``totals_checked`` is whether the requests of the other pods were read, ``nodes_known`` whether the user may read
    what the nodes publish. ``notes`` say why totals were not checked, unless the user may not read them at all, and
    where volumes are not known.
    ``wait`` is what is known besides of a pod that waits for a node.
    """

    pod: Pod
    node: str
    on_node: NodeAnswer
    diagnosis: Diagnosis
    relaunches: tuple[Relaunch, ...]
    claims: Claims
    needs_claims: bool
    totals_checked: bool
    nodes_known: bool = True
    notes: tuple[str, ...] = ()
    wait: Wait = NO_WAIT
    by_claims: Mapping[str, ClaimAnswer] = field(default_factory=dict)

    @property
    def code(self) -> int:
        """The exit code."""
        return self.on_node.code

    @property
    def admitting(self) -> list[str]:
        """The nodes that would admit the pod."""
        return [candidate.node for candidate in self.diagnosis.candidates]

    def lines(self, output: str, most_rejected: int | None = None) -> list[str]:
        """The lines of an answer, and of ``wide`` all nodes that would admit the pod.

        ``most_rejected`` is of how many nodes it is said why they would not; None is of all.
        """
        elsewhere = [*_elsewhere(self, None if output == WIDE else 5, most_rejected, is_wide=output == WIDE)]
        return [
            *self.on_node.lines,
            *elsewhere,
            *self.notes,
            *self.wait.room,
            *self.wait.next,
            *_relaunched(self.relaunches),
        ]

    def record(self) -> dict[str, Any]:
        """What programs read; docs/reference.md lists the fields."""
        return {
            "namespace": self.pod.namespace,
            "name": self.pod.name,
            "node": self.node or None,
            "admitted": True if self.on_node.aligned is False else self.on_node.admits,
            **({} if self.on_node.aligned is None else {"aligned": self.on_node.aligned}),
            "explanation": list(self.on_node.lines),
            "totalsChecked": self.totals_checked,
            **self.on_node.refusal,
            **({"waiting": self.wait.record()} if self.wait != NO_WAIT else {}),
            **({"claims": claim_records(self.claims.devices)} if self.claims.devices else {}),
            "nodes": [
                *(
                    {"node": one.node, "admits": True, "place": one.place, **self._claims_record(one.node)}
                    for one in self.diagnosis.candidates
                ),
                *(
                    {
                        "node": one.node,
                        "admits": None if one.reason == UNKNOWN else False,
                        "reason": one.reason,
                        "explanation": self.diagnosis.explanation(one),
                    }
                    for one in self.diagnosis.rejected
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
                for relaunch in self.relaunches
            ],
        }

    def _claims_record(self, node: str) -> dict[str, Any]:
        answer = self.by_claims.get(node)
        return {"claims": {"sharing": answer.sharing.value, "explanation": answer.words}} if answer else {}


@dataclass(frozen=True)
class Question:
    """The pod ``running``, the pod ``desired`` of a file, or a resize of the one to the other.

    ``node`` is the one that the user named, or empty.
    """

    running: RequestedPod | None
    desired: RequestedPod | None = None
    node: str = ""

    @property
    def asked(self) -> RequestedPod:
        """The pod as it is to be."""
        asked = self.desired or self.running
        assert asked is not None  # noqa: S101 - a question is about one of them at least
        return asked

    @property
    def bound(self) -> str:
        """The node that the pod is bound to, or empty."""
        return str((self.running or self.asked).content.get("spec", {}).get("nodeName", ""))

    @property
    def state(self) -> State | None:
        """What the pod does; None where the question is about more than that: a file, or a node that is named."""
        return state_of(self.running.content) if self.running and not (self.desired or self.node) else None


RequestsOn = Callable[[Collection[str]], Mapping[str, Requests] | None]
"""What the pods on some nodes request, by node; None where the user may not list them."""


@dataclass(frozen=True)
class Facts:
    """What was read: the nodes with what they publish, and the relaunches of the pods' namespaces."""

    cluster: Cluster
    snapshot: Snapshot
    relaunches: Sequence[Relaunch]
    around: Surroundings
    devices: Devices


def answer_to(facts: Facts, question: Question, requests_on: RequestsOn | None = None) -> Answer:
    """Ask the nodes. Raises BadInput, CannotAsk and APIError.

    By default the pods of nodes are listed for this question: of all nodes for a pod that waits.
    """
    cluster, snapshot = facts.cluster, facts.snapshot
    asked, running, bound = question.asked, question.running, question.bound
    asked, unlocated = located(cluster, asked)
    chosen = question.node or bound
    waits, ended = question.state is State.WAITS, question.state is State.ENDED
    of_others = partial(cluster.requests_on, but=asked.content.get("metadata", {}).get("uid", ""))
    listed = requests_on or (facts.around.requests_on if waits else of_others)
    first = diagnose(snapshot, asked.pod, asked.placement)
    used = _requests_on(snapshot, question, first, listed) if cluster.nodes_read else None
    lacking = _lacking_in_total(snapshot, asked.pod, used or {})
    lacking |= too_small(snapshot.nodes, first.rejected, requests_of(asked.pod))
    diagnosis = diagnose(snapshot, asked.pod, asked.placement, excluded_nodes=lacking)
    by_claims = _by_claims(facts, asked, diagnosis, bound)
    diagnosis = _ordered(diagnosis, by_claims)
    wait = NO_WAIT
    if running and chosen == bound and not ended and (question.desired or is_pending(running)):
        on_node = _resized(cluster, snapshot, running, asked)
    elif ended and chosen not in snapshot.nodes.keys() | snapshot.publications.keys():
        on_node = NodeAnswer([], YES)
    elif not_published := _not_published(snapshot, question, chosen):
        on_node = not_published
    elif chosen:
        on_node = _by_totals(_on_node(cluster, snapshot, asked, chosen, (used or {}).get(chosen)), lacking.get(chosen))
        on_node = _with_devices(on_node, by_claims.get(chosen))
        if used is None and not _holds(snapshot, question, chosen):
            on_node = replace(on_node, code=_without_totals(on_node.code))
        on_node = on_node if chosen == bound else _by_filters(on_node, snapshot.nodes.get(chosen), asked)
    else:
        if waits:
            wait = wait_of(cluster, snapshot, asked, diagnosis, facts.around)
        lines = [*(wait.why or _not_scheduled(cluster, asked)), *_narrowed(asked)]
        code = NOT_KNOWN if cluster.is_partial else _anywhere(diagnosis, by_claims)
        on_node = NodeAnswer(lines, _without_totals(code) if used is None else code)
    if running and ended:
        on_node = _after_its_end(snapshot, running, chosen, on_node)
    has_history = bool(asked.content.get("metadata", {}).get("uid"))
    of_pod = [each for each in facts.relaunches if has_history and _is_of(each, asked.pod)]
    claims = claims_of(cluster, running.content, bound) if running and bound and chosen == bound else Claims()
    lines = [*on_node.lines, *(f"  {line}" for line in claim_lines(claims, snapshot, bound, asked.pod))]
    on_node = replace(on_node, lines=lines)
    needs_claims = _needs_claims(snapshot, asked)
    checked, published = used is not None, NODE_TOPOLOGIES.plural not in cluster.not_read
    notes = (*((TOTALS_NOT_CHECKED,) if cluster.nodes_read and not checked else ()), *unlocated)
    known = claims, needs_claims, checked, published, notes, wait, by_claims
    return Answer(asked.pod, chosen, on_node, diagnosis, tuple(of_pod), *known)


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


def _with_devices(answer: NodeAnswer, claims: ClaimAnswer | None) -> NodeAnswer:
    """The answer of a node that would admit the pod, with what it says of the pod's claims: no without a device."""
    if claims is None or answer.code != YES:
        return answer
    return replace(answer, lines=[*answer.lines, f"  {claims.words}"], code=YES if can_have(claims) else NO)


def _is_of(relaunch: Relaunch, pod: Pod) -> bool:
    return (relaunch.namespace, relaunch.pod_name) == (pod.namespace, pod.name)


def _requests_on(
    snapshot: Snapshot, question: Question, first: Diagnosis, requests_on: RequestsOn
) -> dict[str, Requests] | None:
    """What other pods request on the nodes that would admit the pod, and on the chosen one; None where unknown.

    The node on which the pod runs is not asked: it has room for it.
    """
    names = {candidate.node for candidate in first.candidates}
    names |= {question.node or question.bound} & snapshot.nodes.keys()
    if question.asked.content.get("status", {}).get("phase") == "Running":
        names.discard(question.bound)
    used = requests_on(names)
    return None if used is None else {name: used.get(name, {}) for name in names}


def _lacking_in_total(snapshot: Snapshot, pod: Pod, used: Mapping[str, Requests]) -> dict[str, NodeStatus]:
    """The nodes of which the other pods leave too little in total."""
    requests = requests_of(pod)
    answers = (status_by_totals(snapshot.nodes[name], requests, used[name]) for name in sorted(used))
    return {answer.node: answer for answer in answers if answer}


def _by_totals(answer: NodeAnswer, lacking: NodeStatus | None) -> NodeAnswer:
    """The answer of a node that would admit the pod and has too little left in total: no."""
    return replace(answer, lines=[lacking.why, *answer.lines], code=NO) if lacking and answer.code == YES else answer


def _without_totals(code: int) -> int:
    """The exit code where nobody knows what other pods leave in total: they may turn a yes into a no."""
    return NOT_KNOWN if code == YES else code


def _holds(snapshot: Snapshot, question: Question, node: str) -> bool:
    """Whether the node has admitted the pod, which then has its share of the totals."""
    asked = question.asked
    runs = node == question.bound and asked.content.get("status", {}).get("phase") == "Running"
    return runs or _shows(snapshot, node, asked.pod)


def _shows(snapshot: Snapshot, node: str, pod: Pod) -> bool:
    """Whether the node publishes a pod of this name."""
    publication = snapshot.publications.get(node)
    return publication is not None and (pod.namespace, pod.name) in publication.shown


def _by_filters(answer: NodeAnswer, node: Node | None, asked: RequestedPod) -> NodeAnswer:
    """The answer of a node that the scheduler would not use for the pod, whatever its kubelet would say: no.

    What the node has in total is asked with the other pods there (``_by_totals``).
    """
    status = filtered(node, asked.placement, requests_of(asked.pod)) if node else None
    if status is None or status.reason == INSUFFICIENT:
        return answer
    # A pod that is only not aligned there counts as admitted.
    return replace(answer, lines=[status.why, *answer.lines], code=NO, aligned=answer.aligned or None)


def _not_scheduled(cluster: Cluster, asked: RequestedPod) -> Iterator[str]:
    """What the scheduler, or who gates the pod, says of a pod that is bound to no node."""
    if words := scheduling_words(asked.content) or scheduling_event(cluster, asked.content):
        yield f"{asked.pod.name} is not scheduled {words}"


def _needs_claims(snapshot: Snapshot, asked: RequestedPod) -> bool:
    """Whether the pod names claims, or requests a resource that claims provide."""
    named = asked.content.get("spec", {}).get("resourceClaims")
    return bool(named) or any(resource in snapshot.by_claim for resource in requests_of(asked.pod))


def _on_node(cluster: Cluster, snapshot: Snapshot, asked: RequestedPod, node: str, used: Requests | None) -> NodeAnswer:
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


def _not_published(snapshot: Snapshot, question: Question, node: str) -> NodeAnswer | None:
    """The answer of a node whose agent does not show the pod that runs there; None for any other pod.

    Its kubelet has admitted it, so replay would answer what nobody asks. A pod that holds nothing exclusive is in no
    publication.
    """
    running, publication = question.running, snapshot.publications.get(node)
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


def _after_its_end(snapshot: Snapshot, ended: RequestedPod, node: str, answer: NodeAnswer) -> NodeAnswer:
    """The answer about a pod that has ended or is being deleted: that, and what a pod like it would meet now.

    As long as its node shows it, that is what the node says.
    """
    pod, words = ended.pod, f"{ended.pod.name} {ended_words(ended.content)}"
    if _shows(snapshot, node, pod):
        return replace(answer, lines=[words, *answer.lines])
    return NodeAnswer([words, "a pod like it now:", *answer.lines], YES, over=True)


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


def _anywhere(answers: Diagnosis, by_claims: Mapping[str, ClaimAnswer]) -> int:
    """The exit code if the user names no node."""
    if any(can_have(by_claims.get(candidate.node)) for candidate in answers.candidates):
        return YES
    return NOT_KNOWN if any(rejected.reason == UNKNOWN for rejected in answers.rejected) else NO


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


def _resized(cluster: Cluster, snapshot: Snapshot, running: RequestedPod, desired: RequestedPod) -> NodeAnswer:
    """The kubelet's answer to a resize of a running pod. Raises BadInput, CannotAsk."""
    node = running.content["spec"].get("nodeName", "")
    if running.content.get("status", {}).get("phase") != "Running":
        raise BadInput(f"pod {running.pod.name} does not run; only a running pod can be resized in place")
    if snapshot.why_unknown(node):
        raise CannotAsk(f"the answer of {node} to a resize is unknown: {_unknown(snapshot, node)}")
    lines, resized = explain_resized(cluster, snapshot, snapshot.publications[node].state, running, desired)
    return NodeAnswer(lines, YES if resized else NO)


def _elsewhere(answer: Answer, most: int | None, most_rejected: int | None, *, is_wide: bool) -> Iterator[str]:
    """What the other nodes say: of at most ``most`` that would admit the pod, and ``most_rejected`` that would not.

    For a pod that waits the latter are a table, and ``is_wide`` has all sentences too.
    """
    others = [candidate for candidate in answer.diagnosis.candidates if candidate.node != answer.node]
    rejected = [rejected for rejected in answer.diagnosis.rejected if rejected.node != answer.node]
    if not answer.nodes_known:
        yield "which nodes would admit it is not known, as you may not read what they publish"
        return
    where, other = ("elsewhere: ", "other ") if answer.node else ("", "")
    having = [candidate for candidate in others if can_have(answer.by_claims.get(candidate.node))]
    if others:
        none = f"no {other}node that would admit it has the devices of its claims"
        shown = ", ".join(candidate.place for candidate in having[:most])
        yield f"{where}{f'{shown} would admit it now' if having else none}"
        yield from (f"  {line}" for line in _claim_lines(answer, [candidate.node for candidate in others[:most]]))
    elif not rejected:
        yield f"{where}there is no {other}node"
    elif any(one.reason == UNKNOWN for one in rejected):
        yield f"{where}no {other}node is known to admit it now"
    else:
        yield f"{where}no {other}node would admit it now"
    if answer.wait.rows:
        yield from (f"  {line}" for line in answer.wait.table(is_wide=is_wide))
        if not is_wide:
            yield from (f"  {answer.diagnosis.explanation(one)}" for one in answer.wait.told_of(rejected))
            return
    for one in rejected[:most_rejected]:
        yield f"  {answer.diagnosis.explanation(one)}"
    if most_rejected is not None and len(rejected) > most_rejected:
        yield f"  and {len(rejected) - most_rejected} more nodes, with -o wide"


def _claim_lines(answer: Answer, nodes: Sequence[str]) -> Iterator[str]:
    """What the nodes say of the pod's claims, in this order; of nothing that is known, that the scheduler decides."""
    known = [answer.by_claims[node] for node in nodes if node in answer.by_claims]
    yield from (each.words for each in known)
    # The node that the pod is on is not asked, and one that refused it stays the last.
    if not answer.node and (words := preference_words(answer.by_claims, len(answer.diagnosis.candidates))):
        yield words
    if answer.needs_claims and (not known or any(each.sharing is Sharing.UNKNOWN for each in known)):
        yield "which of these can have its claims is for the scheduler to say"


def _relaunched(relaunches: Iterable[Relaunch]) -> Iterator[str]:
    """A line for each relaunch, with the columns of ``kubectl get relaunches``."""
    for relaunch in relaunches:
        succeeded = relaunch.condition(SUCCEEDED)
        status = succeeded.reason if succeeded else relaunch.step.value
        new_pod = f", new pod {relaunch.new_name}" if relaunch.new_name else ""
        yield f"relaunch {relaunch.name}: refused by {relaunch.refused_by} ({relaunch.reason}), {status}{new_pod}"
