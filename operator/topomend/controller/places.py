"""Decisions taken on the one view, and the places that they take on nodes, so that no two pods are sent to one hole."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from topomend.controller.again import Again
from topomend.controller.metrics import Metrics
from topomend.controller.pod_id import PodID
from topomend.controller.setbacks import Setbacks
from topomend.controller.store import Store
from topomend.decide import plan as plans
from topomend.decide.candidates import LeftOut, full
from topomend.decide.eligibility import Limits
from topomend.decide.scheduling import lacking_total
from topomend.kube.node_pods import NodePods
from topomend.model.cluster import Node, WatchedPod
from topomend.model.pod import Pod
from topomend.watch.events import Event, Released, Withdrawn, fold
from topomend.watch.view import ClusterView, Refusal

_Decided = TypeVar("_Decided", bound=plans.Plan | plans.GiveWay)
_Chosen = TypeVar("_Chosen", bound=plans.RelaunchOn | plans.Wait | plans.GiveWay)


class Places:
    """Takes places and gives them back. May be used by several threads, a pod each."""

    def __init__(
        self,
        store: Store,
        pods: NodePods,
        setbacks: Setbacks,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._pods, self._setbacks = store, pods, setbacks
        self._metrics, self._clock = metrics, clock

    def plan(self, refusal: Refusal, limits: Limits) -> plans.Plan:
        """What is to be done about a refused pod; its replacement's place is taken where it is to relaunch.

        Raises APIError.
        """

        def decision(view: ClusterView, left_out: LeftOut) -> tuple[plans.Plan, tuple[Event, ...]]:
            withdrawn = Withdrawn(refusal.pod.namespace, refusal.pod.name)
            plan = plans.plan(fold(view, withdrawn), refusal, limits, left_out)
            if not isinstance(plan, plans.RelaunchOn):
                return plan, (withdrawn,)
            successor = replace(refusal.pod.pod, uid="")
            return plan, (withdrawn, Released(successor, plan.nodes, self._clock()))

        return self._decide(refusal.pod, decision)

    def take(self, pod: WatchedPod, choose: Callable[[ClusterView, LeftOut], _Chosen]) -> _Chosen:
        """The place that ``choose`` finds for ``pod``; the one that it had until now is free for the choice.

        Raises APIError.
        """

        def decision(view: ClusterView, left_out: LeftOut) -> tuple[_Chosen, tuple[Event, ...]]:
            withdrawn = Withdrawn(pod.namespace, pod.name)
            choice = choose(fold(view, withdrawn), left_out)
            if not isinstance(choice, plans.RelaunchOn):
                return choice, (withdrawn,)
            return choice, (withdrawn, Released(pod.pod, choice.nodes, self._clock()))

        choice = self._decide(pod, decision)
        if isinstance(choice, plans.RelaunchOn):
            self._pods.let_go(pod.pod, choice.nodes)
        return choice

    def withdraw(self, pod: PodID | WatchedPod) -> None:
        """Give the place of this name back."""
        self._store.fold(Withdrawn(pod.namespace, pod.name))

    def held_back(self, pod: WatchedPod) -> Again | None:
        """When a node that refused the pod's like is a candidate again; None where there is none."""
        left = self._setbacks.left(self._store.view, pod)
        return None if left is None else Again(left)

    def _decide(
        self, pod: WatchedPod, decision: Callable[[ClusterView, LeftOut], tuple[_Decided, tuple[Event, ...]]]
    ) -> _Decided:
        """Decide, and decide again without the nodes whose totals other pods have used up."""
        left_out = dict(self._setbacks.left_out(self._store.view, pod))
        while True:
            begun = self._clock()
            plan = self._store.decide(lambda view: decision(view, left_out))
            if isinstance(plan, plans.RelaunchOn | plans.Wait):
                self._metrics.surveyed(plan.survey, self._clock() - begun)
            lacking = self._lacking_on(plan.nodes[0], pod) if isinstance(plan, plans.RelaunchOn) else ""
            if not isinstance(plan, plans.RelaunchOn) or not lacking:
                return plan
            left_out[plan.nodes[0]] = full(plan.nodes[0], lacking)

    def _lacking_on(self, name: str, pod: WatchedPod) -> str:
        """The resource of which the node has too little left in total: no view holds the pods that run there.

        It is asked of the best node alone, for that takes long; the scheduler leaves out those named beside it that are
        full, which others may become in the meantime. That there is too little is not said of what was true a moment
        ago: a pod may have ended since.
        """
        node = self._store.view.nodes.get(name)
        if node is None:
            return ""
        known = self._pods.on(name)
        if known is not None and not _lacking(node, pod, known):
            return ""
        return _lacking(node, pod, self._pods.ask(name))


def _lacking(node: Node, pod: WatchedPod, there: Mapping[str, Pod]) -> str:
    return lacking_total(node, pod.pod, (each for uid, each in there.items() if uid != pod.uid))
