"""Every node's answer for one kind of pods, in order. Only the nodes that have changed are asked for the next pod.

Of thousands of nodes few change between two pods. kube-scheduler brings its snapshot up to date by node, too
(internal/cache: UpdateSnapshot). Owns what tells that a node has changed. Leaves to its caller how long answers are
remembered, one node's answer to ``node_status``, and what differs between the pods of a kind to ``feasibility``.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any
from weakref import ref

from topomend.base.bounded_dict import BoundedDict
from topomend.cache.entries import ReplayMismatches
from topomend.cache.snapshot import Publication, Snapshot, replaced
from topomend.decide.diagnosis.node_status import NodeStatus, Question, status_of
from topomend.model.nodes.node import Node
from topomend.replay.fast_path.admission import PodShape

MAX_SURVEYS = 16
"""For how many kinds of pods a survey is kept, the last ones asked about. One of 5,000 nodes takes 1.5 MiB."""


def in_order(statuses: Sequence[NodeStatus]) -> tuple[tuple[NodeStatus, ...], tuple[NodeStatus, ...]]:
    """Those of nodes that admit the pod, best first, and the others, kubelets' refusals first."""
    candidates = sorted((status for status in statuses if status.admits), key=_best_first)
    return tuple(candidates), tuple(sorted((status for status in statuses if not status.admits), key=_refusals_first))


class Surveys:
    """The surveys of the last ``kinds`` of pods asked about. Whoever owns them decides how long answers are remembered.

    Several threads may use them: a survey that one of them has is no other's meanwhile.
    """

    def __init__(self, kinds: int = MAX_SURVEYS) -> None:
        self._surveys: BoundedDict[PodShape, _Survey] = BoundedDict(kinds)

    def answers_to(
        self, snapshot: Snapshot, question: Question
    ) -> tuple[tuple[NodeStatus, ...], tuple[NodeStatus, ...]]:
        """The answers of all nodes, as ``in_order``. Raises Overspent, TurnOver."""
        survey = self._surveys.pop(question.kind, None) or _Survey()
        try:
            survey.update(snapshot, question)
            return tuple(survey.candidates), tuple(survey.rejected)
        finally:
            self._surveys[question.kind] = survey


class _Survey:
    """The answers of the nodes of the snapshot that was asked last. For one thread at a time.

    It keeps no publication alive: it may be old, and states are large.
    """

    def __init__(self) -> None:
        self.candidates: list[NodeStatus] = []
        self.rejected: list[NodeStatus] = []
        self._answers: dict[str, NodeStatus] = {}
        self._publications: dict[str, ref[Publication]] = {}
        self._due: set[str] = set()
        self._nodes: Mapping[str, Node] = {}
        self._unreadable: Mapping[str, str] = {}
        self._mismatches: Mapping[str, ReplayMismatches] = {}

    def update(self, snapshot: Snapshot, question: Question) -> None:
        """Ask the nodes that are not as they were asked, and those that may hold a pod of this name.

        That may be the pod itself, and then the answer is no other pod's. Raises Overspent, or TurnOver after at least
        one answer: the others are asked later.
        """
        name_of_pod, publications = question.fit.pod.name, snapshot.publications
        self._due |= self._changed(snapshot, name_of_pod)
        self._nodes, self._unreadable = snapshot.nodes, snapshot.unreadable
        self._mismatches = snapshot.mismatches
        for number, name in enumerate(sorted(self._due)):
            if number:
                question.fit.effort.end_turn()
            node, publication = snapshot.nodes.get(name), publications.get(name)
            self._replace(name, status_of(snapshot, node, question) if node else None)
            if publication is None:
                self._publications.pop(name, None)
            else:
                self._publications[name] = ref(publication)
            if publication is None or name_of_pod not in publication.pod_names:
                self._due.discard(name)

    def _changed(self, snapshot: Snapshot, name_of_pod: str) -> set[str]:
        """The names of these nodes. Those that came or went are among them."""
        asked, publications = self._publications, snapshot.publications
        changed = {
            name
            for name, publication in publications.items()
            if asked.get(name, _none)() is not publication or name_of_pod in publication.pod_names
        }
        changed.update([name for name in asked if name not in publications])
        changed |= replaced(self._nodes, snapshot.nodes) | replaced(self._unreadable, snapshot.unreadable)
        return changed | replaced(self._mismatches, snapshot.mismatches)

    def _replace(self, name: str, status: NodeStatus | None) -> None:
        """Replace the answer of the node, where it has one, by ``status``, where it is there."""
        old = self._answers.pop(name, None)
        if old is not None:
            statuses, key = self._where(old)
            del statuses[bisect_left(statuses, key(old), key=key)]
        if status is not None:
            statuses, key = self._where(status)
            insort(statuses, status, key=key)
            self._answers[name] = status

    def _where(self, status: NodeStatus) -> tuple[list[NodeStatus], Callable[[NodeStatus], Any]]:
        """The list that the answer belongs to, and its sort key."""
        return (self.candidates, _best_first) if status.admits else (self.rejected, _refusals_first)


def _none() -> None:
    """Stands for the reference to the publication of a node that was not asked by one."""


_best_first = attrgetter("score")


def _refusals_first(status: NodeStatus) -> tuple[bool, str]:
    """Kubelets' refusals before rejections by the scheduler's filters."""
    return not status.is_refusal, status.node
