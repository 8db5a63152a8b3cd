"""Decisions taken on the one view, and the places that they take on nodes, so that no two pods are sent to one hole."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from topomend.cache.changes import Event, PodForgotten, Released, apply
from topomend.cache.snapshot import Refusal, Snapshot
from topomend.decide import plan as plans
from topomend.decide.eligibility import Limits
from topomend.decide.feasibility import ExcludedNodes, full
from topomend.decide.filters import lacking_total
from topomend.model.cluster import Node, WatchedPod
from topomend.model.pod import Pod
from topomend.reconcile.metrics import Metrics
from topomend.reconcile.node_backoff import NodeBackoff
from topomend.reconcile.node_pods import NodePods
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import Result
from topomend.reconcile.store import Store

_Decided = TypeVar("_Decided", bound=plans.Plan | plans.Yield)
_Chosen = TypeVar("_Chosen", bound=plans.RelaunchOn | plans.Wait | plans.Yield)


class Reservations:
    """Takes places and gives them back. May be used by several threads, a pod each."""

    def __init__(
        self,
        store: Store,
        pods: NodePods,
        node_backoff: NodeBackoff,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._pods, self._node_backoff = store, pods, node_backoff
        self._metrics, self._clock = metrics, clock

    def plan(self, refusal: Refusal, limits: Limits) -> plans.Plan:
        """What is to be done about a refused pod; its replacement's place is taken where it is to relaunch.

        Raises APIError.
        """

        def decision(snapshot: Snapshot, excluded_nodes: ExcludedNodes) -> tuple[plans.Plan, tuple[Event, ...]]:
            forgotten = PodForgotten(refusal.pod.namespace, refusal.pod.name)
            plan = plans.plan(apply(snapshot, forgotten), refusal, limits, excluded_nodes)
            if not isinstance(plan, plans.RelaunchOn):
                return plan, (forgotten,)
            successor = replace(refusal.pod.pod, uid="")
            return plan, (forgotten, Released(successor, plan.nodes, self._clock()))

        return self._decide(refusal.pod, decision)

    def take(self, pod: WatchedPod, choose: Callable[[Snapshot, ExcludedNodes], _Chosen]) -> _Chosen:
        """The place that ``choose`` finds for ``pod``; the one that it had until now is free for the choice.

        Raises APIError.
        """

        def decision(snapshot: Snapshot, excluded_nodes: ExcludedNodes) -> tuple[_Chosen, tuple[Event, ...]]:
            forgotten = PodForgotten(pod.namespace, pod.name)
            choice = choose(apply(snapshot, forgotten), excluded_nodes)
            if not isinstance(choice, plans.RelaunchOn):
                return choice, (forgotten,)
            return choice, (forgotten, Released(pod.pod, choice.nodes, self._clock()))

        choice = self._decide(pod, decision)
        if isinstance(choice, plans.RelaunchOn):
            self._pods.ungate(pod.pod, choice.nodes)
        return choice

    def forget(self, pod: PodID | WatchedPod) -> None:
        """Give the place of this name back."""
        self._store.apply(PodForgotten(pod.namespace, pod.name))

    def backing_off(self, pod: WatchedPod) -> Result | None:
        """When a node that refused the pod's like is a candidate again; None where there is none."""
        left = self._node_backoff.left(self._store.snapshot, pod)
        return None if left is None else Result(left)

    def _decide(
        self, pod: WatchedPod, decision: Callable[[Snapshot, ExcludedNodes], tuple[_Decided, tuple[Event, ...]]]
    ) -> _Decided:
        """Decide, and decide again without the nodes whose totals other pods have used up."""
        excluded_nodes = dict(self._node_backoff.excluded_nodes(self._store.snapshot, pod))
        while True:
            begun = self._clock()
            plan = self._store.decide(lambda snapshot: decision(snapshot, excluded_nodes))
            if isinstance(plan, plans.RelaunchOn | plans.Wait):
                self._metrics.diagnosed(plan.diagnosis, self._clock() - begun)
            lacking = self._insufficient_on(plan.nodes[0], pod) if isinstance(plan, plans.RelaunchOn) else ""
            if not isinstance(plan, plans.RelaunchOn) or not lacking:
                return plan
            excluded_nodes[plan.nodes[0]] = full(plan.nodes[0], lacking)

    def _insufficient_on(self, name: str, pod: WatchedPod) -> str:
        """The resource of which the node has too little left in total: no view holds the pods that run there.

        It is asked of the best node alone, for that takes long; the scheduler leaves out those named beside it that are
        full, which others may become in the meantime. That there is too little is not said of what was true a moment
        ago: a pod may have ended since.
        """
        node = self._store.snapshot.nodes.get(name)
        if node is None:
            return ""
        known = self._pods.on(name)
        if known is not None and not _lacking(node, pod, known):
            return ""
        return _lacking(node, pod, self._pods.ask(name))


def _lacking(node: Node, pod: WatchedPod, there: Mapping[str, Pod]) -> str:
    return lacking_total(node, pod.pod, (each for uid, each in there.items() if uid != pod.uid))
