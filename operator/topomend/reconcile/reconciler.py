"""Reconciles one pod at a time: reads the current state, makes a plan, and carries out as much of it as possible.

Owns the order of these steps and the parts that carry them out. Level-triggered: a call starts from the snapshot and
may be repeated at any time. Raises APIError if the API server does not answer; the caller requeues the pod.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from topomend.cache.changes import Change
from topomend.cache.entries import Refusal
from topomend.decide import plan as plans
from topomend.decide.eligibility import Limits, eligibility, why_opted_out, wrong_relaunch_value
from topomend.decide.queue.order import Reservation
from topomend.kube.client import Client
from topomend.kube.errors import NotFound
from topomend.kube.resources import NODES
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.autoscaling.placeholders import Placeholders
from topomend.reconcile.autoscaling.scale_up import ScaleUp
from topomend.reconcile.collaborators import Collaborators
from topomend.reconcile.defragment.campaign import SEARCH_SECONDS, Campaign
from topomend.reconcile.explainer import Explainer
from topomend.reconcile.gated.gated_pods import GatedPods
from topomend.reconcile.gated.preemption import Preemptor
from topomend.reconcile.gated.reservation_turns import ReservationTurns
from topomend.reconcile.kueue.numa_fit import NumaFit
from topomend.reconcile.kueue.queued import Queued
from topomend.reconcile.metrics.pods import Metrics
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.reconcile.nodes.device_classes import DeviceClasses
from topomend.reconcile.nodes.replay_shares import within_shares
from topomend.reconcile.nodes.startup_taint import StartupTaint
from topomend.reconcile.placement.assumed_expiry import AssumedExpiry
from topomend.reconcile.placement.claimed_devices import ClaimedDevices
from topomend.reconcile.placement.move_under_way import MoveUnderWay
from topomend.reconcile.placement.node_backoff import NodeBackoff
from topomend.reconcile.placement.node_pods import LISTS_PER_SECOND, NodePods
from topomend.reconcile.placement.reservations import Reservations
from topomend.reconcile.placement.unaligned_pods import UnalignedPods
from topomend.reconcile.placement.untried_pods import UntriedPods
from topomend.reconcile.placement.volumes import Volumes
from topomend.reconcile.pod_id import PodID, WorkloadID
from topomend.reconcile.refused.brake import Brake
from topomend.reconcile.refused.owners import why_not_recreated
from topomend.reconcile.refused.refused_pods import RefusedPods
from topomend.reconcile.refused.unbound_pods import UnboundPods
from topomend.reconcile.result import DONE, Result, earliest
from topomend.reconcile.settings import Settings
from topomend.reconcile.store import Store
from topomend.relaunch import narrowed_affinity, pod_requests
from topomend.replay.effort import UNLIMITED, Effort
from topomend.runtime.backoff import Backoff
from topomend.runtime.duties import Duty
from topomend.runtime.queues.token_bucket import FairTokenBucket
from topomend.wire.group import FIT_GATE, RELAUNCH_FINALIZER

DELETIONS_PER_SECOND, DELETION_BURST = 10.0, 50

TICK_SECONDS = 0.5
"""How often each duty is done."""


class Reconciler:
    """Reconciles pods. May be used by several threads, a pod each.

    ``report`` gets the changes that reconciling reveals. ``why_not_gating`` is for the brake.
    ``newest_pod`` is the resourceVersion of the newest pod that the watch has brought.
    """

    def __init__(  # noqa: PLR0913  the parts it is composed of
        self,
        client: Client,
        store: Store,
        announcer: Announcer,
        settings: Settings,
        report: Callable[[Change], None],
        *,
        metrics: Metrics,
        why_not_gating: Callable[[], str],
        newest_pod: Callable[[], str] = str,
    ) -> None:
        self._client, self._store, self._announcer, self._metrics = client, store, announcer, metrics
        self._deletions = FairTokenBucket(DELETIONS_PER_SECOND, DELETION_BURST)
        self._brake = Brake(client, settings.namespace, why_not_gating)
        metrics.show_while_leading(metrics.braked, self._brake.count)
        metrics.show_while_leading(metrics.oldest_brake, self._brake.oldest_seconds)
        self._owner_backoff = Backoff(time.monotonic)
        self._node_backoff = NodeBackoff(Backoff(time.monotonic))
        self._namespace_limits = NamespaceLimits(client, Limits(max_attempts=settings.max_attempts))
        self._device_classes = DeviceClasses(client, store, report, prefers=settings.claims)
        self._assumed_expiry = AssumedExpiry(client, store, announcer, report)
        self._startup_taint = StartupTaint(client, store, enabled=settings.startup_taint)
        self._node_pods = NodePods(client, store, newest_pod)
        self._explainer = Explainer(store, announcer, metrics, report, count=self._node_pods.list_unhurried)
        move = MoveUnderWay()
        self._reservations = Reservations(store, self._node_pods, self._node_backoff, metrics, move=move)
        self._placeholders = Placeholders(client, store, settings.namespace, enabled=settings.placeholders)
        self._scale_up = ScaleUp(client, store, self._placeholders)
        untried = UntriedPods(store)
        parts = Collaborators(
            client,
            store,
            self._reservations,
            self._explainer,
            announcer,
            metrics,
            self._scale_up,
            untried,
            Volumes(client, store),
            ClaimedDevices(client, store, enabled=settings.claims, is_served=lambda: self._device_classes.is_served),
        )
        self._unaligned_pods = UnalignedPods(client, store, announcer)
        self._refused_pods = RefusedPods(parts, FairTokenBucket(settings.relaunch_rate, settings.relaunch_burst))
        self._unbound_pods = UnboundPods(
            client, store, self._namespace_limits, self._refused_pods, parts.volumes, backoff=self._owner_backoff
        )
        self._turns = ReservationTurns(client, store, self._is_gated_by_us)
        self._gated_pods = GatedPods(
            parts, self._owner_backoff, self._unbound_pods.widened, report, self._reserved, because=self._brake.because
        )
        self._preemptor = Preemptor(
            client,
            store,
            announcer,
            self._namespace_limits,
            excluded=self._reservations.excluded,
            let_go=self._gated_pods.leave_to_scheduler,
            is_gated_by_us=self._is_gated_by_us,
            count=self._node_pods.list,
            untried=untried,
            reserved=self._turns.reservations,
            was_late=parts.volumes.were_late,
        )
        self._campaign = Campaign(
            parts,
            self._namespace_limits,
            settings,
            move,
            count=self._node_pods.list,
            preempting=lambda: bool(self._preemptor.reservations()),
            reserved=self._turns.reservations,
        )

    def numa_fit(self, queued: Queued) -> NumaFit:
        """What answers Kueue about these workloads, by the places that this knows of."""
        return NumaFit(
            self._client,
            self._store,
            queued,
            self._reservations,
            namespaces=self._namespace_limits,
            reserved=self._reserved,
            metrics=self._metrics,
        )

    def reconcile(self, pod: PodID, effort: Effort = UNLIMITED) -> Result:
        """Do now what can be done for ``pod``."""
        self._check_annotation(pod)
        unexplained = self._explainer.explain_late(pod)
        refusal = self._store.snapshot.refused.get(pod.uid)
        done = self._resume(pod, effort) if refusal is None else self._handle_refusal(pod, refusal, effort)
        return earliest(done, unexplained)

    def _check_annotation(self, pod: PodID) -> None:
        """Say that an annotation of a pod that topomend handles is wrong."""
        snapshot = self._store.snapshot
        refusal = snapshot.refused.get(pod.uid)
        watched = refusal.pod if refusal else snapshot.gated.get((pod.namespace, pod.name))
        if watched and watched.uid == pod.uid:
            self._announcer.check_annotations(watched, self._namespace_limits.limits(pod.namespace))

    def bound(self, pod: WatchedPod) -> None:
        """A pod was seen that a scheduler may have bound, or that has ended. Returns at once."""
        self._unaligned_pods.bound(pod)

    def check_annotations(self, pod: WatchedPod) -> None:
        """Say of such a pod that its annotation is wrong. Returns at once."""
        self._announcer.check_relaunch_value(pod, Limits())

    def brake(self, pod: WatchedPod) -> None:
        """Gate the next pods of a refused pod's controller; if replay admitted the pod, node and controller back off.

        Call it at the pod's first event: some controllers delete a failed pod at once. Raises APIError.
        """
        if pod.released:
            self._node_backoff.record_refusal(pod)
        if pod.owner is None or not eligibility(pod, self._namespace_limits.limits(pod.namespace)).is_recreated:
            return
        problem = self._brake.engage(pod)
        if problem:
            self._announcer.not_braked(pod, problem)
        if pod.released:
            self._owner_backoff.failed(WorkloadID.of(pod), pod.uid)

    def take_over(self) -> None:
        """Start to lead: drop the state that another leader may have changed."""
        self._brake.forget()
        self._explainer.take_over()
        self._gated_pods.take_over()
        self._turns.take_over()
        self._campaign.take_over()

    def duties(self, numa_nodes_freed: Callable[[], None]) -> Sequence[Duty]:
        """What is to be done again and again while this operator leads, in no order.

        ``numa_nodes_freed`` is called when NUMA nodes are no longer reserved for a pod.
        """
        return (
            Duty("assumed-pods", self._assumed_expiry.check, TICK_SECONDS),
            Duty("node-totals", self._node_pods.list_doubtful, 1 / LISTS_PER_SECOND),
            Duty("unbound-pods", self._within_shares(self._unbound_pods.check), TICK_SECONDS),
            Duty("unaligned-pods", self._unaligned_pods.check, TICK_SECONDS),
            Duty("brake-release", self._release_brake, TICK_SECONDS),
            Duty("reservations", lambda: self._reserve(numa_nodes_freed), TICK_SECONDS),
            Duty("preemption", self._preemptor.check, TICK_SECONDS),
            Duty("scale-up", self._within_shares(self._scale_up.check), TICK_SECONDS),
            Duty("placeholders", self._within_shares(self._placeholders.check), TICK_SECONDS),
            Duty("device-classes", self._device_classes.refresh, TICK_SECONDS),
            Duty("startup-taints", self._startup_taint.remove, TICK_SECONDS),
            Duty("moves", self._campaign.check, TICK_SECONDS, longer=SEARCH_SECONDS),
        )

    def _within_shares(self, check: Callable[[Effort], None]) -> Callable[[], None]:
        return lambda: within_shares(self._store, check)

    def _reserved(self) -> Sequence[Reservation]:
        return (*self._preemptor.reservations(), *self._turns.reservations())

    def _reserve(self, numa_nodes_freed: Callable[[], None]) -> None:
        if self._turns.refresh():
            numa_nodes_freed()

    def _release_brake(self) -> None:
        """Remove controllers from the brake's list whose pods are admitted again. Raises APIError."""
        gated = self._store.snapshot.gated.values()
        self._brake.release(pod for pod in gated if not self._gated_pods.is_held_for_alignment(pod))

    def _is_gated_by_us(self, pod: WatchedPod) -> bool:
        """Whether a policy of ours gated the pod, as far as can be told: any user may write the gate himself."""
        if self._namespace_limits.is_steered(pod.namespace):
            return True
        return self._brake.lists(pod)

    def _handle_refusal(self, pod: PodID, refusal: Refusal, effort: Effort) -> Result:
        """Plan what to do about a refused pod, and do it."""
        refusal = replace(refusal, pod=narrowed_affinity.as_requested(refusal.pod))
        limits = self._namespace_limits.limits(pod.namespace)
        self.brake(refusal.pod)  # before the plan: where that fails, nothing is assumed
        located = self._refused_pods.located(refusal, limits)
        if isinstance(located, Result):
            return located
        refusal = located
        plan = self._reservations.plan(refusal, limits, self._preemptor.reservations(), effort)
        match plan:
            case plans.LeaveAlone():
                return self._leave(pod, refusal, plan, limits, effort)
            case plans.DeleteFailedPod():
                return self._clear(refusal, plan)
            case plans.Wait() if not self._must_not_wait(refusal.pod):
                result = self._explainer.explain(pod, refusal, None, None)  # the wait says what other nodes answer
                return earliest(self._refused_pods.wait(refusal, plan, limits, effort), result)
        return self._refused_pods.relaunch(pod, refusal, plan.diagnosis, limits, effort)

    def _must_not_wait(self, pod: WatchedPod) -> bool:
        """Whether to relaunch the pod although no node admits it now: it was claimed, or its node is gone.

        A pod without a node is deleted within a minute (pkg/controller/podgc:gcOrphaned). Its replacement waits gated.
        """
        if RELAUNCH_FINALIZER in pod.finalizers:
            return True
        if pod.node in self._store.snapshot.nodes:
            return False
        try:
            self._client.get(NODES, pod.node)
        except NotFound:
            return True
        return False

    def _leave(self, pod: PodID, refusal: Refusal, plan: plans.LeaveAlone, limits: Limits, effort: Effort) -> Result:
        if RELAUNCH_FINALIZER in refusal.pod.finalizers:
            return self._refused_pods.resume(pod, 0, effort)
        if refusal.pod.deleting:
            return DONE
        result = self._explainer.explain(pod, refusal, None, None)
        if plan.limit_reached:
            self._announcer.limit_reached(refusal.pod, plan.reason)
        elif not wrong_relaunch_value(refusal.pod, limits):  # of which an event has told
            self._announcer.skipped(refusal.pod, plan.reason)
        return result or DONE

    def _clear(self, refusal: Refusal, plan: plans.DeleteFailedPod) -> Result:
        """Explain before deleting: the Event is on the pod while it exists, and on its owner."""
        later = self._explainer.explain_now(refusal)
        if later:
            return later
        reason = refusal.pod.owner and why_not_recreated(self._client, refusal.pod.owner, refusal.pod.namespace)
        if reason:
            self._announcer.skipped(refusal.pod, f"{reason}; the failed pod was kept")
            return DONE
        wait = self._deletions.take(refusal.pod.namespace)
        if wait:
            return Result(wait)
        if not pod_requests.clear(self._client, refusal.pod):
            return Result(1.0)
        self._announcer.skipped(refusal.pod, f"{plan.reason}; the failed pod was deleted")
        return DONE

    def _resume(self, pod: PodID, effort: Effort) -> Result:
        """Continue with a gated or an unbound pod, or with a relaunch that was started before."""
        unbound = self._unbound_pods.bare(pod)
        if unbound:
            return self._unbound_pods.reconcile(unbound, effort)
        gated = self._store.snapshot.gated.get((pod.namespace, pod.name))
        if gated and gated.uid == pod.uid and FIT_GATE in gated.gates:
            why = why_opted_out(gated, self._namespace_limits.limits(pod.namespace))
            return self._gated_pods.let_go(gated, why) if why else self._gated_pods.reconcile(pod, effort)
        if not self._refused_pods.is_started(pod):
            return DONE
        limits = self._namespace_limits.limits(pod.namespace)
        lets_go = bool(gated and gated.replaces == pod.uid and why_opted_out(gated, limits))
        return self._refused_pods.resume(pod, limits.max_attempts, effort, lets_go=lets_go)
