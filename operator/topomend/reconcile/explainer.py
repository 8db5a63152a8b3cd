"""Why a pod was refused and why it waits, found out by replay and told once it is known."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from topomend.cache.changes import Event, ReplayMismatch
from topomend.cache.snapshot import Refusal
from topomend.decide import plan as plans
from topomend.decide.feasibility import Diagnosis
from topomend.decide.infeasible import why_infeasible
from topomend.model.cluster import WatchedPod
from topomend.model.relaunch import Relaunch
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.metrics import Metrics
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import RETRY_SECONDS, Result
from topomend.reconcile.store import Store
from topomend.relaunch.waiting_status import Note

MAX_ENTRIES = 10_000


@dataclass(frozen=True)
class _Unexplained:
    """A refusal whose explanation waits for the node's next publication."""

    refusal: Refusal
    record: Relaunch | None


class Explainer:
    """Tells people through the announcer. ``report`` gets what a disagreement says of its node.

    May be used by several threads, a pod each.
    """

    def __init__(
        self,
        store: Store,
        announcer: Announcer,
        metrics: Metrics,
        report: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._announcer, self._metrics = store, announcer, metrics
        self._report, self._clock = report, clock
        self._unexplained: dict[PodID, _Unexplained] = {}
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Leave what is not explained yet to another operator."""
        with self._lock:
            self._unexplained.clear()

    def explain(
        self, pod: PodID, refusal: Refusal, diagnosis: Diagnosis | None, record: Relaunch | None
    ) -> Result | None:
        """Say why the node refused the pod, or keep the question until its next publication."""
        later = self.tell(refusal, diagnosis, record)
        if later:
            with self._lock:
                if len(self._unexplained) < MAX_ENTRIES:
                    self._unexplained[pod] = _Unexplained(refusal, record)
        return later

    def explain_late(self, pod: PodID) -> Result | None:
        """Take up the question that was kept, where there is one."""
        with self._lock:
            kept = self._unexplained.pop(pod, None)
        return self.explain(pod, kept.refusal, None, kept.record) if kept else None

    def tell(
        self, refusal: Refusal, diagnosis: Diagnosis | None = None, record: Relaunch | None = None
    ) -> Result | None:
        """Say why the node refused the pod; where that cannot be known yet, when to ask again."""
        judgement = plans.judge(self._store.snapshot, refusal, self._clock())
        if isinstance(judgement, plans.NotYet):
            return Result(max(0.0, judgement.until - self._clock()), on_any_change=True)
        if isinstance(judgement, plans.ReplayMismatch):
            self._report(ReplayMismatch(refusal.pod.node, refusal.pod.uid, self._clock()))
        self._metrics.judged(refusal.pod.uid, judgement)
        self._announcer.judged(refusal.pod, judgement, diagnosis, record)
        return None

    def defer(self, pod: WatchedPod, why: str) -> tuple[Note, Result]:
        """Say that no node admits the pod now, or that none ever can, and wait for what could change that."""
        never = why_infeasible(self._store.snapshot, pod.pod, pod.placement)
        if never:
            self._announcer.never(pod, never)
            return Note("NoNodeCanEverAdmit", never, never=True), Result(on_topology_change=True)
        self._announcer.deferred(pod, why)
        return Note("NoNodeAdmitsNow", why), Result(RETRY_SECONDS, on_capacity=True)
