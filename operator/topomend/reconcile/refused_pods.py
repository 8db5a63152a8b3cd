"""Refused pods that nobody else makes anew: begun, gone on with, and told of as far as it goes now."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from topomend.cache.snapshot import Refusal
from topomend.decide import plan as plans
from topomend.decide.eligibility import Limits, renames
from topomend.decide.feasibility import Diagnosis, RejectedBy
from topomend.kube.client import Client
from topomend.model.cluster import WatchedPod
from topomend.model.relaunch import Relaunch, Step
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.explainer import Explainer
from topomend.reconcile.metrics import Metrics
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.reservations import Reservations
from topomend.reconcile.result import DONE, RETRY_SECONDS, Result, earliest
from topomend.reconcile.store import Store
from topomend.relaunch import protocol, records
from topomend.relaunch.driver import Chosen, Driver, Outcome
from topomend.relaunch.preflight import Preflight
from topomend.relaunch.waiting_status import Note, Notes
from topomend.runtime.backoff import backoff_seconds
from topomend.runtime.token_bucket import TokenBucket
from topomend.wire.group import RELAUNCH_FINALIZER
from topomend.wire.relaunch import record_name

_log = logging.getLogger(__name__)


class Relauncher:
    """Has the protocol driven (relaunch/). May be used by several threads, a pod each.

    ``relaunches`` bounds the relaunches a second.
    """

    def __init__(  # noqa: PLR0913  the parts it is put together from
        self,
        client: Client,
        store: Store,
        *,
        reservations: Reservations,
        explainer: Explainer,
        announcer: Announcer,
        metrics: Metrics,
        relaunches: TokenBucket,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._store, self._reservations = client, store, reservations
        self._explainer, self._announcer, self._metrics = explainer, announcer, metrics
        self._relaunches, self._clock = relaunches, clock
        self._preflight = Preflight(client)
        self._waiting_status = Notes(client, clock, _rfc3339)

    def wait(self, refusal: Refusal, plan: plans.Wait, limits: Limits, previous: Relaunch | None) -> Result:
        """Say what the pod waits for, in its record too. Raises APIError."""
        note, result = self._explainer.defer(refusal.pod, plan.reason)
        note = replace(note, verdicts=plan.diagnosis.verdicts(), counts=tuple(plan.diagnosis.counts().items()))
        self._note(refusal.pod, note, lambda: self._draft(refusal.pod, limits, previous))
        return earliest(result, self._reservations.backing_off(refusal.pod))

    def relaunch(
        self, pod: PodID, refusal: Refusal, diagnosis: Diagnosis, limits: Limits, previous: Relaunch | None
    ) -> Result:
        """Relaunch a pod whose replacement's place is taken. Raises APIError."""
        if RELAUNCH_FINALIZER not in refusal.pod.finalizers:
            held = self._held_up(refusal, limits, previous)
            if held:
                self._reservations.forget(pod)
                return held
        outcome = self._drive(pod, refusal.version, may_start=True, renamed=renames(refusal.pod, limits))
        if outcome.launched:
            self._metrics.launched_after(self._clock() - refusal.seen)
        result = self._explainer.explain(pod, refusal, diagnosis, outcome.record)
        return earliest(self._ended(pod, outcome, refusal.pod.max_attempts or limits.max_attempts), result)

    def go_on(self, pod: PodID, max_attempts: int) -> Result:
        """Go on with, or put an end to, a relaunch that has begun before a crash or in another call; none is begun.

        Raises APIError.
        """
        return self._ended(pod, self._drive(pod, None, may_start=False), max_attempts)

    def has_begun(self, pod: PodID) -> bool:
        """Whether there is an open record of the pod, or a replacement that waits behind our gate."""
        record = (pod.namespace, self._record_of(pod))
        return record in self._store.snapshot.relaunches or self._waiting_replacement(pod) is not None

    def _held_up(self, refusal: Refusal, limits: Limits, previous: Relaunch | None) -> Result | None:
        """When to try again, where the relaunch cannot begin now though a node admits the pod."""
        pod = refusal.pod
        # A replacement that was refused as well was let go by mistake: each one waits twice as long as the last.
        held = refusal.seen + backoff_seconds(pod.attempt) - self._clock() if pod.attempt else 0.0
        wait = held if held > 0 else self._relaunches.take()
        if wait:
            return Result(wait)
        draft = self._draft(pod, limits, previous)
        if draft is None:
            return DONE
        if not records.any_node_admits(draft):
            why = f"{pod.name} is too large to be recorded: its manifest would not fit an object"
            self._announcer.skipped(pod, why)
            return DONE
        note = self._objection(draft)
        if note is None:
            return None
        self._announcer.held_up(pod, note.message)
        self._note(pod, note, lambda: draft)
        return Result(RETRY_SECONDS)

    def _objection(self, record: Relaunch) -> Note | None:
        lacking = self._preflight.creator_problem(record)
        if lacking:
            return Note("CreatorMayNot", lacking)
        denied = self._preflight.denied(record)
        return Note("NotCreatable", denied) if denied else None

    def _draft(self, pod: WatchedPod, limits: Limits, previous: Relaunch | None) -> Relaunch | None:
        return records.draft(self._client, pod, previous, renames=renames(pod, limits))

    def _note(self, pod: WatchedPod, note: Note, draft: Callable[[], Relaunch | None]) -> None:
        """Say in the pod's record what it waits for; where it has none, in one begun from ``draft``."""
        known = self._store.snapshot.relaunches.get((pod.namespace, record_name(pod.name, pod.uid)))
        if known and known.pod_uid == pod.uid:
            self._waiting_status.add(known, note)
        elif begun := draft():
            self._waiting_status.begin(begun, note)

    def _record_of(self, pod: PodID) -> str:
        """The name of a refused pod's record; its replacement, which may have another name, says which."""
        waiting = self._waiting_replacement(pod)
        return waiting.record if waiting and waiting.record else record_name(pod.name, pod.uid)

    def _waiting_replacement(self, pod: PodID) -> WatchedPod | None:
        gated = self._store.snapshot.gated.get((pod.namespace, pod.name))
        return gated if gated and gated.replaces == pod.uid else None

    def _drive(self, pod: PodID, refused_at: str | None, *, may_start: bool, renamed: bool = False) -> Outcome:
        reservations = {pod}

        def choose(new: WatchedPod, record: Relaunch) -> Chosen:
            reservations.add(PodID(new.namespace, new.name, new.uid))
            rejected_by = RejectedBy(record.refused_by, refused_at)
            return _chosen(
                self._reservations.take(
                    new, lambda snapshot, excluded_nodes: plans.choose(snapshot, new, rejected_by, excluded_nodes)
                )
            )

        previous = partial(records.record_that_made, self._client)
        driver = Driver(self._client, choose, _rfc3339, previous, renames=renamed)
        launched = None
        try:
            outcome = driver.run(pod.namespace, pod.name, pod.uid, self._record_of(pod), may_start=may_start)
            launched = outcome.launched
            return outcome
        finally:
            for place in reservations:
                if launched is None or place.name != launched.name:
                    self._reservations.forget(place)

    def _ended(self, pod: PodID, outcome: Outcome, max_attempts: int) -> Result:
        record = outcome.record
        if record and record.step.ended:
            self._metrics.ended(record.uid, record.step.value.lower())
        if outcome.launched and record:
            _log.info("%s/%s relaunched: %s", pod.namespace, pod.name, outcome.chosen.reason)
            self._announcer.relaunched(outcome.launched, record, outcome.chosen.reason, max_attempts)
        elif record and record.step in (Step.CANCELLED, Step.SUPERSEDED):
            self._announcer.ended(record)
        if isinstance(outcome.last, protocol.Stop):
            return DONE
        if record is None:
            return self._unrecorded(pod, outcome.last)
        if record.step is Step.BLOCKED or outcome.last.waiting_for == protocol.NOT_ITS_MANIFEST:
            self._announcer.blocked(record, outcome.last.waiting_for)
            return Result(RETRY_SECONDS)
        return self._waits(record, outcome.chosen, outcome.last) if record.step is Step.CREATED else Result(1.0)

    def _unrecorded(self, pod: PodID, pause: protocol.Pause) -> Result:
        """The API server takes no record of the pod, which is left as it was."""
        refusal = self._store.snapshot.refused.get(pod.uid)
        if refusal:
            self._announcer.held_up(refusal.pod, pause.waiting_for)
        return Result(RETRY_SECONDS)

    def _waits(self, record: Relaunch, chosen: Chosen, pause: protocol.Pause) -> Result:
        """The replacement is there, and no node admits it."""
        gated = self._store.snapshot.gated.get((record.namespace, record.replacement_name))
        if gated is None:
            return Result(RETRY_SECONDS, on_any_change=True)
        note, result = self._explainer.defer(gated, chosen.reason or pause.waiting_for)
        self._waiting_status.add(record, replace(note, verdicts=chosen.verdicts, counts=chosen.counts))
        return earliest(result, self._reservations.backing_off(gated))


def _chosen(choice: plans.RelaunchOn | plans.Wait) -> Chosen:
    candidates = choice.candidates if isinstance(choice, plans.RelaunchOn) else ()
    return Chosen(
        nodes=tuple(each.node for each in candidates),
        hostnames=tuple(each.hostname for each in candidates),
        verdicts=choice.diagnosis.verdicts(),
        counts=tuple(choice.diagnosis.counts().items()),
        reason=choice.reason,
    )


def _rfc3339() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
