"""Answers Kueue's admission checks: Ready with a place for each pod of the workload, or Retry with what lacks.

Kueue asks once it has reserved quota for a workload. Retry gives the quota back at once, so that others may use it.
The workload is then kept out of Kueue's queue by ``requeueAt``, until a change makes all its pods fit. It is not
``requeueAfterSeconds`` that does so: Kueue 0.17 keeps the quota for that time
(pkg/controller/core/workload_controller.go:Reconcile returns before it evicts). Ready holds the places until the pods
come, so that no two workloads are admitted for the same room. Owns when which answer is given. Leaves whether pods fit
to ``decide/workload_fit``, and the places to ``cache``.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from topomend.base.bounded_dict import BoundedDict
from topomend.cache.changes import PlacesPromised, PromiseEnded, PromiseProlonged
from topomend.cache.snapshot import PodKey, Snapshot
from topomend.decide.diagnosis.feasibility import ExcludedNodes, any_node_admits
from topomend.decide.gang import Placed, Unplaced, with_placed
from topomend.decide.queue.order import Reservation
from topomend.decide.workload_fit import MAX_PODS, Asked, choose_places, fit_words, members, pins, unfit_words
from topomend.kube.client import Client
from topomend.kube.errors import APIError, Conflict, NotFound, Refused
from topomend.kube.kueue import ADMISSION_CHECKS, FIELD_MANAGER, RESOURCE_FLAVORS, WORKLOADS
from topomend.model.nodes.node import HOSTNAME_LABEL
from topomend.model.pods.queued_workload import PENDING, READY, RETRY, Check, Flavor, PodSet, QueuedWorkload
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.kueue.changed_since import ChangedSince
from topomend.reconcile.kueue.queued import Queued
from topomend.reconcile.metrics.pods import FITS, UNCHECKED, UNDECIDED, UNFIT, Metrics
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.reconcile.nodes.replay_shares import new_shares, within_shares
from topomend.reconcile.object_faults import ObjectFaults
from topomend.reconcile.placement.reservations import GangDecision, Reservations
from topomend.reconcile.store import Store
from topomend.replay.effort import Effort, Overspent, TurnOver
from topomend.runtime.backoff import Exponential, Retry
from topomend.runtime.timestamp import timestamp
from topomend.wire.queued_workload import (
    active_status,
    answer,
    check_status,
    is_active,
    read_flavor,
    requeued_at,
    with_additions,
)

WAIT_SECONDS = 600.0
"""How long Kueue keeps a workload out of its queue that does not fit, unless a change makes it fit before."""

HELD_SECONDS = 60.0
"""How long places are held for pods once their workload is admitted. Before that they are held as long as its quota."""

DECISION_SECONDS = 10.0
"""How long one decision may work: as a group's second one."""

ANSWERING_SECONDS = 10.0
"""After how long no further workload is answered in the same turn: the others are next, and the duty ends in time."""

WAKING_SECONDS = 1.0
"""How long it is worked out at a time which workloads fit now: those left over are first next time. One that was woken,
or for which those woken before it left no room, rests as long."""

REST_SHARE = 4.0
"""A workload for which there is no room rests so many times as long as that took to find."""

UNDECIDED_SECONDS, MAX_UNDECIDED = 60.0, 2
"""How long a workload rests about which a decision takes too long, and after how many such it is let through."""

FAULTS = Exponential(1.0, 60.0)
"""How long a workload rests that could not be answered: a request about it was refused, or something is malformed."""

MAX_CHANGED = 20
"""Up to how many changed nodes are asked alone whether they admit a pod of a workload that waits."""

LIST_SECONDS = 300.0
"""After how long everything is listed again, which repairs gaps in the watches."""

FLAVOR_SECONDS, MAX_FLAVORS = 10.0, 1_000
"""How long a ResourceFlavor is known without asking again, and of how many."""

MAX_REMEMBERED = 2_000
"""Workloads of which it is remembered what Kueue adds to their pods, and when they were woken."""

BY_CHECK = "AdmissionCheck"
"""Kueue's reason for taking quota back from a workload one of whose checks said Retry."""

_LARGE = "the workload has many pods, or many nodes have changed"

_log = logging.getLogger(__name__)


class NumaFit:
    """The checks of ``queued``. For one thread. ``reserved`` are the places that gated pods have."""

    def __init__(  # noqa: PLR0913  the parts it asks
        self,
        client: Client,
        store: Store,
        queued: Queued,
        reservations: Reservations,
        *,
        namespaces: NamespaceLimits,
        reserved: Callable[[], Sequence[Reservation]],
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._store, self._queued, self._clock = client, store, queued, clock
        self._reservations, self._namespaces, self._reserved = reservations, namespaces, reserved
        self._metrics, self._waiting = metrics, 0
        metrics.show_while_leading(metrics.kueue_waiting, lambda: self._waiting)
        self._faults = ObjectFaults(_log, "its admission check is not answered", clock)
        self._flavors: BoundedDict[str, tuple[Flavor, float]] = BoundedDict(MAX_FLAVORS)
        self._assigned: BoundedDict[str, tuple[PodSet, ...]] = BoundedDict(MAX_REMEMBERED)
        self._rests: BoundedDict[str, float] = BoundedDict(MAX_REMEMBERED)
        self._failed: BoundedDict[str, Retry] = BoundedDict(MAX_REMEMBERED)
        self._undecided: BoundedDict[str, int] = BoundedDict(MAX_REMEMBERED)
        self._left: set[PodKey] = set()
        self._unfit: BoundedDict[str, None] = BoundedDict(MAX_REMEMBERED)
        self._changed = ChangedSince()
        self._asked: dict[PodKey, int] = {}
        self._listed = float("-inf")

    def check(self) -> None:
        """Answer what is asked, hold what was promised, and wake what fits now. Raises APIError."""
        if self._clock() > self._listed + LIST_SECONDS:
            self._queued.missed()
            self._listed = self._clock()
        self._queued.refresh()
        self._activate()
        until = self._clock() + ANSWERING_SECONDS
        for workload in self._queued.due():
            if self._clock() >= until:
                break
            if self._is_settled(workload):
                self._queued.done(workload)
        self._hold()
        self._wake()

    def _is_settled(self, workload: QueuedWorkload) -> bool:
        """Look at the workload. Returns whether that is done; what fails is tried again after a rest."""
        retry = self._failed.get(workload.uid)
        if retry and self._clock() < retry.until:
            return False
        with self._faults.of(workload.namespace, workload.name):
            is_settled = self._look_at(workload)
            self._failed.pop(workload.uid, None)
            return is_settled
        retry = self._failed[workload.uid] = retry or Retry(FAULTS)
        retry.failed(self._clock())
        return False

    def _activate(self) -> None:
        """Tell Kueue that our checks are answered: it admits nothing by a check that is not active."""
        for name, content in self._queued.checks.items():
            with self._faults.of("admissioncheck", name):
                if is_active(content):
                    continue
                status = active_status(content, timestamp())
                applied = self._client.apply(
                    ADMISSION_CHECKS, name, status, subresource="status", manager=FIELD_MANAGER
                )
                self._queued.checks = {**self._queued.checks, name: applied}

    def _look_at(self, workload: QueuedWorkload) -> bool:
        """Do what this version of the workload needs. Returns whether that is done."""
        states = {check.state for check in self._ours(workload)}
        if workload.over or workload.evicted or not workload.reserved:
            self._store.apply(PromiseEnded(*_key(workload)))
            self._keep_out(_key(workload))
        elif workload.admitted:
            self._undecided.pop(workload.uid, None)  # it was let through
            self._prolong(workload)
        elif PENDING in states and workload.requeue_at:
            return self._requeue(workload)  # Kueue reserved quota meanwhile, and would take no answer
        elif PENDING in states or (states == {READY} and _key(workload) not in self._store.snapshot.promises):
            return self._answer(workload)  # where it is Ready, an operator before this one has held the places
        return True

    def _ours(self, workload: QueuedWorkload) -> list[Check]:
        return [check for name, check in sorted(workload.checks.items()) if name in self._queued.checks]

    def _answer(self, workload: QueuedWorkload) -> bool:
        """Decide, and say so. Returns whether it was decided. Raises APIError."""
        try:
            return self._decide(workload)
        except Conflict:
            return True  # it has changed meanwhile, and its new version is looked at

    def _decide(self, workload: QueuedWorkload) -> bool:
        if workload.pods > MAX_PODS:
            return self._let_through(workload, f"not checked: {workload.pods} pods are more than {MAX_PODS}")
        if self._undecided.get(workload.uid, 0) >= MAX_UNDECIDED:
            return self._let_through(workload, "not checked, because a decision takes too long")
        self._unfit.pop(workload.uid, None)
        pod_sets = self._as_admitted(workload)
        self._assigned[workload.uid] = pod_sets
        before, began = self._store.snapshot, self._clock()
        asked_on = self._changed.number_of(before)
        try:
            chosen = self._choose(workload, pod_sets)
        except (Overspent, TurnOver) as error:
            self._metrics.kueue_decided(UNDECIDED, self._clock() - began)
            self._undecided[workload.uid] = self._undecided.get(workload.uid, 0) + 1
            self._rest(workload, UNDECIDED_SECONDS)
            self._refuse(workload, asked_on, f"not decided, because that takes too long: {str(error) or _LARGE}")
            return True
        if chosen is None:
            return False  # nodes change all the time
        self._undecided.pop(workload.uid, None)
        self._metrics.kueue_decided(UNFIT if isinstance(chosen, str) else FITS, self._clock() - began)
        if isinstance(chosen, str):
            self._refuse(workload, asked_on, chosen)
            return True
        hosts = {} if self._namespaces.is_steered(workload.namespace) else pins(before, pod_sets, chosen)
        self._promise(workload, pod_sets, chosen)
        try:
            self._say(workload, READY, fit_words(chosen), hosts)
        except Refused:
            self._store.apply(PromiseEnded(*_key(workload)))
            raise
        return True

    def _let_through(self, workload: QueuedWorkload, words: str) -> bool:
        """Leave the workload to Kueue's quota, and each of its pods to kube-scheduler and kubelet."""
        self._metrics.kueue_decided(UNCHECKED, 0.0)
        self._say(workload, READY, words)
        return True

    def _refuse(self, workload: QueuedWorkload, asked_on: int, words: str) -> None:
        """Give the quota back; whatever changes after the snapshot ``asked_on`` may make the workload fit."""
        self._asked[_key(workload)] = asked_on
        self._unfit[workload.uid] = None
        self._say(workload, RETRY, words)

    def is_to_be_kept_out(self, key: PodKey) -> bool:
        """Whether Kueue takes quota back from this workload because it did not fit, and may queue it at once.

        May be called by another thread, and returns at once.
        """
        workload = self._queued.get(key)
        if workload is None or workload.uid not in self._unfit:
            return False
        return workload.evicted == BY_CHECK and not (workload.over or workload.requeue_at)

    def keep_out(self, key: PodKey) -> None:
        """Keep a workload out of Kueue's queue that ``is_to_be_kept_out``; any other is left alone.

        Call it as soon as a watch has brought the workload: a moment later Kueue reserves quota once more. So this is
        for whatever version it has by then. What fails here is done by ``check``. May be called by another thread.
        """
        try:
            self._keep_out(key)
        except APIError as error:
            _log.debug("%s/%s is not kept out of its queue yet: %s", *key, error)

    def _keep_out(self, key: PodKey) -> None:
        """As ``keep_out``. Raises APIError."""
        workload = self._queued.get(key)
        if workload is None or not self.is_to_be_kept_out(key):
            return
        until = timestamp(datetime.now(UTC) + timedelta(seconds=WAIT_SECONDS))
        self._client.merge(WORKLOADS, key[1], requeued_at(workload, until, any_version=True), key[0], "status")
        self._unfit.pop(workload.uid, None)

    def _requeue(self, workload: QueuedWorkload) -> bool:
        """Have Kueue keep the workload out of its queue no longer. Returns whether that is written.

        Where the workload has changed meanwhile it is not, and its new version is looked at.
        """
        try:
            patch = requeued_at(workload, None)
            self._client.merge(WORKLOADS, workload.name, patch, workload.namespace, "status")
        except Conflict:
            return False
        return True

    def _as_admitted(self, workload: QueuedWorkload) -> tuple[PodSet, ...]:
        """The pod sets with what Kueue adds to their pods: of flavors and of other checks. Raises APIError."""
        others = [check for name, check in workload.checks.items() if name not in self._queued.checks]
        return tuple(
            with_additions(pod_set, map(self._flavor, pod_set.flavors), others) for pod_set in workload.pod_sets
        )

    def _flavor(self, name: str) -> Flavor:
        known = self._flavors.get(name)
        if known and self._clock() < known[1]:
            return known[0]
        try:
            flavor = read_flavor(self._client.get(RESOURCE_FLAVORS, name))
        except NotFound:
            flavor = Flavor()
        self._flavors[name] = flavor, self._clock() + FLAVOR_SECONDS
        return flavor

    def _choose(self, workload: QueuedWorkload, pod_sets: Sequence[PodSet]) -> tuple[Placed, ...] | str | None:
        """A place for each pod, assumed there; why there is none; or None where that is not known yet."""
        pods = _by_set(pod_sets, workload)
        together = not self._namespaces.is_steered(workload.namespace)
        asked_on = [self._store.snapshot]

        def choose(snapshot: Snapshot, excluded: Mapping[str, ExcludedNodes], effort: Effort) -> GangDecision:
            asked_on[0] = snapshot
            return choose_places(snapshot, pods, self._conditions(effort, excluded), together=together)

        def decide(effort: Effort) -> GangDecision | None:
            every = [pod for of_set in pods.values() for pod in of_set]
            return self._reservations.choose_for_all(every, partial(choose, effort=effort), effort)

        chosen = within_shares(self._store, decide, DECISION_SECONDS)
        if isinstance(chosen, Unplaced):
            return within_shares(self._store, partial(unfit_words, asked_on[0], chosen))
        return chosen

    def _conditions(self, effort: Effort, excluded: Mapping[str, ExcludedNodes]) -> Asked:
        for_one = partial(new_shares, DECISION_SECONDS)
        return Asked(self._reserved(), excluded, self._store.surveys, effort, for_one)

    def _promise(self, workload: QueuedWorkload, pod_sets: Sequence[PodSet], chosen: Sequence[Placed]) -> None:
        by_name = {each.pod.name: each for each in chosen if each.node}
        places = {
            pod_set.name: tuple(
                (by_name[pod.name].pod.pod, by_name[pod.name].node) for pod in members(pod_set) if pod.name in by_name
            )
            for pod_set in pod_sets
        }
        until = self._clock() + HELD_SECONDS
        self._store.apply(PlacesPromised(*_key(workload), workload.owner, places, until))

    def _prolong(self, workload: QueuedWorkload) -> None:
        self._store.apply(PromiseProlonged(*_key(workload), self._clock() + HELD_SECONDS))

    def _hold(self) -> None:
        """Hold places as long as their workload has quota and is not admitted: another check may take its time."""
        soon = self._clock() + HELD_SECONDS / 2
        for key, promise in self._store.snapshot.promises.items():
            workload = self._queued.get(key)
            if promise.until < soon and workload and workload.reserved and not (workload.admitted or workload.evicted):
                self._prolong(workload)

    def _say(self, workload: QueuedWorkload, state: str, words: str, hosts: Mapping[str, str] | None = None) -> None:
        """Write the answer of each of our checks. A workload that has changed meanwhile is looked at again."""
        now = timestamp()
        entries = [
            answer(
                check.name,
                state,
                words,
                now,
                pins=None if number else hosts,
                label=HOSTNAME_LABEL,
            )
            for number, check in enumerate(self._ours(workload))
        ]
        status = check_status(workload, entries)
        self._client.apply(
            WORKLOADS, workload.name, status, workload.namespace, subresource="status", manager=FIELD_MANAGER
        )
        _log.info("%s/%s: %s: %s", workload.namespace, workload.name, state, words)

    # Waking

    def _wake(self) -> None:
        """Have Kueue take those into its queue again that fit now, as many of them as fit together."""
        waiting = [workload for workload in self._queued.all() if self._waits(workload)]
        keys, self._waiting = {_key(workload) for workload in waiting}, len(waiting)
        for key in [key for key in self._asked if key not in keys and not self._may_wait(key)]:
            del self._asked[key]
        until, now = self._clock() + WAKING_SECONDS, self._store.snapshot
        scratch, number = now, self._changed.number_of(now)
        turns = deque(sorted(waiting, key=lambda workload: _key(workload) not in self._left))
        while turns and self._clock() <= until:
            workload = turns.popleft()
            if self._clock() < self._rests.get(workload.uid, float("-inf")):
                continue
            with self._faults.of(workload.namespace, workload.name):
                scratch = self._wake_one(workload, now, number, scratch)
        self._left = {_key(workload) for workload in turns}

    def _may_wait(self, key: PodKey) -> bool:
        """Whether Kueue takes the workload's quota back, so that it waits in a moment."""
        workload = self._queued.get(key)
        return workload is not None and workload.reserved and not workload.admitted

    def _waits(self, workload: QueuedWorkload) -> bool:
        """Whether Kueue keeps the workload out of its queue because of our checks alone."""
        if workload.reserved or workload.over or not workload.requeue_at or workload.evicted != BY_CHECK:
            return False
        asked = [name for name, check in workload.checks.items() if check.retries]
        return bool(asked) and all(name in self._queued.checks for name in asked)

    def _wake_one(self, workload: QueuedWorkload, now: Snapshot, number: int, scratch: Snapshot) -> Snapshot:
        """Wake the workload if it fits in ``scratch``: the snapshot ``now`` of this number, and those woken before it.

        Returns the snapshot in which its pods have their places too.
        """
        key = _key(workload)
        before = self._asked.get(key)
        if workload.uid in self._undecided:
            return self._woken(workload, number, scratch)
        if before == number:
            return scratch
        pod_sets = self._assigned.get(workload.uid, workload.pod_sets)
        if sum(pod_set.count for pod_set in pod_sets) > MAX_PODS:
            return self._woken(workload, number, scratch)  # it is let through, unless Kueue assigns fewer pods
        pods, began = _by_set(pod_sets, workload), self._clock()
        try:
            if before is not None and not _may_fit_now(self._changed.since(before), now, pod_sets):
                self._asked[key] = number
                return scratch
            excluded = {pod.uid: self._reservations.excluded(pod) for of_set in pods.values() for pod in of_set}
            effort = new_shares(DECISION_SECONDS)
            chosen = choose_places(scratch, pods, self._conditions(effort, excluded))
        except (Overspent, TurnOver) as error:
            _log.debug("%s/%s: not asked about now: %s", *key, error)
            self._asked[key] = number
            self._rest(workload, UNDECIDED_SECONDS)
            return scratch
        if not isinstance(chosen, Unplaced):
            return self._woken(workload, number, with_placed(scratch, chosen), otherwise=scratch)
        if scratch is now:
            self._asked[key] = number
            self._rest(workload, REST_SHARE * (self._clock() - began))
        else:
            self._rest(workload)  # those before it may not take their places after all
        return scratch

    def _woken(
        self, workload: QueuedWorkload, number: int, scratch: Snapshot, otherwise: Snapshot | None = None
    ) -> Snapshot:
        """Have Kueue queue the workload again. Returns ``scratch``, or ``otherwise`` where its new version is next."""
        if not self._requeue(workload):
            return otherwise or scratch
        self._asked[_key(workload)] = number
        self._rest(workload)
        _log.info("%s/%s: is requeued, for it may fit now", workload.namespace, workload.name)
        return scratch

    def _rest(self, workload: QueuedWorkload, seconds: float = WAKING_SECONDS) -> None:
        """Do not ask for so long whether the workload fits now."""
        self._rests[workload.uid] = self._clock() + seconds


def _may_fit_now(changed: Collection[str], now: Snapshot, pod_sets: Sequence[PodSet]) -> bool:
    """Whether one of the ``changed`` nodes admits a pod of the workload: else it fits no more than before.

    Where many have changed, remembered answers are quicker. Raises Overspent.
    """
    return len(changed) > MAX_CHANGED or any(
        any_node_admits(now, changed, pod_set.pod.pod, pod_set.pod.placement, new_shares()) for pod_set in pod_sets
    )


def _key(workload: QueuedWorkload) -> PodKey:
    return workload.namespace, workload.name


def _by_set(pod_sets: Sequence[PodSet], workload: QueuedWorkload) -> dict[str, tuple[WatchedPod, ...]]:
    """The pods of each set that has any, with the place of their workload in the order of turns."""
    return {
        pod_set.name: tuple(
            replace(pod, priority=workload.priority, creation_time=workload.creation_time) for pod in members(pod_set)
        )
        for pod_set in pod_sets
        if pod_set.count
    }
