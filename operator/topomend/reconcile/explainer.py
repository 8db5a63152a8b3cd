"""Explain by replay why a pod was refused or waits, and report it once it is known.

Owns when an explanation is possible. Leaves the explanation to ``decide`` and its wording as Events to ``announcer``.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from topomend.cache.changes import Change, MismatchDetected
from topomend.cache.snapshot import Refusal
from topomend.decide import plan as plans
from topomend.decide.feasibility import Diagnosis
from topomend.decide.infeasible import devices_not_back, is_infeasible, why_infeasible
from topomend.model.cluster import WatchedPod
from topomend.model.relaunch_record import Relaunch
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.metrics import Metrics
from topomend.reconcile.nodes.replay_shares import within_shares
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import RETRY_SECONDS, Result
from topomend.reconcile.store import Store
from topomend.relaunch.waiting_status import Note

MAX_ENTRIES = 10_000

INFEASIBLE = Result(on_topology_change=True)
"""When to try a pod again that no node would admit even when empty."""


@dataclass(frozen=True)
class _Unexplained:
    """A refusal whose explanation needs the node's next publication."""

    refusal: Refusal
    record: Relaunch | None


class Explainer:
    """Reports through the announcer; ``report`` gets the mismatches. May be used by several threads, a pod each."""

    def __init__(
        self,
        store: Store,
        announcer: Announcer,
        metrics: Metrics,
        report: Callable[[Change], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._announcer, self._metrics = store, announcer, metrics
        self._report, self._clock = report, clock
        self._unexplained: dict[PodID, _Unexplained] = {}
        self._lock = threading.Lock()

    def take_over(self) -> None:
        """Drop the refusals that are not explained yet: another operator has led since."""
        with self._lock:
            self._unexplained.clear()

    def explain(
        self, pod: PodID, refusal: Refusal, diagnosis: Diagnosis | None, record: Relaunch | None
    ) -> Result | None:
        """Report why the node refused the pod, or remember to do so after the node's next publication."""
        later = self.explain_now(refusal, diagnosis, record)
        if later:
            with self._lock:
                if len(self._unexplained) < MAX_ENTRIES:
                    self._unexplained[pod] = _Unexplained(refusal, record)
        return later

    def explain_late(self, pod: PodID) -> Result | None:
        """Explain a remembered refusal of the pod, where there is one."""
        with self._lock:
            unexplained = self._unexplained.pop(pod, None)
        return self.explain(pod, unexplained.refusal, None, unexplained.record) if unexplained else None

    def explain_now(
        self, refusal: Refusal, diagnosis: Diagnosis | None = None, record: Relaunch | None = None
    ) -> Result | None:
        """Report why the node refused the pod. Where that cannot be known yet, returns when to try again."""
        # The pod may be gone already: what the caller does must not be repeated where the explanation takes too long.
        explanation = within_shares(
            self._store, lambda: plans.explain_refusal(self._store.snapshot, refusal, self._clock())
        )
        if isinstance(explanation, plans.AwaitsPublication):
            return Result(max(0.0, explanation.until - self._clock()), on_any_change=True)
        if isinstance(explanation, plans.ReplayMismatch):
            self._report(MismatchDetected(refusal.pod.node, refusal.pod.uid, self._clock()))
        self._metrics.refusal_explained(refusal.pod.uid, explanation)
        self._announcer.refusal_explained(refusal.pod, explanation, diagnosis, record)
        return None

    def report_gated(self, pod: WatchedPod, why: str) -> tuple[bool, Result]:
        """Report that no node admits a pod that has no record. Returns whether none ever will, and when to try again.

        Thousands may wait, and only some are told of: why is found out for these.
        """
        snapshot = self._store.snapshot
        if self._announcer.may_tell_of(pod) or not is_infeasible(snapshot, pod.pod, pod.placement):
            note, result = self.report_unschedulable(pod, why)
            return note.never, result
        return True, INFEASIBLE

    def report_unschedulable(self, pod: WatchedPod, why: str) -> tuple[Note, Result]:
        """Report that no node admits the pod, now or ever. Returns the record's note and when to try again."""
        infeasible = why_infeasible(self._store.snapshot, pod.pod, pod.placement)
        if infeasible:
            self._announcer.infeasible(pod, infeasible)
            return Note("NoNodeCanEverAdmit", infeasible, never=True), INFEASIBLE
        devices = devices_not_back(self._store.snapshot, pod.pod, pod.placement)
        why = f"{why}; {devices}" if devices else why
        self._announcer.unschedulable(pod, why)
        return Note("NoNodeAdmitsNow", why), Result(RETRY_SECONDS, on_capacity=True)
