"""The diagnosis of a pod: all nodes' answers, and what they mean together.

Owns what differs between the pods of a kind, and the summary of all answers. Leaves the answers of a kind of pods to
``survey``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from topomend.alignment.requested import is_aligned, why_not_aligned
from topomend.cache.snapshot import Snapshot
from topomend.decide.diagnosis.filters import first_exceeded
from topomend.decide.diagnosis.node_status import (
    ADMITS,
    BACKING_OFF,
    INSUFFICIENT,
    JUST_REFUSED,
    MISMATCHED,
    NOT_ALIGNED,
    UNKNOWN,
    VACATED,
    NodeStatus,
    RejectedBy,
    just_refused,
    question_about,
    status_of,
)
from topomend.decide.diagnosis.survey import Surveys, in_order
from topomend.explain.explanation import explain
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node import HOSTNAME_LABEL
from topomend.model.pods.pod import ONE_POD, Pod
from topomend.model.pods.scheduling import Placement
from topomend.model.relaunch_record import NodeVerdict
from topomend.replay.admission import admit, may_allocate
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.errors import TOPOLOGY_AFFINITY_ERROR

_DISTRUSTED = (JUST_REFUSED, BACKING_OFF, MISMATCHED, VACATED)
"""The answers for a node whose kubelet refused what replay admits, or may do so; and for one to which a pod is not to
come back."""

_SHORTFALLS = {
    UNKNOWN: "publish a usable state",
    MISMATCHED: "decide as replay does",
    BACKING_OFF: "get pods of this workload for a while",
    VACATED: "get this pod, which was moved",
    NOT_ALIGNED: "place it on one NUMA node",
}

ExcludedNodes = Mapping[str, NodeStatus]
"""Nodes that are not asked, by name, and the answer that stands for theirs."""

NO_EXCLUDED_NODES: ExcludedNodes = MappingProxyType({})


@dataclass(frozen=True)
class Diagnosis:
    """All nodes' answers (kube-scheduler: framework.Diagnosis): ``candidates``, best first, and ``rejected`` nodes.

    ``replayed`` are the kubelet settings of the admissions that were replayed, each with its outcome; the other answers
    were remembered. ``explain_refusal`` words the refusal of the node of this name, and ``may_refuse`` says whether a
    kubelet that was not asked, because its node is full, might refuse the pod if a scheduler binds it there.
    """

    candidates: tuple[NodeStatus, ...]
    rejected: tuple[NodeStatus, ...]
    replayed: tuple[tuple[KubeletSettings, str], ...]
    explain_refusal: Callable[[str], str] = field(repr=False, compare=False)
    may_refuse: Callable[[str], bool] = field(repr=False, compare=False)

    def explanation(self, status: NodeStatus) -> str:
        """Where the node admits the pod, or why it does not, in one line.

        Worked out on demand: of thousands of nodes that reject a pod few are explained.
        """
        return f"on {status.place}" if status.admits else status.why or self.explain_refusal(status.node)

    @property
    def lacks_alignment_alone(self) -> bool:
        """Whether no node admits the pod, and one would if its creator did not ask for alignment."""
        return not self.candidates and any(status.reason == NOT_ALIGNED for status in self.rejected)

    @property
    def any_node_will_do(self) -> bool:
        """Whether every kubelet that was asked admits the pod and aligns it to nothing.

        Then nothing speaks for one node or against another that the scheduler does not know itself. That a node is full
        it may see otherwise: it learns sooner of a pod that has ended, and not every scheduler counts.
        """
        return not any(status.numa_nodes for status in self.candidates) and not any(
            status.is_refusal
            or status.reason in _DISTRUSTED
            or (status.reason == INSUFFICIENT and self.may_refuse(status.node))
            for status in self.rejected
        )

    def verdicts(self, explained: int) -> tuple[NodeVerdict, ...]:
        """The answers for a record, candidates first; only the first ``explained`` have an explanation."""
        answers = (*self.candidates, *self.rejected)
        return tuple(
            NodeVerdict(
                status.node,
                admitted=status.admits,
                reason="" if status.admits else status.reason,
                explanation=self.explanation(status) if status.admits or position < explained else "",
            )
            for position, status in enumerate(answers)
        )

    def counts(self) -> dict[str, int]:
        """The number of nodes by answer."""
        rejected = Counter(status.reason for status in self.rejected)
        return ({ADMITS: len(self.candidates)} if self.candidates else {}) | dict(rejected.most_common())

    def summary(self, other: str = "other ") -> str:
        """Which nodes admit the pod and why the others do not, in one line; ``other`` is empty where none refused."""
        rejected = Counter(_shortfall(status) for status in self.rejected if status.summary)
        asked = len(self.candidates) + rejected.total()
        reasons = "; ".join(
            f"{count} of {asked} node{'s' if asked > 1 else ''} {'does' if count == 1 else 'do'} not {shortfall}"
            for shortfall, count in rejected.most_common()
        )
        if not self.candidates:
            return f"no {other}node admits it now: {reasons}" if reasons else f"there is no {other}node"
        named = [candidate.place for candidate in self.candidates[:3]]
        more = f" and {len(self.candidates) - 3} more" if len(self.candidates) > 3 else ""
        return f"{', '.join(named)}{more} would admit it" + (f"; {reasons}" if reasons else "")


def _shortfall(status: NodeStatus) -> str:
    """What a node that rejects the pod does not do, for people: ``fit its cpu on NUMA nodes``."""
    if status.reason in _SHORTFALLS:
        return _SHORTFALLS[status.reason]
    resources = status.summary.replace(",", " and ")
    if status.reason == INSUFFICIENT:
        return "have enough left in total" if resources == INSUFFICIENT else f"have enough {resources} left in total"
    if status.is_refusal:
        return f"fit its {resources}" + (" on NUMA nodes" if status.reason == TOPOLOGY_AFFINITY_ERROR else "")
    return f"suit it ({status.summary})"


def diagnose(  # noqa: PLR0913  what an answer depends on
    snapshot: Snapshot,
    pod: Pod,
    placement: Placement,
    rejected_by: RejectedBy | None = None,
    excluded_nodes: ExcludedNodes = NO_EXCLUDED_NODES,
    *,
    surveys: Surveys | None = None,
    effort: Effort = UNLIMITED,
) -> Diagnosis:
    """Ask every node that is not excluded, or answer by ``surveys``; without these nothing is remembered.

    The node that refused the pod is asked again only once it has published since: until then its state is the one that
    misled the scheduler. Where it is not known which came first, that node is the last candidate. Raises Overspent, and
    TurnOver where the answers known so far are in ``surveys`` for the next turn.
    """
    question = question_about(pod, placement, effort)
    candidates, rejected = (surveys or Surveys()).answers_to(snapshot, question)
    own = _own_answers(snapshot, rejected_by, excluded_nodes)
    if own:
        others = [status for status in (*candidates, *rejected) if status.node not in own]
        candidates, rejected = in_order([*others, *own.values()])
    if rejected_by:
        candidates = tuple(sorted(candidates, key=lambda status: status.node == rejected_by.node))

    def explain_refusal(name: str) -> str:
        state = snapshot.publications[name].state_with_assumed(effort)
        verdict, after = admit(state, pod, effort)
        if verdict.admitted and not is_aligned(after, pod):
            return f"{name} admits {pod.name}, but not on one NUMA node: {why_not_aligned(after, pod)}"
        return explain(verdict, state, pod, effort)

    def may_refuse(name: str) -> bool:
        publication = snapshot.publications.get(name)
        if publication is None or publication.problem:
            return False  # as of a node that is not full: nobody knows what its kubelet would say
        is_full_by_others = not first_exceeded(snapshot.nodes[name], question.requests, ONE_POD)
        return is_full_by_others and may_allocate(publication.state, pod)

    return Diagnosis(candidates, rejected, tuple(question.replayed), explain_refusal, may_refuse)


def _own_answers(
    snapshot: Snapshot, rejected_by: RejectedBy | None, excluded_nodes: ExcludedNodes
) -> dict[str, NodeStatus]:
    """The answers of nodes that are not asked for this pod, by node."""
    own = {}
    if rejected_by and (refused := just_refused(snapshot.publications.get(rejected_by.node), rejected_by)):
        own[refused.node] = refused
    return {name: status for name, status in (own | dict(excluded_nodes)).items() if name in snapshot.nodes}


def any_node_admits(
    snapshot: Snapshot, names: Iterable[str], pod: Pod, placement: Placement, effort: Effort = UNLIMITED
) -> bool:
    """Whether one of these nodes admits the pod by replay, or might because no agent publishes its state.

    Raises Overspent.
    """
    question = question_about(pod, placement, effort)
    answers = (status_of(snapshot, snapshot.nodes[name], question) for name in names if name in snapshot.nodes)
    return any(status.admits or (not pod.single_numa_node and _has_no_agent(snapshot, status)) for status in answers)


def hostnames_without_agent(snapshot: Snapshot, pod: Pod, diagnosis: Diagnosis) -> tuple[str, ...]:
    """The hostname labels of nodes without an agent: they might admit the pod, and come after all that do.

    A node whose agent is silent, not Ready or not believed is none of them: its pods would be sent into the unknown.
    There is none for a pod that asks for alignment, which such a node does not promise.
    """
    if pod.single_numa_node:
        return ()
    names = [status.node for status in diagnosis.rejected if _has_no_agent(snapshot, status)]
    return tuple(snapshot.nodes[name].labels[HOSTNAME_LABEL] for name in names if name in snapshot.nodes)


def refusing_hostnames(snapshot: Snapshot, diagnosis: Diagnosis) -> list[str]:
    """The hostname labels of the nodes whose kubelets would refuse the pod, or might, if a scheduler bound it there."""
    names = [
        status.node
        for status in diagnosis.rejected
        if status.is_refusal or status.reason in _DISTRUSTED or status.reason == NOT_ALIGNED
    ]
    labels = (snapshot.nodes[name].labels for name in names if name in snapshot.nodes)
    return [hostname for of_node in labels if (hostname := of_node.get(HOSTNAME_LABEL, ""))]


def _has_no_agent(snapshot: Snapshot, status: NodeStatus) -> bool:
    return status.reason == UNKNOWN and not snapshot.has_agent(status.node)
