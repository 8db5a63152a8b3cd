"""One pod at a time: what is true of it, what the plan is, and the plan carried out as far as it goes now.

Level-triggered: a call begins from what is known and may be repeated at any time. Raises APIError where an answer did
not come; whoever calls tries again later.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from topomend.cache.changes import Event
from topomend.cache.snapshot import Refusal
from topomend.decide import plan as plans
from topomend.decide.eligibility import eligibility
from topomend.kube.client import Client
from topomend.model.cluster import WatchedPod
from topomend.model.relaunch import Relaunch
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.assumed_expiry import AssumedExpiry
from topomend.reconcile.brake import Brake
from topomend.reconcile.explainer import Explainer
from topomend.reconcile.gated_pods import GatedPods
from topomend.reconcile.metrics import Metrics
from topomend.reconcile.namespace_limits import Namespaces
from topomend.reconcile.node_backoff import NodeBackoff
from topomend.reconcile.node_pods import NodePods
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.refused_pods import Relauncher
from topomend.reconcile.reservations import Reservations
from topomend.reconcile.result import DONE, Result, earliest
from topomend.reconcile.settings import Settings
from topomend.reconcile.store import Store
from topomend.relaunch import narrowing, pod_requests, records
from topomend.runtime.backoff import Backoff
from topomend.runtime.token_bucket import TokenBucket
from topomend.wire.cluster import read_placement
from topomend.wire.document import Document
from topomend.wire.group import FIT_GATE, RELAUNCH_FINALIZER

DELETIONS_PER_SECOND, DELETION_BURST = 10.0, 50


class Reconciler:
    """Reconciles pods. May be used by several threads, a pod each.

    ``report`` gets what is found out by the way.
    """

    def __init__(  # noqa: PLR0913  the parts it is put together from
        self,
        client: Client,
        store: Store,
        announcer: Announcer,
        settings: Settings,
        report: Callable[[Event], None],
        *,
        metrics: Metrics,
    ) -> None:
        self._client, self._store, self._announcer = client, store, announcer
        self._deletions = TokenBucket(DELETIONS_PER_SECOND, DELETION_BURST)
        self._brake = Brake(client, settings.namespace)
        self._back_off = Backoff(time.monotonic)
        self._node_backoff = NodeBackoff(Backoff(time.monotonic))
        self._namespaces = Namespaces(client, settings.max_attempts)
        self._assumed_expiry = AssumedExpiry(client, store, announcer, report)
        self._explainer = Explainer(store, announcer, metrics, report)
        self._reservations = Reservations(store, NodePods(client), self._node_backoff, metrics)
        self._gated_pods = GatedPods(
            client,
            store,
            reservations=self._reservations,
            explainer=self._explainer,
            announcer=announcer,
            metrics=metrics,
            backoff=self._back_off,
            report=report,
        )
        self._relauncher = Relauncher(
            client,
            store,
            reservations=self._reservations,
            explainer=self._explainer,
            announcer=announcer,
            metrics=metrics,
            relaunches=TokenBucket(settings.relaunch_rate, settings.relaunch_burst),
        )

    def reconcile(self, pod: PodID) -> Result:
        """Do for ``pod`` what can be done now."""
        unexplained = self._explainer.explain_late(pod)
        refusal = self._store.snapshot.refused.get(pod.uid)
        return earliest(self._go_on(pod) if refusal is None else self._begin(pod, refusal), unexplained)

    def brake(self, pod: WatchedPod) -> None:
        """Have the next pods of a refused pod's controller gated. Raises APIError.

        To be called at the first sight of the pod: some controllers delete it at once.
        """
        if pod.released:
            self._node_backoff.refused(pod)
        if pod.owner is None or not eligibility(pod, self._namespaces.limits(pod.namespace)).is_recreated:
            return
        problem = self._brake.press(pod)
        if problem:
            self._announcer.not_braked(pod, problem)
        if pod.released:
            self._back_off.failed(pod.owner.uid, pod.uid)

    def take_over(self) -> None:
        """Begin where another operator has stopped: what it wrote is not known here."""
        self._brake.forget()
        self._explainer.forget()
        self._gated_pods.forget()

    def ease_brake(self) -> None:
        """Take those owners off the brake whose pods are admitted again. Raises APIError."""
        self._brake.ease(each.owner.uid for each in self._store.snapshot.gated.values() if each.owner)

    def expire_assumed(self) -> None:
        """Free the places of pods that ended unseen. Raises APIError."""
        self._assumed_expiry.look()

    def _begin(self, pod: PodID, refusal: Refusal) -> Result:
        """A pod that is refused."""
        previous = records.record_that_made(self._client, refusal.pod)
        refusal = replace(refusal, pod=_as_first_asked(refusal.pod, previous))
        limits = self._namespaces.limits(pod.namespace)
        plan = self._reservations.plan(refusal, limits)
        self.brake(refusal.pod)
        match plan:
            case plans.LeaveAlone():
                return self._leave(pod, refusal, plan)
            case plans.DeleteFailedPod():
                return self._clear(refusal, plan)
            case plans.Wait() if RELAUNCH_FINALIZER not in refusal.pod.finalizers:
                result = self._explainer.explain(pod, refusal, plan.diagnosis, None)
                return earliest(self._relauncher.wait(refusal, plan, limits, previous), result)
        return self._relauncher.relaunch(pod, refusal, plan.diagnosis, limits, previous)

    def _leave(self, pod: PodID, refusal: Refusal, plan: plans.LeaveAlone) -> Result:
        if RELAUNCH_FINALIZER in refusal.pod.finalizers:
            return self._relauncher.go_on(pod, 0)
        if refusal.pod.deleting:
            return DONE
        result = self._explainer.explain(pod, refusal, None, None)
        if plan.limit_reached:
            self._announcer.limit_reached(refusal.pod, plan.reason)
        else:
            self._announcer.skipped(refusal.pod, plan.reason)
        return result or DONE

    def _clear(self, refusal: Refusal, plan: plans.DeleteFailedPod) -> Result:
        """Explain first, delete then: the explanation is found by whoever still sees the pod, and on its owner."""
        later = self._explainer.tell(refusal)
        if later:
            return later
        wait = self._deletions.take()
        if wait:
            return Result(wait)
        if not pod_requests.clear(self._client, refusal.pod):
            return Result(1.0)
        self._announcer.skipped(refusal.pod, f"{plan.reason}; the failed pod was deleted")
        return DONE

    def _go_on(self, pod: PodID) -> Result:
        """A pod that waits behind our gate, or whose relaunch has begun before a crash or in another call."""
        gated = self._store.snapshot.gated.get((pod.namespace, pod.name))
        if gated and gated.uid == pod.uid and FIT_GATE in gated.gates:
            return self._gated_pods.fit(pod)
        if not self._relauncher.has_begun(pod):
            return DONE
        return self._relauncher.go_on(pod, self._namespaces.limits(pod.namespace).max_attempts)


def _as_first_asked(pod: WatchedPod, previous: Relaunch | None) -> WatchedPod:
    """``pod`` with the placement its user asked for, before it was narrowed."""
    if previous:
        return replace(pod, placement=read_placement(Document(previous.manifest)["spec"]))
    if not pod.released:
        return pod
    return replace(pod, placement=narrowing.as_asked(pod.placement, pod.node_affinity))
