"""What an operator does that observes: it explains by Events, and says what it would do in mode relaunch.

It takes the place of the ``Reconciler``. Its client creates Events and sends no other write
(``Client.creating_alone``), so nothing here can. Level-triggered: a call starts from the snapshot and may be repeated.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from topomend.cache.changes import Change
from topomend.decide import plan as plans
from topomend.decide.eligibility import Limits
from topomend.kube.client import Client
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.explainer import Explainer
from topomend.reconcile.metrics.pods import Metrics
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.reconcile.nodes.device_classes import DeviceClasses
from topomend.reconcile.placement.unaligned_pods import UnalignedPods
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import DONE, Result
from topomend.reconcile.settings import Settings
from topomend.reconcile.store import Store
from topomend.relaunch import narrowed_affinity
from topomend.replay.effort import UNLIMITED, Effort
from topomend.runtime.duties import Duty
from topomend.wire.group import RELAUNCH_FINALIZER

TICK_SECONDS = 0.5


class Observer:
    """Explains pods. May be used by several threads, a pod each. ``report`` gets the changes that this reveals."""

    def __init__(  # noqa: PLR0913  as the reconciler
        self,
        client: Client,
        store: Store,
        announcer: Announcer,
        settings: Settings,
        report: Callable[[Change], None],
        *,
        metrics: Metrics,
    ) -> None:
        self._store, self._announcer = store, announcer
        self._limits = NamespaceLimits(client, Limits(max_attempts=settings.max_attempts))
        self._device_classes = DeviceClasses(client, store, report, prefers=False)
        self._explainer = Explainer(store, announcer, metrics, report)
        self._unaligned_pods = UnalignedPods(client, store, announcer)

    def reconcile(self, pod: PodID, effort: Effort = UNLIMITED) -> Result:
        """Explain the pod's refusal, if it was refused. Raises APIError."""
        late = self._explainer.explain_late(pod)
        refusal = self._store.snapshot.refused.get(pod.uid)
        if late or refusal is None or refusal.pod.deleting or RELAUNCH_FINALIZER in refusal.pod.finalizers:
            return late or DONE
        limits = self._limits.limits(pod.namespace)
        self._announcer.check_annotations(refusal.pod, limits)
        refusal = replace(refusal, pod=narrowed_affinity.as_requested(refusal.pod))
        plan = plans.plan(self._store.snapshot, refusal, limits, surveys=self._store.surveys, effort=effort)
        diagnosis = plan.diagnosis if isinstance(plan, plans.RelaunchOn | plans.Wait) else None
        result = self._explainer.explain(pod, refusal, diagnosis, None)
        self._announcer.observed(refusal.pod, _would(plan))
        return result or DONE

    def bound(self, pod: WatchedPod) -> None:
        """A pod was seen that a scheduler may have bound, or that has ended. Returns at once."""
        self._unaligned_pods.bound(pod)

    def check_annotations(self, pod: WatchedPod) -> None:
        """Say of such a pod that its annotation is wrong. Returns at once."""
        self._announcer.check_relaunch_value(pod, Limits())

    def brake(self, pod: WatchedPod) -> None:
        """Nothing is gated."""

    def take_over(self) -> None:
        """Start."""
        self._explainer.take_over()

    def duties(self, numa_nodes_freed: Callable[[], None]) -> Sequence[Duty]:
        """What is to be done again and again. No NUMA nodes are reserved, so that none are freed."""
        del numa_nodes_freed
        return (
            Duty("unaligned-pods", self._unaligned_pods.check, TICK_SECONDS),
            Duty("device-classes", self._device_classes.refresh, TICK_SECONDS),
        )


def _would(plan: plans.Plan) -> str:
    match plan:
        case plans.RelaunchOn():
            return f"it would relaunch the pod: {plan.reason}"
        case plans.Wait():
            return f"it would wait until a node admits the pod, and relaunch it: {plan.reason}"
        case plans.DeleteFailedPod():
            return f"it would delete the pod and gate the next ones: {plan.reason}"
    return f"it would leave the pod alone: {plan.reason}"
