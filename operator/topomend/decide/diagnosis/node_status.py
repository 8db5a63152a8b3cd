"""One node's answer for one pod: the scheduler filter that rejects it, or the decision of its kubelet by replay.

Owns the answer's type and the question. Leaves the filters, the rules of admission and the order of the candidates to
``filters``, ``replay`` and ``scoring``, and all nodes together, with the memory of their answers, to ``survey``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from topomend.alignment.requested import admission_of, aligned_numa_nodes, is_aligned
from topomend.cache.snapshot import Publication, Snapshot, is_newer
from topomend.decide.diagnosis.filters import filter_node, lacking_in_total
from topomend.decide.scoring import NO_SCORE, Score, numa_nodes_of, score, score_of
from topomend.explain.explanation import blocking_resources
from topomend.explain.trace_text import numa_text
from topomend.model.bitmask import NUMAMask
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node import HOSTNAME_LABEL, Node
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod, requests_of
from topomend.model.pods.scheduling import Placement
from topomend.model.quantity import MilliQuantity
from topomend.replay.admission import admit
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.fast_path.admission import (
    FastAdmission,
    FastPlacement,
    FastRefusal,
    PodShape,
    content_of,
    shape_of,
)

MAX_MISMATCHES = 3
"""A node whose kubelet refused this many pods in a row that replay admits is not a candidate: replay cannot tell."""

ADMITS = "Admits"
MISMATCHED = "ReplayMismatch"
UNKNOWN = "Unknown"
JUST_REFUSED = "JustRefused"
BACKING_OFF = "BackingOff"
VACATED = "Vacated"
INSUFFICIENT = "InsufficientResources"
NOT_ALIGNED = "NotAligned"
"""The kubelet would admit the pod, and not align it as its creator asks."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node's answer for one pod (kube-scheduler: framework.Status in NodeToStatus).

    ``reason`` is ``ADMITS``, or in one word why the node does not admit the pod, and ``summary`` what that is counted
    under; it is empty for the node that refused the pod, which an explanation has named already. ``why`` is the reason
    in one line; empty where replay decided, whose explanation names the pod (``Diagnosis.explanation``).

    Of a node that admits the pod, ``hostname`` is the label by which the scheduler knows it and ``numa_nodes`` are
    those that the pod is aligned to, none where it is not aligned.
    """

    node: str
    reason: str
    summary: str = ""
    hostname: str = ""
    numa_nodes: NUMAMask = 0
    score: Score = NO_SCORE
    why: str = ""

    @property
    def admits(self) -> bool:
        """Whether the node admits the pod."""
        return self.reason == ADMITS

    @property
    def is_refusal(self) -> bool:
        """Whether its kubelet refuses the pod: the kubelet's reasons all end in ``Error``."""
        return self.reason.endswith("Error")

    @property
    def is_full(self) -> bool:
        """Whether other pods leave too little of a resource; of a node that is too small when empty none is named."""
        return self.reason == INSUFFICIENT and self.summary != INSUFFICIENT

    @property
    def place(self) -> str:
        """``gpu-03 NUMA 1``, or the node's name alone for a pod that is not aligned."""
        return f"{self.node} {numa_text(self.numa_nodes)}" if self.numa_nodes else self.node


@dataclass(frozen=True, slots=True)
class RejectedBy:
    """The node that refused the pod, and the pod's resourceVersion at that time; None where it is not known."""

    node: str
    version: str | None


@dataclass(frozen=True, slots=True)
class Question:
    """What every node is asked. ``kind`` is one for all pods with the same requests and placement; ``replayed`` gets
    the admissions that are replayed for it."""

    fit: FastAdmission
    placement: Placement
    requests: Mapping[str, MilliQuantity]
    kind: PodShape
    replayed: list[tuple[KubeletSettings, str]] = field(default_factory=list)


def question_about(pod: Pod, placement: Placement, effort: Effort = UNLIMITED) -> Question:
    """The question whether a node admits this pod; its answers keep to ``effort``."""
    fit = admission_of(pod, effort)
    return Question(fit, placement, requests_of(pod), _kind(fit.shape, pod, placement))


def kind_of(pod: Pod, placement: Placement) -> PodShape:
    """What all pods have in common to which every node answers alike, but for one that holds something already."""
    return _kind(shape_of(content_of(pod)), pod, placement)


def _kind(shape: PodShape, pod: Pod, placement: Placement) -> PodShape:
    selector = tuple(sorted(placement.node_selector.items()))
    totals = tuple(pod.overhead.items()), tuple(pod.claimed.items())
    return shape_of((shape, totals, selector, placement.terms, placement.volumes, placement.tolerations))


def status_of(snapshot: Snapshot, node: Node, question: Question) -> NodeStatus:
    """The node's answer. It is the same for all pods of a kind, but for one of which the node holds a namesake.

    Raises Overspent.
    """
    if rejected := filtered(node, question.placement, question.requests):
        return rejected
    publication = snapshot.publications.get(node.name)
    if publication is None or publication.problem:
        return _rejected(node.name, UNKNOWN, f"{node.name}: {snapshot.why_unknown(node.name)}", "unknown")
    mismatches = snapshot.mismatches.get(node.name)
    if mismatches and len(mismatches.pods) >= MAX_MISMATCHES:
        why = f"{node.name} refused {len(mismatches.pods)} pods in a row that replay admits"
        return _rejected(node.name, MISMATCHED, why, "with replay mismatches")
    return _replayed(node, publication, question)


def just_refused(publication: Publication | None, rejected_by: RejectedBy) -> NodeStatus | None:
    """The answer of the node that refused the pod; None where it has published since, so that it is asked again."""
    if rejected_by.version is None or (publication is not None and is_newer(publication.version, rejected_by.version)):
        return None
    name = rejected_by.node
    return _rejected(name, JUST_REFUSED, f"{name} refused it and has published nothing since", "")


def insufficient(name: str, resource: str) -> NodeStatus:
    """The answer of a node whose other pods leave too little of ``resource`` in total."""
    return _rejected(name, INSUFFICIENT, f"{name} has too little {resource} left in total", resource)


def lacks_total(name: str, resource: str, why: str) -> NodeStatus:
    """The same with a sentence of its own."""
    return _rejected(name, INSUFFICIENT, why, resource)


def backing_off(name: str) -> NodeStatus:
    """The answer of a node that refused a pod of the same workload which replay had admitted there."""
    why = f"{name} refused a pod of this workload that replay had admitted, and has published nothing since"
    return _rejected(name, BACKING_OFF, why, "backing off")


def vacated(name: str) -> NodeStatus:
    """The answer of a node that is left free, or to other pods, by the move that has ended the pod before this one."""
    why = f"{name} is kept free for others: this pod is the next one of a pod that was moved away"
    return _rejected(name, VACATED, why, "vacated")


def filtered(node: Node, placement: Placement, requests: Mapping[str, MilliQuantity]) -> NodeStatus | None:
    """The answer of the scheduler's filters, where one rejects the node for a pod of these requests."""
    why = filter_node(node, placement, requests)
    if why:
        return _rejected(node.name, why, f"the scheduler would not use {node.name}: {why}", why)
    resource = lacking_in_total(node, requests)
    return insufficient(node.name, resource) if resource else None


def _replayed(node: Node, publication: Publication, question: Question) -> NodeStatus:
    state = publication.state_with_assumed(question.fit.effort)
    status = _replay(node, state, question.fit)
    question.replayed.append((state.kubelet, status.reason))
    return status


def _replay(node: Node, state: NodeState, fit: FastAdmission) -> NodeStatus:
    outcome = fit.outcome(state)
    if isinstance(outcome, FastPlacement):
        return _admits(node, outcome.numa_nodes, score_of(state, outcome))
    if isinstance(outcome, FastRefusal):
        return NodeStatus(node.name, outcome.reason, ",".join(outcome.lacking))
    return _replay_whole(node, state, fit)


def _replay_whole(node: Node, state: NodeState, fit: FastAdmission) -> NodeStatus:
    pod = fit.pod
    verdict, after = admit(state, pod, fit.effort)
    if not verdict.admitted:
        return NodeStatus(node.name, verdict.reason, blocking_resources(verdict))
    if not is_aligned(after, pod):
        return NodeStatus(node.name, NOT_ALIGNED, "not aligned")
    numa_nodes = aligned_numa_nodes(after, pod) if pod.single_numa_node else numa_nodes_of(verdict)
    return _admits(node, numa_nodes, score(after, verdict))


def _admits(node: Node, numa_nodes: NUMAMask, its_score: Score) -> NodeStatus:
    return NodeStatus(node.name, ADMITS, hostname=node.labels[HOSTNAME_LABEL], numa_nodes=numa_nodes, score=its_score)


def _rejected(name: str, reason: str, why: str, summary: str) -> NodeStatus:
    return NodeStatus(name, reason, summary, why=why)
