"""Each node's answer for one pod: the scheduler filter that rejects it, or the decision of its kubelet by replay.

Owns the answer's type, its memory, and the summary of all answers. Leaves the filters, the rules of admission and the
order of the candidates to ``filters``, ``replay`` and ``scoring``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from types import MappingProxyType

from topomend.cache.snapshot import Publication, Snapshot, is_newer
from topomend.decide.explanation import blocking_resources, explain
from topomend.decide.filters import filter_node
from topomend.decide.scoring import NO_SCORE, Score, numa_nodes_of, score, score_of
from topomend.decide.trace_text import numa_text
from topomend.model.bitmask import NUMAMask
from topomend.model.bounded_dict import BoundedDict
from topomend.model.cluster import HOSTNAME_LABEL, Node, Placement
from topomend.model.kubelet import KubeletSettings
from topomend.model.node_state import NodeState
from topomend.model.pod import Pod, requests_of
from topomend.model.quantity import MilliQuantity
from topomend.model.relaunch import NodeVerdict
from topomend.replay.admission import admit
from topomend.replay.fast_path.admission import (
    MAX_ANSWERS,
    FastAdmission,
    FastPlacement,
    FastRefusal,
    PodShape,
    shape_of,
)
from topomend.replay.identity_cache import IdentityCache

MAX_MISMATCHES = 3
"""A node whose kubelet refused this many pods in a row that replay admits is not a candidate: replay cannot tell."""

ADMITS = "Admits"
MISMATCHED = "ReplayMismatch"
UNKNOWN = "Unknown"
JUST_REFUSED = "JustRefused"
BACKING_OFF = "BackingOff"

_DISTRUSTED = (JUST_REFUSED, BACKING_OFF, MISMATCHED)
"""The answers for a node whose kubelet refused what replay admits, or may do so."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node's answer for one pod (kube-scheduler: framework.Status in NodeToStatus).

    ``reason`` is ``ADMITS``, or in one word why the node does not admit the pod, and ``summary`` what that is counted
    under; it is empty for the node that refused the pod, which an explanation has named already.

    Of a node that admits the pod, ``hostname`` is the label by which the scheduler knows it and ``numa_nodes`` are
    those that the pod is aligned to, none where it is not aligned.
    """

    node: str
    reason: str
    summary: str = ""
    hostname: str = ""
    numa_nodes: NUMAMask = 0
    score: Score = NO_SCORE
    _explain: Callable[[], str] | None = field(default=None, repr=False, compare=False)

    @property
    def admits(self) -> bool:
        """Whether the node admits the pod."""
        return self.reason == ADMITS

    @property
    def is_refusal(self) -> bool:
        """Whether its kubelet refuses the pod: the kubelet's reasons all end in ``Error``."""
        return self.reason.endswith("Error")

    @property
    def place(self) -> str:
        """``gpu-03 NUMA 1``, or the node's name alone for a pod that is not aligned."""
        return f"{self.node} {numa_text(self.numa_nodes)}" if self.numa_nodes else self.node

    @property
    def explanation(self) -> str:
        """Where the node admits the pod, or why it does not, in one line.

        Worked out on demand: of thousands of nodes that reject a pod few are explained.
        """
        return self._explain() if self._explain else f"on {self.place}"


ExcludedNodes = Mapping[str, NodeStatus]
"""Nodes that are not asked, by name, and the answer that stands for theirs."""

NO_EXCLUDED_NODES: ExcludedNodes = MappingProxyType({})


@dataclass(frozen=True)
class Diagnosis:
    """All nodes' answers (kube-scheduler: framework.Diagnosis): ``candidates``, best first, and ``rejected`` nodes.

    ``replayed`` are the kubelet settings of the admissions that were replayed, each with its outcome; the other answers
    were remembered.
    """

    candidates: tuple[NodeStatus, ...]
    rejected: tuple[NodeStatus, ...]
    replayed: tuple[tuple[KubeletSettings, str], ...] = ()

    @property
    def any_node_will_do(self) -> bool:
        """Whether every kubelet that was asked admits the pod and aligns it to nothing.

        Then nothing speaks for one node or against another that the scheduler does not know itself.
        """
        return not any(status.numa_nodes for status in self.candidates) and not any(
            status.is_refusal or status.reason in _DISTRUSTED for status in self.rejected
        )

    def verdicts(self, explained: int) -> tuple[NodeVerdict, ...]:
        """The answers for a record, candidates first; only the first ``explained`` have an explanation."""
        answers = (*self.candidates, *self.rejected)
        return tuple(
            NodeVerdict(
                status.node,
                admitted=status.admits,
                reason="" if status.admits else status.reason,
                explanation=status.explanation if status.admits or position < explained else "",
            )
            for position, status in enumerate(answers)
        )

    def counts(self) -> dict[str, int]:
        """The number of nodes by answer."""
        rejected = Counter(status.reason for status in self.rejected)
        return ({ADMITS: len(self.candidates)} if self.candidates else {}) | dict(rejected.most_common())

    def summary(self, other: str = "other ") -> str:
        """Which nodes admit the pod and why the others do not, in one line; ``other`` is empty where none refused."""
        rejected = Counter(status.summary for status in self.rejected if status.summary)
        reasons = ", ".join(f"{count} {summary}" for summary, count in rejected.most_common())
        if not self.candidates:
            return f"no {other}node admits it now: {reasons}" if reasons else f"there is no {other}node"
        named = [candidate.place for candidate in self.candidates[:3]]
        more = f" and {len(self.candidates) - 3} more" if len(self.candidates) > 3 else ""
        return f"{', '.join(named)}{more} would admit it" + (f"; other nodes: {reasons}" if reasons else "")


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
    """Ask every node that is not excluded.

    The node that refused the pod is asked again only once it has published since: until then its state is the one that
    misled the scheduler. Where it is not known which came first, that node is the last candidate.
    """
    question = _question(pod, placement)
    answers = [
        excluded_nodes[node.name] if node.name in excluded_nodes else _answer(snapshot, node, question, rejected_by)
        for node in snapshot.nodes.values()
    ]
    candidates = sorted((status for status in answers if status.admits), key=attrgetter("score"))
    if rejected_by:
        candidates.sort(key=lambda status: status.node == rejected_by.node)
    rejected = sorted((status for status in answers if not status.admits), key=_refusals_first)
    return Diagnosis(tuple(candidates), tuple(rejected), tuple(question.replayed))


def kind_of(pod: Pod, placement: Placement) -> PodShape:
    """What all pods have in common to which every node answers alike, but for one that holds something already."""
    return _question(pod, placement).shape


def any_node_admits(snapshot: Snapshot, names: Iterable[str], pod: Pod, placement: Placement) -> bool:
    """Whether one of these nodes admits the pod by replay, or might because no agent publishes its state."""
    question = _question(pod, placement)
    answers = (_answer(snapshot, snapshot.nodes[name], question, None) for name in names if name in snapshot.nodes)
    return any(status.admits or _has_no_agent(snapshot, status) for status in answers)


def hostnames_without_agent(snapshot: Snapshot, diagnosis: Diagnosis) -> tuple[str, ...]:
    """The hostname labels of nodes without an agent: they might admit the pod, and come after all that do.

    A node whose agent is silent, not Ready or not believed is none of them: its pods would be sent into the unknown.
    """
    names = [status.node for status in diagnosis.rejected if _has_no_agent(snapshot, status)]
    return tuple(snapshot.nodes[name].labels[HOSTNAME_LABEL] for name in names if name in snapshot.nodes)


def _has_no_agent(snapshot: Snapshot, status: NodeStatus) -> bool:
    return status.reason == UNKNOWN and not snapshot.has_agent(status.node)


def insufficient(name: str, resource: str) -> NodeStatus:
    """The answer of a node whose other pods leave too little of ``resource`` in total."""
    return _rejected(name, "InsufficientResources", f"{name} has too little {resource} left in total", resource)


def backing_off(name: str) -> NodeStatus:
    """The answer of a node that refused a pod of the same workload which replay had admitted there."""
    why = f"{name} refused a pod of this workload that replay had admitted, and has published nothing since"
    return _rejected(name, BACKING_OFF, why, "backing off")


@dataclass(frozen=True, slots=True)
class _Question:
    """What every node is asked. ``shape`` is one for all pods with the same requests and placement; ``replayed`` gets
    the admissions that are replayed for it."""

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


def _answer(snapshot: Snapshot, node: Node, question: _Question, rejected_by: RejectedBy | None) -> NodeStatus:
    publication = snapshot.publications.get(node.name)
    if rejected_by and rejected_by.node == node.name and not _published_since(publication, rejected_by):
        return _rejected(node.name, JUST_REFUSED, f"{node.name} refused it and has published nothing since", "")
    if publication is None or publication.problem:
        problem = snapshot.why_unknown(node.name)
        return _filtered(node, question) or _rejected(node.name, UNKNOWN, f"{node.name}: {problem}", "unknown")
    mismatches = snapshot.mismatches.get(node.name)
    if mismatches and len(mismatches.pods) >= MAX_MISMATCHES:
        why = f"{node.name} refused {len(mismatches.pods)} pods in a row that replay admits"
        return _filtered(node, question) or _rejected(node.name, MISMATCHED, why, "with replay mismatches")
    state, pod = publication.state_with_assumed, question.fit.pod
    status = _remembered(node, state, question)
    if status.admits or status._explain:
        return status
    return NodeStatus(
        status.node,
        status.reason,
        status.summary,
        _explain=lambda: explain(admit(state, pod)[0], state, pod),
    )


def _filtered(node: Node, question: _Question) -> NodeStatus | None:
    """The answer of the scheduler's filters, where one rejects the node."""
    why = filter_node(node, question.placement, question.requests)
    return _rejected(node.name, why, f"the scheduler would not use {node.name}: {why}", why) if why else None


class _Answers:
    """The answers of one state, by the kind of pods that it was asked about, and the node that it was taken from."""

    __slots__ = ("_names", "by_shape")

    def __init__(self) -> None:
        self.by_shape: BoundedDict[PodShape, tuple[Node, NodeStatus]] = BoundedDict(MAX_ANSWERS)
        self._names: frozenset[str] | None = None

    def may_hold(self, state: NodeState, name: str) -> bool:
        """Whether a pod of this name, in any namespace, has an allocation there.

        ``FastAdmission.is_on`` checks that first too, but has to look up the state again: a fifth of a large diagnosis.
        """
        if self._names is None:
            self._names = frozenset([pod.name for pod in state.pods])
        return name in self._names


_answers: IdentityCache[NodeState, _Answers] = IdentityCache(_Answers)


def _remembered(node: Node, state: NodeState, question: _Question) -> NodeStatus:
    """The answer of filters and replay, remembered with the state for all pods of the kind.

    A refusal by replay has no explanation yet: that names the pod.
    """
    answers = _answers.of(state)
    if answers.may_hold(state, question.fit.pod.name) and question.fit.is_on(state):
        return _filtered(node, question) or _counted(question, state, _replay_whole(node, state, question.fit.pod))
    known = answers.by_shape.get(question.shape)
    if known is not None and known[0] is node:
        return known[1]
    status = _filtered(node, question) or _counted(question, state, _replay(node, state, question.fit))
    answers.by_shape[question.shape] = (node, status)
    return status


def _counted(question: _Question, state: NodeState, status: NodeStatus) -> NodeStatus:
    question.replayed.append((state.kubelet, status.reason))
    return status


def _replay(node: Node, state: NodeState, fit: FastAdmission) -> NodeStatus:
    outcome = fit.outcome(state)
    if isinstance(outcome, FastPlacement):
        return _admits(node, outcome.numa_nodes, score_of(state, outcome))
    if isinstance(outcome, FastRefusal):
        return NodeStatus(node.name, outcome.reason, ",".join(outcome.lacking))
    return _replay_whole(node, state, fit.pod)


def _replay_whole(node: Node, state: NodeState, pod: Pod) -> NodeStatus:
    verdict, after = admit(state, pod)
    if not verdict.admitted:
        return NodeStatus(node.name, verdict.reason, blocking_resources(verdict))
    return _admits(node, numa_nodes_of(verdict), score(after, verdict))


def _admits(node: Node, numa_nodes: NUMAMask, its_score: Score) -> NodeStatus:
    return NodeStatus(node.name, ADMITS, hostname=node.labels[HOSTNAME_LABEL], numa_nodes=numa_nodes, score=its_score)


def _rejected(name: str, reason: str, explanation: str, summary: str) -> NodeStatus:
    return NodeStatus(name, reason, summary, _explain=lambda: explanation)


def _published_since(publication: Publication | None, rejected_by: RejectedBy) -> bool:
    if rejected_by.version is None:
        return True
    return publication is not None and is_newer(publication.version, rejected_by.version)


def _refusals_first(status: NodeStatus) -> tuple[bool, str]:
    """Kubelets' refusals before rejections by the scheduler's filters."""
    return not status.is_refusal, status.node
