"""One pod at a time: what is true of it, what the plan is, and the plan carried out as far as it goes now.

Level-triggered: a call begins from what is known and may be repeated at any time. Raises APIError where an answer did
not come; whoever calls tries again later.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from topomend.controller.again import DONE, Again, sooner
from topomend.controller.announcer import Announcer
from topomend.controller.back_off import BackOff
from topomend.controller.brake import Brake
from topomend.controller.departures import Departures
from topomend.controller.explainer import Explainer
from topomend.controller.fitter import Fitter
from topomend.controller.metrics import Metrics
from topomend.controller.places import Places
from topomend.controller.pod_id import PodID
from topomend.controller.relauncher import Relauncher
from topomend.controller.setbacks import Setbacks
from topomend.controller.settings import Settings
from topomend.controller.store import Store
from topomend.controller.token_bucket import TokenBucket
from topomend.decide import plan as plans
from topomend.decide.eligibility import eligibility
from topomend.kube.client import Client
from topomend.kube.node_pods import NodePods
from topomend.model.cluster import WatchedPod
from topomend.model.relaunch import Relaunch
from topomend.relaunch import ledger, narrowing, pods
from topomend.relaunch.namespaces import Namespaces
from topomend.watch.events import Event
from topomend.watch.view import Refusal
from topomend.wire.cluster import read_placement
from topomend.wire.document import Document
from topomend.wire.group import FIT_GATE, RELAUNCH_FINALIZER

CORPSES_A_SECOND, CORPSES_AT_ONCE = 10.0, 50


class Reconciler:
    """Reconciles pods. May be used by several threads, a pod each.

    ``observed`` gets what is found out by the way.
    """

    def __init__(  # noqa: PLR0913  the parts it is put together from
        self,
        client: Client,
        store: Store,
        announcer: Announcer,
        settings: Settings,
        observed: Callable[[Event], None],
        *,
        metrics: Metrics,
    ) -> None:
        self._client, self._store, self._announcer = client, store, announcer
        self._corpses = TokenBucket(CORPSES_A_SECOND, CORPSES_AT_ONCE)
        self._brake = Brake(client, settings.namespace)
        self._back_off = BackOff(time.monotonic)
        self._setbacks = Setbacks(BackOff(time.monotonic))
        self._namespaces = Namespaces(client, settings.max_attempts)
        self._departures = Departures(client, store, announcer, observed)
        self._explainer = Explainer(store, announcer, metrics, observed)
        self._places = Places(store, NodePods(client), self._setbacks, metrics)
        self._fitter = Fitter(
            client,
            store,
            places=self._places,
            explainer=self._explainer,
            announcer=announcer,
            metrics=metrics,
            back_off=self._back_off,
            observed=observed,
        )
        self._relauncher = Relauncher(
            client,
            store,
            places=self._places,
            explainer=self._explainer,
            announcer=announcer,
            metrics=metrics,
            relaunches=TokenBucket(settings.relaunch_rate, settings.relaunch_burst),
        )

    def reconcile(self, pod: PodID) -> Again:
        """Do for ``pod`` what can be done now."""
        unexplained = self._explainer.explain_late(pod)
        refusal = self._store.view.refused.get(pod.uid)
        return sooner(self._go_on(pod) if refusal is None else self._begin(pod, refusal), unexplained)

    def brake(self, pod: WatchedPod) -> None:
        """Have the next pods of a refused pod's controller gated. Raises APIError.

        To be called at the first sight of the pod: some controllers delete it at once.
        """
        if pod.released:
            self._setbacks.refused(pod)
        if pod.owner is None or not eligibility(pod, self._namespaces.limits(pod.namespace)).is_remade:
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
        self._fitter.forget()

    def ease_brake(self) -> None:
        """Take those owners off the brake whose pods are admitted again. Raises APIError."""
        self._brake.ease(each.owner.uid for each in self._store.view.gated.values() if each.owner)

    def look_for_departed(self) -> None:
        """Free the places of pods that ended unseen. Raises APIError."""
        self._departures.look()

    def _begin(self, pod: PodID, refusal: Refusal) -> Again:
        """A pod that is refused."""
        previous = ledger.record_that_made(self._client, refusal.pod)
        refusal = replace(refusal, pod=_as_first_asked(refusal.pod, previous))
        limits = self._namespaces.limits(pod.namespace)
        plan = self._places.plan(refusal, limits)
        self.brake(refusal.pod)
        match plan:
            case plans.LeaveAlone():
                return self._leave(pod, refusal, plan)
            case plans.ClearCorpse():
                return self._clear(refusal, plan)
            case plans.Wait() if RELAUNCH_FINALIZER not in refusal.pod.finalizers:
                again = self._explainer.explain(pod, refusal, plan.survey, None)
                return sooner(self._relauncher.wait(refusal, plan, limits, previous), again)
        return self._relauncher.relaunch(pod, refusal, plan.survey, limits, previous)

    def _leave(self, pod: PodID, refusal: Refusal, plan: plans.LeaveAlone) -> Again:
        if RELAUNCH_FINALIZER in refusal.pod.finalizers:
            return self._relauncher.go_on(pod, 0)
        if refusal.pod.deleting:
            return DONE
        again = self._explainer.explain(pod, refusal, None, None)
        if plan.limit_reached:
            self._announcer.limit_reached(refusal.pod, plan.reason)
        else:
            self._announcer.skipped(refusal.pod, plan.reason)
        return again or DONE

    def _clear(self, refusal: Refusal, plan: plans.ClearCorpse) -> Again:
        """Explain first, delete then: the explanation is found by whoever still sees the pod, and on its owner."""
        later = self._explainer.tell(refusal)
        if later:
            return later
        wait = self._corpses.take()
        if wait:
            return Again(wait)
        if not pods.clear(self._client, refusal.pod):
            return Again(1.0)
        self._announcer.skipped(refusal.pod, f"{plan.reason}; the failed pod was deleted")
        return DONE

    def _go_on(self, pod: PodID) -> Again:
        """A pod that waits behind our gate, or whose relaunch has begun before a crash or in another call."""
        gated = self._store.view.gated.get((pod.namespace, pod.name))
        if gated and gated.uid == pod.uid and FIT_GATE in gated.gates:
            return self._fitter.fit(pod)
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
