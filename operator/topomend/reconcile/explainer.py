"""Explain by replay why a pod was refused or waits, and report it once it is known.

Owns when an explanation is possible. Leaves the explanation to ``decide`` and its wording as Events to ``announcer``.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from topomend.base.bounded_dict import BoundedDict
from topomend.cache.changes import Change, MismatchDetected
from topomend.cache.entries import Refusal
from topomend.decide import plan as plans
from topomend.decide.diagnosis.feasibility import Diagnosis
from topomend.decide.diagnosis.infeasible import devices_not_back, is_infeasible, misses, words_of
from topomend.decide.diagnosis.near_miss import closest, closest_words
from topomend.decide.diagnosis.node_status import kind_of
from topomend.decide.diagnosis.totals import Requests
from topomend.kube.errors import APIError
from topomend.model.pods.scheduling import WatchedPod
from topomend.model.relaunch_record import Relaunch
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.metrics.pods import Metrics
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
    """Reports through the announcer. May be used by several threads, a pod each.

    ``report`` gets the mismatches. ``count`` has the snapshot know the totals of a node where that may be done now.
    """

    def __init__(  # noqa: PLR0913  the parts it is composed of
        self,
        store: Store,
        announcer: Announcer,
        metrics: Metrics,
        report: Callable[[Change], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        count: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._store, self._announcer, self._metrics = store, announcer, metrics
        self._report, self._clock, self._count = report, clock, count
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
        snapshot = self._store.snapshot
        if found := misses(snapshot, pod.pod, pod.placement, effort):
            infeasible = words_of(found, snapshot, pod.pod, effort)
            # The refusal of a pod that was bound has an event of its own.
            told = words_of(found, snapshot, pod.pod, effort, pod.node) if pod.node else infeasible
            self._announcer.infeasible(pod, told)
            return Note("NoNodeCanEverAdmit", infeasible, never=True), INFEASIBLE
        devices = devices_not_back(snapshot, pod.pod, pod.placement)
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
        snapshot = self._store.snapshot
        status = closest(snapshot, pod.pod, diagnosis.rejected, effort)
        words = closest_words(snapshot, pod.pod, status, self._used_on(status.node), effort) if status else ""
        self._closest_of_kind[kind] = now + CLOSEST_SECONDS, words
        return words

    def _used_on(self, name: str) -> Requests | None:
        """What the node's pods take of its totals, counted now where nobody knows it; None where that cannot be."""
        if self._known_use_of(name) is None:
            with suppress(APIError):  # an Event that says less is better than none
                self._count(name)
        return self._known_use_of(name)

    def _known_use_of(self, name: str) -> Requests | None:
        node = self._store.snapshot.nodes.get(name)
        return node.used if node else None
