"""Explain by replay why a pod was refused or waits, and report it once it is known.

Owns when an explanation is possible. Leaves the explanation to ``decide`` and its wording as Events to ``announcer``.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from topomend.base.bounded_dict import BoundedDict
from topomend.cache.changes import Change, MismatchDetected
from topomend.cache.snapshot import Refusal
from topomend.decide import plan as plans
from topomend.decide.feasibility import Diagnosis, kind_of
from topomend.decide.infeasible import devices_not_back, is_infeasible, why_infeasible
from topomend.decide.near_miss import closest_words
from topomend.model.cluster import WatchedPod
from topomend.model.relaunch_record import Relaunch
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.metrics import Metrics
from topomend.reconcile.nodes.replay_shares import within_shares
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import RETRY_SECONDS, Result
from topomend.reconcile.store import Store
from topomend.relaunch.waiting_status import Note
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.fast_path.admission import PodShape

MAX_ENTRIES = 10_000

CLOSEST_SECONDS, MAX_KINDS = 10.0, 1_000
"""For how long the closest node is known for all pods of a kind, and of how many kinds: thousands may begin to wait
at once, and for each it would take tens of milliseconds on machines of eight NUMA nodes."""

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
        self._closest_of_kind: BoundedDict[PodShape, tuple[float, str]] = BoundedDict(MAX_KINDS)
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
            self._store, lambda effort: plans.explain_refusal(self._store.snapshot, refusal, self._clock(), effort)
        )
        if isinstance(explanation, plans.AwaitsPublication):
            return Result(max(0.0, explanation.until - self._clock()), on_any_change=True)
        if isinstance(explanation, plans.ReplayMismatch):
            self._report(MismatchDetected(refusal.pod.node, refusal.pod.uid, self._clock()))
        self._metrics.refusal_explained(refusal.pod.uid, explanation)
        self._announcer.refusal_explained(refusal.pod, explanation, diagnosis, record)
        return None

    def report_gated(
        self,
        pod: WatchedPod,
        why: str,
        diagnosis: Diagnosis | None = None,
        gated_because: str = "",
        effort: Effort = UNLIMITED,
    ) -> tuple[bool, Result]:
        """Report why a pod that has no record waits. Returns whether no node ever admits it, and when to try again.

        Thousands may wait, and only some are told of: why is found out for these.
        """
        snapshot = self._store.snapshot
        if diagnosis and diagnosis.candidates:
            self._announcer.waits_for_turn(pod, why)
            return False, Result(RETRY_SECONDS, on_capacity=True)
        if self._announcer.may_tell_of(pod) or not is_infeasible(snapshot, pod.pod, pod.placement, effort):
            note, result = self.report_unschedulable(pod, why, effort, diagnosis, gated_because)
            return note.never, result
        return True, INFEASIBLE

    def report_unschedulable(
        self,
        pod: WatchedPod,
        why: str,
        effort: Effort = UNLIMITED,
        diagnosis: Diagnosis | None = None,
        gated_because: str = "",
    ) -> tuple[Note, Result]:
        """Report that no node admits the pod, now or ever. Returns the record's note and when to try again.

        Where an Event will be posted, it also names the closest node of ``diagnosis`` and what would help there.
        """
        infeasible = why_infeasible(self._store.snapshot, pod.pod, pod.placement, effort)
        if infeasible:
            self._announcer.infeasible(pod, infeasible)
            return Note("NoNodeCanEverAdmit", infeasible, never=True), INFEASIBLE
        devices = devices_not_back(self._store.snapshot, pod.pod, pod.placement)
        why = f"{why}; {devices}" if devices else why
        more = ""
        if self._announcer.is_new_that(pod, why):
            closest = self._closest(pod, diagnosis, effort) if diagnosis else ""
            more = "; ".join(filter(None, (closest, gated_because)))
        self._announcer.unschedulable(pod, why, more)
        return Note("NoNodeAdmitsNow", why), Result(RETRY_SECONDS, on_capacity=True)

    def _closest(self, pod: WatchedPod, diagnosis: Diagnosis, effort: Effort) -> str:
        """The closest node and what would help there, in words that are the same for all pods of a kind."""
        kind, now = kind_of(pod.pod, pod.placement), self._clock()
        known = self._closest_of_kind.get(kind)
        if known and now < known[0]:
            return known[1]
        words = closest_words(self._store.snapshot, pod.pod, diagnosis.rejected, effort)
        self._closest_of_kind[kind] = now + CLOSEST_SECONDS, words
        return words
