"""Every node's answer for one pod: what keeps the scheduler from it, or what replay of its kubelet says."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from types import MappingProxyType

from topomend.cache.snapshot import Publication, Snapshot, is_newer
from topomend.decide.explanation import explain, lacking, numa
from topomend.decide.filters import HOSTNAME_LABEL, filter_node
from topomend.decide.scoring import Score, score, score_of, touched
from topomend.model.bitmask import NUMAMask
from topomend.model.bounded_dict import BoundedDict
from topomend.model.cluster import Node, Placement
from topomend.model.kubelet import KubeletSettings
from topomend.model.node_state import NodeState
from topomend.model.pod import Pod, requests_of
from topomend.model.quantity import MilliQuantity
from topomend.model.relaunch import NodeVerdict
from topomend.replay.admission import admit
from topomend.replay.fast_path.admission import MAX_ANSWERS, FastAdmission, FastPlacement, PodShape, Refusal, shape_of
from topomend.replay.identity_cache import IdentityCache
from topomend.wire.relaunch import MAX_VERDICTS

MAX_MISMATCHES = 3
"""A node whose kubelet so often in a row refused what replay admits is no candidate: nothing is known about it."""

ADMITS = "Admits"
DOUBTED = "ReplayDisagrees"
UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that admits the pod by replay. ``hostname`` is its label, by which it is named to the scheduler.

    ``numa_nodes`` are those that the pod would stand on, none where it is not aligned.
    """

    node: str
    hostname: str
    numa_nodes: NUMAMask
    score: Score

    @property
    def place(self) -> str:
        """``gpu-03 NUMA 1``, or the node's name alone for a pod that is not aligned."""
        return f"{self.node} {numa(self.numa_nodes)}" if self.numa_nodes else self.node


@dataclass(frozen=True, slots=True)
class RejectedNode:
    """A node that is no candidate: ``reason`` in one word, ``explanation`` in one line.

    ``summary`` is what it is counted under; empty for the node that refused the pod, which has been named already.
    """

    node: str
    reason: str
    summary: str
    _explain: Callable[[], str] = field(repr=False, compare=False)

    @property
    def explanation(self) -> str:
        """Worked out when it is asked for: of thousands of nodes that refuse a pod few are explained."""
        return self._explain()


ExcludedNodes = Mapping[str, RejectedNode]
"""Nodes that are not asked, by their names, and what is said of them instead."""

NO_EXCLUDED_NODES: ExcludedNodes = MappingProxyType({})


@dataclass(frozen=True)
class Diagnosis:
    """All nodes' answers: ``candidates`` best first, and who was turned down.

    ``replayed`` are the kubelets that were asked for it and what each said: of the others it was remembered.
    """

    candidates: tuple[Candidate, ...]
    rejected: tuple[RejectedNode, ...]
    replayed: tuple[tuple[KubeletSettings, str], ...] = ()

    def verdicts(self) -> tuple[NodeVerdict, ...]:
        """The answers for a record, candidates first; those that it has no room for are not explained."""
        yes = (NodeVerdict(each.node, admitted=True, explanation=f"on {each.place}") for each in self.candidates)
        room = MAX_VERDICTS - len(self.candidates)
        no = (
            NodeVerdict(
                each.node,
                admitted=False,
                reason=each.reason,
                explanation=each.explanation if position < room else "",
            )
            for position, each in enumerate(self.rejected)
        )
        return (*yes, *no)

    def counts(self) -> dict[str, int]:
        """How many nodes gave which answer."""
        counted = Counter(each.reason for each in self.rejected)
        return ({ADMITS: len(self.candidates)} if self.candidates else {}) | dict(counted.most_common())

    def summary(self, other: str = "other ") -> str:
        """Who admits the pod and why the others do not, in one line; ``other`` empty where no node refused it."""
        counted = Counter(each.summary for each in self.rejected if each.summary)
        refusals = ", ".join(f"{nodes} {summary}" for summary, nodes in counted.most_common())
        if not self.candidates:
            return f"no {other}node admits it now: {refusals}" if refusals else f"there is no {other}node"
        named = [each.place for each in self.candidates[:3]]
        more = f" and {len(self.candidates) - 3} more" if len(self.candidates) > 3 else ""
        return f"{', '.join(named)}{more} would admit it" + (f"; {refusals} refuse" if refusals else "")


@dataclass(frozen=True, slots=True)
class RejectedBy:
    """The node that refused the pod, and the pod's resourceVersion at that time; None where it is not known."""

    node: str
    version: str | None


def diagnose(
    snapshot: Snapshot,
    pod: Pod,
    placement: Placement,
    rejected_by: RejectedBy | None = None,
    excluded_nodes: ExcludedNodes = NO_EXCLUDED_NODES,
) -> Diagnosis:
    """Ask every node but those that are left out.

    The node that refused the pod is asked again only once it has published since: until then its state is the one
    that misled the scheduler. Where it is not known which came first it stands last.
    """
    question = _question(pod, placement)
    answers = [
        excluded_nodes[node.name] if node.name in excluded_nodes else _answer(snapshot, node, question, rejected_by)
        for node in snapshot.nodes.values()
    ]
    candidates = sorted((each for each in answers if isinstance(each, Candidate)), key=attrgetter("score"))
    if rejected_by:
        candidates.sort(key=lambda each: each.node == rejected_by.node)
    rejected = sorted((each for each in answers if isinstance(each, RejectedNode)), key=_tellable)
    return Diagnosis(tuple(candidates), tuple(rejected), tuple(question.replayed))


def any_node_admits(snapshot: Snapshot, names: Iterable[str], pod: Pod, placement: Placement) -> bool:
    """Whether one of these nodes admits the pod by replay, or counts as admitting because no agent tells of it."""
    question = _question(pod, placement)
    answers = (_answer(snapshot, snapshot.nodes[name], question, None) for name in names if name in snapshot.nodes)
    return any(isinstance(each, Candidate) or each.reason == UNKNOWN for each in answers)


@dataclass(frozen=True, slots=True)
class _Question:
    """What every node is asked. ``kind`` is one for all pods that ask for the same and may go to the same places;
    ``replayed`` gets what replay says of it."""

    fit: FastAdmission
    placement: Placement
    requests: Mapping[str, MilliQuantity]
    shape: PodShape
    replayed: list[tuple[KubeletSettings, str]] = field(default_factory=list)


def _question(pod: Pod, placement: Placement) -> _Question:
    fit = FastAdmission(pod)
    selector = tuple(sorted(placement.node_selector.items()))
    return _Question(
        fit, placement, requests_of(pod), shape_of((fit.shape, selector, placement.terms, placement.tolerations))
    )


def _answer(
    snapshot: Snapshot, node: Node, question: _Question, rejected_by: RejectedBy | None
) -> Candidate | RejectedNode:
    publication = snapshot.publications.get(node.name)
    if rejected_by and rejected_by.node == node.name and not _published_since(publication, rejected_by):
        return _turned(node.name, "JustRefused", f"{node.name} refused it and has published nothing since", "")
    if publication is None or publication.problem:
        problem = snapshot.why_unknown(node.name)
        return _kept_off(node, question) or _turned(node.name, UNKNOWN, f"{node.name}: {problem}", "unknown")
    mismatch = snapshot.mismatches.get(node.name)
    if mismatch and len(mismatch.pods) >= MAX_MISMATCHES:
        why = f"{node.name} refused {len(mismatch.pods)} pods in a row that replay admits"
        return _kept_off(node, question) or _turned(node.name, DOUBTED, why, "not as replayed")
    reply = _reply(node, publication.state_with_assumed, question)
    if not isinstance(reply, _Refused):
        return reply
    state, pod, policy = (
        publication.state_with_assumed,
        question.fit.pod,
        publication.state.kubelet.topology_manager_policy,
    )
    return RejectedNode(
        node.name, reply.reason, reply.summary, lambda: explain(admit(state, pod)[0], node.name, policy)
    )


def _kept_off(node: Node, question: _Question) -> RejectedNode | None:
    """The scheduler's objection, if it has one."""
    why = filter_node(node, question.placement, question.requests)
    return _turned(node.name, why, f"the scheduler would not use {node.name}: {why}", why) if why else None


@dataclass(frozen=True, slots=True)
class _Admitted:
    numa_nodes: NUMAMask
    score: Score


@dataclass(frozen=True, slots=True)
class _Refused:
    reason: str
    summary: str


_Reply = Candidate | RejectedNode | _Refused


class _Asked:
    """What was said of a state to each kind of pods, and about which node."""

    __slots__ = ("_names", "replies")

    def __init__(self) -> None:
        self.replies: BoundedDict[PodShape, tuple[Node, _Reply]] = BoundedDict(MAX_ANSWERS)
        self._names: frozenset[str] | None = None

    def may_hold(self, state: NodeState, name: str) -> bool:
        """Whether a pod of this name holds something there, in whichever namespace.

        ``FastAdmission.is_on`` asks the same first, but has to find the state again: a fifth of a diagnosis.
        """
        if self._names is None:
            self._names = frozenset([each.name for each in state.pods])
        return name in self._names


_asked: IdentityCache[NodeState, _Asked] = IdentityCache(_Asked)


def _reply(node: Node, state: NodeState, question: _Question) -> _Reply:
    """What scheduler and replay say in short, remembered with the state for all pods of the kind."""
    asked = _asked.of(state)
    if asked.may_hold(state, question.fit.pod.name) and question.fit.is_on(state):
        return _kept_off(node, question) or _replayed(node, state, question, _replay_whole(state, question.fit.pod))
    known = asked.replies.get(question.shape)
    if known is not None and known[0] is node:
        return known[1]
    reply = _kept_off(node, question) or _replayed(node, state, question, _replay(state, question.fit))
    asked.replies[question.shape] = (node, reply)
    return reply


def _replayed(node: Node, state: NodeState, question: _Question, said: _Admitted | _Refused) -> Candidate | _Refused:
    question.replayed.append((state.kubelet, said.reason if isinstance(said, _Refused) else ADMITS))
    if isinstance(said, _Refused):
        return said
    return Candidate(node.name, node.labels[HOSTNAME_LABEL], said.numa_nodes, said.score)


def _replay(state: NodeState, fit: FastAdmission) -> _Admitted | _Refused:
    outcome = fit.outcome(state)
    if isinstance(outcome, FastPlacement):
        return _Admitted(outcome.numa_nodes, score_of(state, outcome))
    if isinstance(outcome, Refusal):
        return _Refused(outcome.reason, ",".join(outcome.lacking))
    return _replay_whole(state, fit.pod)


def _replay_whole(state: NodeState, pod: Pod) -> _Admitted | _Refused:
    verdict, after = admit(state, pod)
    if not verdict.admitted:
        return _Refused(verdict.reason, lacking(verdict))
    return _Admitted(touched(verdict), score(after, verdict))


def hostnames_without_agent(snapshot: Snapshot, answers: Diagnosis) -> tuple[str, ...]:
    """The hostnames of nodes without an agent: they count as admitting, after all that are known to."""
    names = [each.node for each in answers.rejected if each.reason == UNKNOWN and each.node in snapshot.nodes]
    return tuple(snapshot.nodes[name].labels[HOSTNAME_LABEL] for name in names)


def full(name: str, resource: str) -> RejectedNode:
    """A node of whose ``resource`` too little is left in total."""
    return _turned(name, "InsufficientResources", f"{name} has too little {resource} left in total", resource)


def backing_off(name: str) -> RejectedNode:
    """A node that refused the pod's like, which was placed there."""
    return _turned(
        name, "HeldBack", f"{name} refused a pod that was placed there, and has published nothing since", "held back"
    )


def _turned(name: str, reason: str, explanation: str, summary: str) -> RejectedNode:
    return RejectedNode(name, reason, summary, lambda: explanation)


def _published_since(publication: Publication | None, rejected_by: RejectedBy) -> bool:
    if rejected_by.version is None:
        return True
    return publication is not None and is_newer(publication.version, rejected_by.version)


def _tellable(rejected: RejectedNode) -> tuple[bool, str]:
    """Kubelets' refusals before what only the scheduler says."""
    return not rejected.reason.endswith("Error"), rejected.node
