"""Why a pod was refused and why it waits, found out by replay and told once it is known."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from topomend.controller.again import RETRY_SECONDS, Again
from topomend.controller.announcer import Announcer
from topomend.controller.metrics import Metrics
from topomend.controller.pod_id import PodID
from topomend.controller.store import Store
from topomend.decide import plan as plans
from topomend.decide.candidates import Survey
from topomend.decide.never import why_never
from topomend.model.cluster import WatchedPod
from topomend.model.relaunch import Relaunch
from topomend.relaunch.notes import Note
from topomend.watch.events import Disagreed, Event
from topomend.watch.view import Refusal

MOST_KEPT = 10_000


@dataclass(frozen=True)
class _Unexplained:
    """A refusal whose explanation waits for the node's next publication."""

    refusal: Refusal
    record: Relaunch | None


class Explainer:
    """Tells people through the announcer. ``observed`` gets what a disagreement says of its node.

    May be used by several threads, a pod each.
    """

    def __init__(
        self,
        store: Store,
        announcer: Announcer,
        metrics: Metrics,
        observed: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._announcer, self._metrics = store, announcer, metrics
        self._observed, self._clock = observed, clock
        self._unexplained: dict[PodID, _Unexplained] = {}
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Leave what is not explained yet to another operator."""
        with self._lock:
            self._unexplained.clear()

    def explain(self, pod: PodID, refusal: Refusal, survey: Survey | None, record: Relaunch | None) -> Again | None:
        """Say why the node refused the pod, or keep the question until its next publication."""
        later = self.tell(refusal, survey, record)
        if later:
            with self._lock:
                if len(self._unexplained) < MOST_KEPT:
                    self._unexplained[pod] = _Unexplained(refusal, record)
        return later

    def explain_late(self, pod: PodID) -> Again | None:
        """Take up the question that was kept, where there is one."""
        with self._lock:
            kept = self._unexplained.pop(pod, None)
        return self.explain(pod, kept.refusal, None, kept.record) if kept else None

    def tell(self, refusal: Refusal, survey: Survey | None = None, record: Relaunch | None = None) -> Again | None:
        """Say why the node refused the pod; where that cannot be known yet, when to ask again."""
        judgement = plans.judge(self._store.view, refusal, self._clock())
        if isinstance(judgement, plans.NotYet):
            return Again(max(0.0, judgement.until - self._clock()), on_any_change=True)
        if isinstance(judgement, plans.Disagreed):
            self._observed(Disagreed(refusal.pod.node, refusal.pod.uid, self._clock()))
        self._metrics.judged(refusal.pod.uid, judgement)
        self._announcer.judged(refusal.pod, judgement, survey, record)
        return None

    def defer(self, pod: WatchedPod, why: str) -> tuple[Note, Again]:
        """Say that no node admits the pod now, or that none ever can, and wait for what could change that."""
        never = why_never(self._store.view, pod.pod, pod.placement)
        if never:
            self._announcer.never(pod, never)
            return Note("NoNodeCanEverAdmit", never, never=True), Again(on_machine_change=True)
        self._announcer.deferred(pod, why)
        return Note("NoNodeAdmitsNow", why), Again(RETRY_SECONDS, on_room=True)
