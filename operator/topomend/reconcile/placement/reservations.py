"""Nodes reserved for pods: a pod is assumed on the nodes that are chosen for it, or the choice is repeated.

Nodes are chosen on a snapshot, without the store's lock; when the pod is assumed, the store compares the chosen nodes
with those of the snapshot. They are chosen for one pod at a time, as in kube-scheduler's scheduling cycles: two pods
of a kind would choose the same node, and one choice would be in vain. A pod goes to a node whose totals are known to
suffice. Owns these steps, and of which nodes totals are learnt. Leaves which node is best to ``decide`` and how long an
assumption lasts to ``cache``.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from random import Random
from typing import TypeVar, cast

from topomend.cache.changes import PodForgotten
from topomend.cache.entries import Refusal
from topomend.cache.snapshot import Snapshot
from topomend.decide import plan as plans
from topomend.decide.diagnosis.feasibility import Diagnosis, ExcludedNodes, diagnose
from topomend.decide.diagnosis.filters import lacking_in_total
from topomend.decide.eligibility import Limits
from topomend.decide.gang import Placed, Unplaced
from topomend.decide.queue.order import Reservation
from topomend.model.pods.pod import Pod, requests_of
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.metrics.pods import Metrics
from topomend.reconcile.placement.move_under_way import MoveUnderWay
from topomend.reconcile.placement.node_backoff import NodeBackoff
from topomend.reconcile.placement.node_pods import NodePods
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import Result
from topomend.reconcile.store import Store
from topomend.replay.effort import UNLIMITED, Effort, TurnOver

MAX_TRIES, MOST_TRIES = 3, 20
"""How often a decision is made for nodes of which one may change meanwhile, and how often where more than FEW_CHANGED
of them do. The pod is then ungated for those that have not changed: of thousands one changes all the time."""

FEW_CHANGED = 0.01
"""The share of the nodes without which a pod may be ungated: one of four may be the only one that suits the pod."""

MAX_OTHERS, MAX_LISTS = 8, 50
"""How many nodes of unknown totals are listed beside one that turns out to be full, and about how many in one turn."""

GangDecision = tuple[Placed, ...] | Unplaced

_Decision = TypeVar("_Decision", bound=plans.Decision)


class Reservations:
    """Assumes pods on nodes and forgets them again. May be used by several threads, a pod each.

    ``random`` picks nodes of which nothing is known. ``move``: the move under way, whose next pod is kept from some
    nodes and has its place held.
    """

    def __init__(  # noqa: PLR0913  what it decides on, and what a test replaces
        self,
        store: Store,
        node_pods: NodePods,
        node_backoff: NodeBackoff,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
        move: MoveUnderWay | None = None,
    ) -> None:
        self._move = move or MoveUnderWay()
        self._store, self._node_pods, self._node_backoff = store, node_pods, node_backoff
        self._metrics, self._clock, self._random = metrics, clock, random or Random()  # noqa: S311  no secret
        self._cycle = threading.Lock()

    def plan(
        self, refusal: Refusal, limits: Limits, held: Sequence[Reservation] = (), effort: Effort = UNLIMITED
    ) -> plans.Plan:
        """The plan for a refused pod. Where it is a relaunch, the replacement is assumed on its nodes.

        ``held`` are places that pods left for others by preemption. The replacement has no uid yet: it does not exist.
        Raises APIError.
        """
        replacement = replace(refusal.pod.pod, uid="")
        surveys = self._store.surveys
        return self._reserve(
            refusal.pod,
            replacement,
            lambda snapshot, excluded: plans.plan(
                snapshot, refusal, limits, excluded, held, surveys=surveys, effort=effort
            ),
            effort,
        )

    def choose(
        self, pod: WatchedPod, decide: Callable[[Snapshot, ExcludedNodes], _Decision], effort: Effort = UNLIMITED
    ) -> _Decision:
        """What ``decide`` chooses for ``pod``, which is assumed on the nodes where there are any.

        ``decide`` sees a snapshot without the pod's former assumption. Raises APIError, or TurnOver where the totals of
        many nodes are not known: what was learnt of them is for the next turn.
        """
        return self._reserve(pod, pod.pod, decide, effort)

    def choose_for_all(
        self,
        pods: Sequence[WatchedPod],
        decide: Callable[[Snapshot, Mapping[str, ExcludedNodes]], GangDecision],
        effort: Effort = UNLIMITED,
    ) -> GangDecision | None:
        """What ``decide`` chooses for all ``pods`` of a group, which are assumed on their nodes where all have one.

        ``decide`` gets the nodes that are excluded by the pod's uid. None where the chosen nodes change all the time,
        or the totals of many are not known yet. Other decisions go on meanwhile: one for a large group takes long.
        Raises APIError.
        """
        excluded = {pod.uid: self._kept_from(pod) for pod in pods}
        tries = lists = 0
        while tries < MAX_TRIES and lists < MAX_LISTS:
            snapshot = self._store.without(*(pod.pod for pod in pods))
            decision = decide(snapshot, excluded)
            if isinstance(decision, Unplaced):
                self._node_pods.doubt(_full(decision.wait))
                return decision
            if unknown := {placed.node: placed.pod for placed in decision if self._is_unknown(placed.node)}:
                lists += sum(self._learn(pod, name, effort) for name, pod in unknown.items())
                continue
            assumed = [(placed.pod.pod, (placed.node,)) for placed in decision if placed.node]
            if not self._store.assume_all(assumed, snapshot, self._clock()):
                self._node_pods.doubt(placed.node for placed in decision if placed.node)
                return decision
            tries += 1
        return None

    def forget(self, pod: PodID | WatchedPod) -> None:
        """Take the assumption of the pod back, or that of its replacement while this does not exist."""
        self._store.apply(PodForgotten(pod.namespace, pod.name, pod.uid))

    @contextmanager
    def forgotten_on_error(self, pod: PodID | WatchedPod) -> Iterator[None]:
        """Takes the pod's assumption back, as ``forget``, where the work in it fails; the error passes through."""
        try:
            yield
        except BaseException:
            self.forget(pod)
            raise

    def backing_off(self, pod: WatchedPod) -> Result | None:
        """When the first node that backs off from the pod's workload is a candidate again; None where none does."""
        remaining = self._node_backoff.remaining(self._store.snapshot, pod)
        return None if remaining is None else Result(remaining)

    def _reserve(
        self,
        pod: WatchedPod,
        assumed: Pod,
        decide: Callable[[Snapshot, ExcludedNodes], _Decision],
        effort: Effort,
    ) -> _Decision:
        """Decide and assume, and decide again once more is known of the totals of nodes."""
        excluded, lists, looked_better = self._kept_from(pod), 0, False
        stand_ins = [stand_in] if (stand_in := self._move.stand_in(pod)) else []
        with self.forgotten_on_error(pod):
            while lists < MAX_LISTS:
                decision = self._timed([assumed, *stand_ins], lambda snapshot: decide(snapshot, excluded))
                if isinstance(decision, plans.Wait):
                    self._node_pods.doubt(_full(decision))
                if not isinstance(decision, plans.RelaunchOn):
                    return decision
                if self._is_unknown(decision.nodes[0]):
                    self.forget(pod)  # else it would count beside itself
                    lists += self._learn(pod, decision.nodes[0], effort, decision.diagnosis)
                elif not looked_better and (better := self._better_unknown(decision)):
                    looked_better = True
                    self._node_pods.list(better)
                else:
                    self._node_pods.doubt(decision.nodes[:1])
                    return decision
            raise TurnOver

    def _timed(self, assumed: Sequence[Pod], decide: Callable[[Snapshot], _Decision]) -> _Decision:
        with self._cycle:
            began = self._clock()
            decision = self._decide(assumed, decide)
            seconds = self._clock() - began
        if isinstance(decision, plans.RelaunchOn | plans.Wait):
            self._metrics.diagnosed(decision.diagnosis, seconds)
        return decision

    def excluded(self, pod: WatchedPod) -> ExcludedNodes:
        """The nodes that back off from the pod's workload."""
        return self._node_backoff.excluded_nodes(self._store.snapshot, pod)

    def _kept_from(self, pod: WatchedPod) -> ExcludedNodes:
        return {**self.excluded(pod), **self._move.excluded(pod)}

    def _is_unknown(self, name: str) -> bool:
        """Whether nobody knows what the node's pods take of its totals."""
        node = self._store.snapshot.nodes.get(name)
        return node is not None and node.used is None

    def _better_unknown(self, decision: plans.RelaunchOn) -> str:
        """A node that would be better than the chosen one and was passed over, if it may be listed now; else empty."""
        best = decision.diagnosis.candidates[0].node
        is_passed_over = best != decision.nodes[0] and self._is_unknown(best)
        return best if is_passed_over and self._node_pods.may_list() else ""

    def _learn(self, pod: WatchedPod, best: str, effort: Effort, diagnosis: Diagnosis | None = None) -> int:
        """Have the totals of ``best`` known and, where it is full, those of others at random until one has room.

        The best nodes are the fullest: of 300 full ones among 400 they would be the first 300, and of random ones every
        fourth has room. Returns how many were listed. Raises APIError, and TurnOver where there is no ``diagnosis``,
        but not before it has learnt of one node: each turn goes on from what the one before has learnt.
        """
        lists = 0
        for name in chain([best], self._others_unknown(pod, diagnosis, effort)):
            self._node_pods.list(name)
            lists += 1
            node = self._store.snapshot.nodes.get(name)
            if node and not lacking_in_total(node, requests_of(pod.pod)):
                break
        return lists

    def _others_unknown(self, pod: WatchedPod, diagnosis: Diagnosis | None, effort: Effort) -> Iterator[str]:
        """Some nodes at random that admit the pod as far as is known; none that another thread lists just now."""
        snapshot = self._store.snapshot
        if diagnosis is None:
            diagnosis = diagnose(snapshot, pod.pod, pod.placement, surveys=self._store.surveys, effort=effort)
        unknown = [status.node for status in diagnosis.candidates if self._is_unknown(status.node)]
        idle = [name for name in unknown if name not in snapshot.totals or not snapshot.totals[name].lists]
        yield from self._random.sample(idle, min(len(idle), MAX_OTHERS))

    def _decide(self, pods: Sequence[Pod], decide: Callable[[Snapshot], _Decision]) -> _Decision:
        """Decide and assume; decide again where chosen nodes have changed meanwhile, in the end without these.

        The first pod is assumed; the others have held its place.
        """
        tries = 0
        while True:
            snapshot = self._store.without(*pods)
            decision, tries = decide(snapshot), tries + 1
            changed = self._assume(pods, decision, snapshot)
            if isinstance(decision, plans.RelaunchOn) and _can_do_without(changed, decision.nodes, tries):
                decision = cast("_Decision", decision.without(changed))
                changed = self._assume(pods, decision, snapshot)
            if not changed:
                return decision

    def _assume(self, pods: Sequence[Pod], decision: plans.Decision, decided_on: Snapshot) -> Sequence[str]:
        """Assume the pod where it is to go. Returns the nodes that have changed since, and assumes nothing then."""
        nodes = decision.nodes if isinstance(decision, plans.RelaunchOn) else ()
        released = [(stand_in, ()) for stand_in in pods[1:] if nodes]
        return self._store.assume_all([(pods[0], nodes), *released], decided_on, self._clock())


def _full(wait: plans.Wait) -> Iterator[str]:
    """The nodes whose pods leave too little in total. They may have room again: not every end is seen."""
    return (status.node for status in wait.diagnosis.rejected if status.is_full)


def _can_do_without(changed: Sequence[str], nodes: Sequence[str], tries: int) -> bool:
    """Whether to ungate the pod for those of ``nodes`` that have not changed, after so many decisions."""
    if len(changed) > FEW_CHANGED * len(nodes):
        return tries >= MOST_TRIES and len(changed) < len(nodes)
    return bool(changed) and tries >= MAX_TRIES
