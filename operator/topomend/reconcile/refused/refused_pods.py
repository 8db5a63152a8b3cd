"""Relaunches of refused and of unbound pods that no controller recreates: started, resumed and reported.

Owns when a relaunch may start (attempts, rate, preflight) and what its record says while the pod waits. Leaves which
nodes to ``decide``, and each request and what its answer means to ``relaunch``.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from topomend.cache.changes.volumes import with_volumes
from topomend.cache.entries import Refusal
from topomend.cache.snapshot import Snapshot
from topomend.decide import plan as plans
from topomend.decide.diagnosis.feasibility import Diagnosis, ExcludedNodes
from topomend.decide.diagnosis.node_status import RejectedBy
from topomend.decide.eligibility import Limits, Treatment, eligibility, renames
from topomend.model.narrowing import ANYWHERE
from topomend.model.pods.scheduling import WatchedPod
from topomend.model.relaunch_record import Relaunch, Step
from topomend.reconcile.collaborators import Collaborators
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.refused.record_limits import RecordLimits
from topomend.reconcile.result import DONE, RETRY_SECONDS, Result, earliest
from topomend.relaunch import messages, records
from topomend.relaunch.driver import Chosen, Driver, Outcome
from topomend.relaunch.preflight import Preflight
from topomend.relaunch.waiting_status import Note, WaitingStatus
from topomend.replay.effort import UNLIMITED, Effort
from topomend.runtime.backoff import PODS
from topomend.runtime.queues.token_bucket import FairTokenBucket
from topomend.runtime.timestamp import timestamp
from topomend.wire.group import CREATOR_MAY_NOT, RELAUNCH_FINALIZER
from topomend.wire.relaunch_record import MAX_VERDICTS, record_name

_log = logging.getLogger(__name__)


class RefusedPods:
    """Drives the relaunch protocol. May be used by several threads, a pod each.

    ``relaunches`` limits how many relaunches start in a second, shared fairly by namespaces.
    """

    def __init__(self, parts: Collaborators, relaunches: FairTokenBucket) -> None:
        self._client, self._store, self._clock = parts.client, parts.store, parts.clock
        self._reservations, self._explainer = parts.reservations, parts.explainer
        self._announcer, self._metrics, self._scale_up = parts.announcer, parts.metrics, parts.scale_up
        self._relaunches, self._volumes, self._devices = relaunches, parts.volumes, parts.devices
        self._record_limits = RecordLimits(parts.clock)
        self._preflight = Preflight(parts.client)
        self._waiting_status = WaitingStatus(parts.client, parts.clock, timestamp)

    def located(self, refusal: Refusal, limits: Limits) -> Refusal | Result:
        """The refusal with what is known of its pod's volumes, where it is to be relaunched; or when to try again.

        A replacement that is narrowed to nodes without them would never be bound.
        """
        if eligibility(refusal.pod, limits).treatment is not Treatment.RELAUNCH:
            return refusal
        later = self._volumes.look_up(refusal.pod)
        if later.after is not None:
            return later
        known = self._store.snapshot.refused.get(refusal.pod.uid)
        return replace(refusal, pod=with_volumes(refusal.pod, known.pod.placement.volumes)) if known else refusal

    def wait(self, refusal: Refusal, plan: plans.Wait, limits: Limits, effort: Effort = UNLIMITED) -> Result:
        """Report the reason why the pod waits, also in its record. Raises APIError."""
        note, result = self._explainer.report_unschedulable(refusal.pod, plan.reason, effort, plan.diagnosis)
        if not plan.diagnosis.candidates:
            self._scale_up.wait((refusal.pod,), infeasible=note.never)
        note = replace(
            note, verdicts=plan.diagnosis.verdicts(MAX_VERDICTS), counts=tuple(plan.diagnosis.counts().items())
        )
        self._write_note(refusal.pod, note, lambda: self._draft(refusal.pod, limits))
        return earliest(result, self._reservations.backing_off(refusal.pod))

    def relaunch(
        self, pod: PodID, refusal: Refusal, diagnosis: Diagnosis, limits: Limits, effort: Effort = UNLIMITED
    ) -> Result:
        """Relaunch a pod whose replacement is assumed on its nodes. Raises APIError."""
        with self._reservations.forgotten_on_error(pod):
            is_claimed = RELAUNCH_FINALIZER in refusal.pod.finalizers
            postponed = None if is_claimed else self._postponed(refusal, limits)
            if postponed:
                self._reservations.forget(pod)
                return postponed
            self._scale_up.release(refusal.pod)
        outcome = self._drive(pod, refusal.version, effort, may_start=True, renamed=renames(refusal.pod, limits))
        if outcome.launched:
            self._metrics.launched_after(self._clock() - refusal.first_seen)
        result = self._explainer.explain(pod, refusal, diagnosis, outcome.record)
        max_attempts = refusal.pod.max_attempts or limits.max_attempts
        return earliest(self._result_of(pod, outcome, max_attempts, effort), result)

    def relaunch_unbound(self, unbound: WatchedPod, max_attempts: int, effort: Effort) -> Result:
        """Relaunch a pod that no scheduler binds to its nodes, for every node that admits it. Raises APIError."""
        pod = PodID.of(unbound)
        return self._result_of(pod, self._drive(pod, None, effort, may_start=True), max_attempts, effort)

    def resume(self, pod: PodID, max_attempts: int, effort: Effort = UNLIMITED, *, lets_go: bool = False) -> Result:
        """Continue or end a relaunch that was started before, by this process or an earlier one; never start one.

        ``lets_go``: its replacement opted out, and is ungated for any node. Raises APIError.
        """
        outcome = self._drive(pod, None, effort, may_start=False, lets_go=lets_go)
        return self._result_of(pod, outcome, max_attempts, effort)

    def is_started(self, pod: PodID) -> bool:
        """Whether the pod has an open record, or a replacement behind the relaunch gate."""
        record = (pod.namespace, self._record_of(pod))
        return record in self._store.snapshot.relaunches or self._gated_replacement(pod) is not None

    def _postponed(self, refusal: Refusal, limits: Limits) -> Result | None:
        """When to try again, where the relaunch may not start now although a node admits the pod."""
        pod = refusal.pod
        if not pod.attempt:
            return self.why_later(pod, limits)
        # A replacement that is refused was ungated by mistake: each further one waits twice as long.
        backoff = refusal.first_seen + PODS.seconds(pod.attempt) - self._clock()
        return Result(backoff) if backoff > 0 else self.why_later(pod, limits)

    def why_later(self, pod: WatchedPod, limits: Limits) -> Result | None:
        """When to try again, where the rate, the records or the API server allow no relaunch now."""
        wait = self._relaunches.take(pod.namespace)
        if wait:
            return Result(wait)
        draft = self._draft(pod, limits)
        if draft is None:
            return DONE
        if not records.fits_an_object(draft):
            self._announcer.skipped(
                pod, f"{pod.name} is not relaunched: its manifest is too large for a Relaunch object"
            )
            return DONE
        blocked = self._record_limits.why_not_start(self._store.snapshot, pod.namespace)
        note = Note("NotCreatable", blocked) if blocked else self._preflight_problem(draft)
        if note is None:
            return None
        self._announcer.relaunch_deferred(pod, note.message)
        self._write_note(pod, note, lambda: draft)
        return Result(RETRY_SECONDS)

    def _preflight_problem(self, record: Relaunch) -> Note | None:
        creator_problem = self._preflight.creator_problem(record)
        if creator_problem:
            return Note(CREATOR_MAY_NOT, creator_problem)
        denied = self._preflight.denied(record)
        return Note("NotCreatable", denied) if denied else None

    def _draft(self, pod: WatchedPod, limits: Limits) -> Relaunch | None:
        return records.draft(self._client, pod, renames=renames(pod, limits))

    def _write_note(self, pod: WatchedPod, note: Note, draft: Callable[[], Relaunch | None]) -> None:
        """Write into the pod's record what it waits for; where it has none, create the record from ``draft``.

        Where the namespace has too many records, or too many new ones, nothing is written: events say the same.
        """
        record = self._store.snapshot.relaunches.get((pod.namespace, record_name(pod.name, pod.uid)))
        if record and record.pod_uid == pod.uid:
            self._waiting_status.add(record, note)
        elif self._record_limits.may_wait_with_record(self._store.snapshot, pod.namespace) and (new_record := draft()):
            self._waiting_status.begin(new_record, note)

    def _record_of(self, pod: PodID) -> str:
        """The name of a refused pod's record. Its replacement knows it, and may have another name than the pod."""
        replacement = self._gated_replacement(pod)
        return replacement.record if replacement and replacement.record else record_name(pod.name, pod.uid)

    def _gated_replacement(self, pod: PodID) -> WatchedPod | None:
        gated = self._store.snapshot.gated.get((pod.namespace, pod.name))
        return gated if gated and gated.replaces == pod.uid else None

    def _drive(  # noqa: PLR0913  how a relaunch may differ
        self,
        pod: PodID,
        refused_at: str | None,
        effort: Effort,
        *,
        may_start: bool,
        renamed: bool = False,
        lets_go: bool = False,
    ) -> Outcome:
        """Run the protocol as far as possible now; forget the pod if it was assumed but not launched."""
        assumed = {pod}

        def choose(replacement: WatchedPod, record: Relaunch) -> Chosen:
            assumed.add(PodID.of(replacement))
            rejected_by = None if record.is_of_unbound else RejectedBy(record.refused_by, refused_at)
            located = with_volumes(replacement, self._volumes.of(replacement))
            asked = widened(located) if record.is_of_unbound else located
            devices = self._devices.on_best_nodes((asked,), effort)

            def decide(snapshot: Snapshot, excluded: ExcludedNodes) -> plans.RelaunchOn | plans.Wait:
                left, surveys = self._devices.left(devices, replacement), self._store.surveys
                decision = plans.choose(
                    snapshot, asked, rejected_by, excluded, devices=left, surveys=surveys, effort=effort
                )
                self._devices.note(replacement, *plans.devices_of(decision))
                return decision

            chosen = _chosen(self._reservations.choose(replacement, decide, effort))
            if chosen.nodes:
                self._scale_up.release(replacement)
            return chosen

        driver = Driver(self._client, choose, timestamp, renames=renamed, draining=lets_go)
        launched = None
        try:
            outcome = driver.run(pod.namespace, pod.name, pod.uid, self._record_of(pod), may_start=may_start)
            launched = outcome.launched
            return outcome
        finally:
            for assumed_pod in assumed:
                if launched is None or assumed_pod.name != launched.name:
                    self._reservations.forget(assumed_pod)

    def _result_of(self, pod: PodID, outcome: Outcome, max_attempts: int, effort: Effort) -> Result:
        """Report how far the relaunch came, and say when to continue it."""
        record = outcome.record
        if record and record.step.ended:
            self._metrics.ended(record.uid, record.step.value.lower())
        if outcome.launched and record:
            _log.info("%s/%s relaunched: %s", pod.namespace, pod.name, outcome.chosen.reason)
            self._announcer.relaunched(outcome.launched, record, outcome.chosen.reason, max_attempts)
        elif record and record.step in (Step.CANCELLED, Step.SUPERSEDED):
            self._announcer.ended(record)
        if isinstance(outcome.last, messages.Stop):
            return DONE
        if record is None:
            return self._unrecorded(pod, outcome.last)
        if record.step is Step.BLOCKED:
            self._announcer.blocked(record, outcome.last.waiting_for)
            return Result(RETRY_SECONDS)
        if record.step is not Step.CREATED:
            return Result(1.0)
        return self._waits(record, outcome.chosen, outcome.last, effort)

    def _unrecorded(self, pod: PodID, pause: messages.Pause) -> Result:
        """The API server rejected the record; the refused pod was not touched."""
        refusal = self._store.snapshot.refused.get(pod.uid)
        if refusal:
            self._announcer.relaunch_deferred(refusal.pod, pause.waiting_for)
        return Result(RETRY_SECONDS)

    def _waits(self, record: Relaunch, chosen: Chosen, pause: messages.Pause, effort: Effort) -> Result:
        """The replacement exists, gated, and no node admits it."""
        gated = self._store.snapshot.gated.get((record.namespace, record.replacement_name))
        if gated is None:
            return Result(RETRY_SECONDS, on_any_change=True)
        note, result = self._explainer.report_unschedulable(gated, chosen.reason or pause.waiting_for, effort)
        if not chosen.nodes:
            self._scale_up.wait((gated,), infeasible=note.never)
        self._waiting_status.add(record, replace(note, verdicts=chosen.verdicts, counts=chosen.counts))
        return earliest(result, self._reservations.backing_off(gated))


def widened(pod: WatchedPod) -> WatchedPod:
    """``pod`` as one to be ungated for every node that admits it: the scheduler could not bind its like to a few."""
    return replace(pod, scheduler_rules=(*pod.scheduler_rules, "unbound"))


def _chosen(choice: plans.RelaunchOn | plans.Wait) -> Chosen:
    return Chosen(
        nodes=choice.nodes if isinstance(choice, plans.RelaunchOn) else (),
        narrowing=choice.narrowing if isinstance(choice, plans.RelaunchOn) else ANYWHERE,
        verdicts=choice.diagnosis.verdicts(MAX_VERDICTS),
        counts=tuple(choice.diagnosis.counts().items()),
        reason=choice.reason,
    )
