"""Nodes reserved for pods: a pod is assumed on the nodes that are chosen for it, or the choice is repeated.

Nodes are chosen on a snapshot, without the store's lock; when the pod is assumed, the store compares the chosen nodes
with those of the snapshot. They are chosen for one pod at a time, as in kube-scheduler's scheduling cycles: two pods
of a kind would choose the same node, and one choice would be in vain. Owns these steps, and that they are repeated
without a node whose totals other pods have used up. Leaves which node is best to ``decide`` and how long an assumption
lasts to ``cache``.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar, cast

from topomend.cache.changes import PodForgotten
from topomend.cache.snapshot import Refusal, Snapshot
from topomend.decide import plan as plans
from topomend.decide.eligibility import Limits
from topomend.decide.feasibility import ExcludedNodes
from topomend.decide.filters import insufficient_resource
from topomend.decide.gang import Placed, Unplaced
from topomend.decide.node_status import NodeStatus, insufficient
from topomend.model.cluster import Node, WatchedPod
from topomend.model.pod import Pod, requests_of
from topomend.reconcile.metrics import Metrics
from topomend.reconcile.node_backoff import NodeBackoff
from topomend.reconcile.node_pods import NodePods, Requests
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import Result
from topomend.reconcile.store import Store

MAX_TRIES, MOST_TRIES = 3, 20
"""How often a decision is made for nodes of which one may change meanwhile, and how often where more than FEW_CHANGED
of them do. The pod is then ungated for those that have not changed: of thousands one changes all the time."""

FEW_CHANGED = 0.01
"""The share of the nodes without which a pod may be ungated: one of four may be the only one that suits the pod."""

GangDecision = tuple[Placed, ...] | Unplaced

NO_SIBLINGS: Mapping[str, Requests] = MappingProxyType({})

_Decision = TypeVar("_Decision", bound=plans.Decision)


class Reservations:
    """Assumes pods on nodes and forgets them again. May be used by several threads, a pod each."""

    def __init__(
        self,
        store: Store,
        node_pods: NodePods,
        node_backoff: NodeBackoff,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._node_pods, self._node_backoff = store, node_pods, node_backoff
        self._metrics, self._clock = metrics, clock
        self._cycle = threading.Lock()

    def plan(self, refusal: Refusal, limits: Limits) -> plans.Plan:
        """The plan for a refused pod. Where it is a relaunch, the replacement is assumed on its nodes.

        The replacement has no uid yet: it does not exist. Raises APIError.
        """
        replacement = replace(refusal.pod.pod, uid="")
        return self._reserve(
            refusal.pod, replacement, lambda snapshot, excluded: plans.plan(snapshot, refusal, limits, excluded)
        )

    def choose(self, pod: WatchedPod, decide: Callable[[Snapshot, ExcludedNodes], _Decision]) -> _Decision:
        """What ``decide`` chooses for ``pod``, which is assumed on the nodes where there are any.

        ``decide`` sees a snapshot without the pod's former assumption. Raises APIError.
        """
        decision = self._reserve(pod, pod.pod, decide)
        if isinstance(decision, plans.RelaunchOn):
            self._node_pods.assume(pod.pod, decision.nodes)
        return decision

    def choose_for_all(
        self, pods: Sequence[WatchedPod], decide: Callable[[Snapshot, Mapping[str, ExcludedNodes]], GangDecision]
    ) -> GangDecision | None:
        """What ``decide`` chooses for all ``pods`` of a group, which are assumed on their nodes where all have one.

        ``decide`` gets the nodes that are excluded by the pod's uid. None where the chosen nodes change all the time.
        Other decisions go on meanwhile: one for a large group takes long. Raises APIError.
        """
        excluded = {pod.uid: dict(self._node_backoff.excluded_nodes(self._store.snapshot, pod)) for pod in pods}
        tries = 0
        while tries < MAX_TRIES:
            snapshot = self._store.without(*(pod.pod for pod in pods))
            decision = decide(snapshot, excluded)
            if isinstance(decision, Unplaced):
                return decision
            if self._exclude_insufficient(decision, excluded):
                continue
            assumed = [(placed.pod.pod, (placed.node,)) for placed in decision if placed.node]
            if not self._store.assume_all(assumed, snapshot, self._clock()):
                for admitted_as, nodes in assumed:
                    self._node_pods.assume(admitted_as, nodes)
                return decision
            tries += 1
        return None

    def _exclude_insufficient(self, gang: Sequence[Placed], excluded: Mapping[str, dict[str, NodeStatus]]) -> bool:
        """Exclude from each pod the node whose totals do not suffice for it beside those before it.

        Returns whether there is any. The pods after one that does not fit are judged as if it were not there: it goes
        elsewhere.
        """
        beside: dict[str, dict[str, Requests]] = {}
        are_insufficient = False
        for placed in gang:
            siblings = beside.setdefault(placed.node, {})
            resource = self._insufficient_on(placed.node, placed.pod, siblings)
            if resource:
                excluded[placed.pod.uid][placed.node] = insufficient(placed.node, resource)
                are_insufficient = True
            else:
                siblings[placed.pod.uid] = requests_of(placed.pod.pod)
        return are_insufficient

    def forget(self, pod: PodID | WatchedPod) -> None:
        """Take the assumption of the pod of this name back."""
        self._store.apply(PodForgotten(pod.namespace, pod.name))

    def backing_off(self, pod: WatchedPod) -> Result | None:
        """When the first node that backs off from the pod's workload is a candidate again; None where none does."""
        remaining = self._node_backoff.remaining(self._store.snapshot, pod)
        return None if remaining is None else Result(remaining)

    def _reserve(
        self, pod: WatchedPod, assumed: Pod, decide: Callable[[Snapshot, ExcludedNodes], _Decision]
    ) -> _Decision:
        """Decide and assume; decide again without the best node where other pods have used up its totals."""
        excluded = dict(self._node_backoff.excluded_nodes(self._store.snapshot, pod))
        while True:
            with self._cycle:
                began = self._clock()
                decision = self._decide(assumed, lambda snapshot: decide(snapshot, excluded))
                seconds = self._clock() - began
            if isinstance(decision, plans.RelaunchOn | plans.Wait):
                self._metrics.diagnosed(decision.diagnosis, seconds)
            if not isinstance(decision, plans.RelaunchOn):
                return decision
            best = decision.nodes[0]
            resource = self._insufficient_on(best, pod)
            if not resource:
                return decision
            excluded[best] = insufficient(best, resource)

    def _decide(self, pod: Pod, decide: Callable[[Snapshot], _Decision]) -> _Decision:
        """Decide and assume; decide again where chosen nodes have changed meanwhile, in the end without these."""
        tries = 0
        while True:
            snapshot = self._store.without(pod)
            decision, tries = decide(snapshot), tries + 1
            changed = self._assume(pod, decision, snapshot)
            if isinstance(decision, plans.RelaunchOn) and _can_do_without(changed, decision.nodes, tries):
                decision = cast("_Decision", decision.without(changed))
                changed = self._assume(pod, decision, snapshot)
            if not changed:
                return decision

    def _assume(self, pod: Pod, decision: plans.Decision, decided_on: Snapshot) -> Sequence[str]:
        """Assume the pod where it is to go. Returns the nodes that have changed since, and assumes nothing then."""
        nodes = decision.nodes if isinstance(decision, plans.RelaunchOn) else ()
        return self._store.assume(pod, nodes, decided_on, self._clock())

    def _insufficient_on(self, name: str, pod: WatchedPod, siblings: Mapping[str, Requests] = NO_SIBLINGS) -> str:
        """The resource of which the node's other pods leave too little in total; empty if there is none.

        ``siblings`` (their requests by uid) are about to go there too.

        The snapshot does not contain running pods, so this lists them, which is slow. Only the best node is checked:
        the scheduler itself skips other nodes that are full. A list up to a second old may confirm that enough is free.
        It may not deny it, because a pod may have ended since; then the pods are listed again.
        """
        node = self._store.snapshot.nodes.get(name)
        if node is None:
            return ""
        listed = self._node_pods.listed(name)
        if listed is not None and not _insufficient_beside(node, pod, {**listed, **siblings}):
            return ""
        return _insufficient_beside(node, pod, {**self._node_pods.list(name), **siblings})


def _insufficient_beside(node: Node, pod: WatchedPod, pods: Mapping[str, Requests]) -> str:
    return insufficient_resource(node, pod.pod, (other for uid, other in pods.items() if uid != pod.uid))


def _can_do_without(changed: Sequence[str], nodes: Sequence[str], tries: int) -> bool:
    """Whether to ungate the pod for those of ``nodes`` that have not changed, after so many decisions."""
    if len(changed) > FEW_CHANGED * len(nodes):
        return tries >= MOST_TRIES and len(changed) < len(nodes)
    return bool(changed) and tries >= MAX_TRIES
