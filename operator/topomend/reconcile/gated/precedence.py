"""Whether others come first although victims have been found for a pod: it is tried again in a moment.

kube-scheduler decides about one pod after the other, and counts those that leave already. Several gated pods are tried
at a time. Owns two cases: pods leave another node, where fewer have to for this one; and another pod of its priority
would find no place any more. Leaves all else about turns to ``preemption``.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice

from topomend.base.bounded_dict import BoundedDict
from topomend.decide.queue import victims
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.gated.sweeps import Look
from topomend.reconcile.nodes.replay_shares import within_shares
from topomend.reconcile.object_faults import ObjectFaults
from topomend.reconcile.store import Store

AWAITED_SECONDS = 15.0
"""How long a pod waits at most for others to leave another node, and for other pods to be tried."""

MAX_AWAITED = 3
"""How many such nodes are looked at for a pod."""

CHOOSING_SECONDS, LEAVING_SECONDS = 0.5, 2.0
"""When a pod is tried again: while kube-scheduler chooses victims, and while they leave or another pod is tried."""

MAX_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class Turn:
    """The pod that is tried, and what ``look`` showed. ``earlier`` and ``later`` ones of its priority still wait, too.

    kube-scheduler would have tried the earlier ones before this one.
    """

    pod: WatchedPod
    earlier: Sequence[WatchedPod]
    later: Sequence[WatchedPod]
    look: Look
    running: victims.Running


class Precedence:
    """For one thread. ``running`` lists the pods of the nodes of these names; ``among`` are those that the operator may
    evict for a pod."""

    def __init__(
        self,
        store: Store,
        faults: ObjectFaults,
        running: Callable[[Collection[str]], victims.Running],
        among: Callable[[WatchedPod, victims.Running], victims.Running],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._faults, self._clock = store, faults, clock
        self._running, self._among = running, among
        self._awaiting: BoundedDict[str, float] = BoundedDict(MAX_ENTRIES)

    def seconds(self, turn: Turn, choice: victims.Preemption) -> float:
        """After how long the pod is tried again, instead of evicting these victims now; 0 where it comes first.

        Raises APIError.
        """
        now = self._clock()
        since = self._awaiting.get(turn.pod.uid, now)
        if not choice.victims or now >= since + AWAITED_SECONDS:
            return 0.0
        seconds = self._seconds(turn, choice)
        if seconds:
            self._awaiting[turn.pod.uid] = since
        return seconds

    def _seconds(self, turn: Turn, choice: victims.Preemption) -> float:
        if any(self._is_kept_out(earlier, turn, choice) for earlier in turn.earlier):
            return LEAVING_SECONDS
        if any(self._fits_only_before(later, turn, choice) for later in turn.later):
            return LEAVING_SECONDS
        # Nodes that others leave now. kube-scheduler counts these others as victims that cost nothing.
        names = list(islice(turn.look.barred, MAX_AWAITED))
        return self._seconds_until_left(turn.pod, self._running(names), choice) if names else 0.0

    def _is_kept_out(self, earlier: WatchedPod, turn: Turn, choice: victims.Preemption) -> bool:
        """Whether the ``earlier`` pod finds a place now, and none once this one has had these victims leave.

        So does one for which nobody need leave: an end was not seen, and the totals are counted anew in its turn.
        """
        with self._faults.of(earlier.namespace, earlier.name):
            now = self._place(earlier, turn.running)
            return now is not None and (not now.victims or self._place_after(turn.pod, choice, earlier, turn) is None)
        return False

    def _fits_only_before(self, later: WatchedPod, turn: Turn, choice: victims.Preemption) -> bool:
        """Whether the ``later`` pod finds a place now, and none after this one, which finds one after it, too."""
        with self._faults.of(later.namespace, later.name):
            now = self._place(later, turn.running)
            if now is None or self._place_after(turn.pod, choice, later, turn) is not None:
                return False
            return self._place_after(later, now, turn.pod, turn) is not None
        return False

    def _place_after(
        self, first: WatchedPod, choice: victims.Preemption, pod: WatchedPod, turn: Turn
    ) -> victims.Preemption | None:
        """Who has to leave for ``pod`` once the ``first`` one is where others left; None where that helps nowhere."""
        then = within_shares(
            self._store,
            lambda effort: victims.carried_out(self._store.snapshot, turn.running, choice, first, effort),
        )
        return self._place(pod, then)

    def _place(self, pod: WatchedPod, running: victims.Running) -> victims.Preemption | None:
        """Who leaves for the pod in its turn, on one of these nodes where it may run; None where nobody does."""
        there = within_shares(
            self._store, lambda effort: victims.where_it_may_run(self._store.snapshot, pod, running, effort)
        )
        names = within_shares(
            self._store, lambda effort: victims.where_scheduler_preempts(self._store.snapshot, pod, there, effort)
        )
        if names:
            return within_shares(
                self._store,
                lambda effort: victims.schedulers_choice(self._store.snapshot, pod, there.on(names), effort),
            )
        chosen = self._choose(pod, self._among(pod, there))
        return chosen if chosen and not (pod.scheduler_rules and chosen.victims) else None

    def _seconds_until_left(self, pod: WatchedPod, there: victims.Running, choice: victims.Preemption) -> float:
        snapshot = self._store.snapshot
        if any(victims.is_choosing(snapshot, name, pods) for name, pods in there.by_node.items()):
            return CHOOSING_SECONDS
        return LEAVING_SECONDS if victims.is_better(self._choose(pod, there), choice) else 0.0

    def _choose(self, pod: WatchedPod, running: victims.Running) -> victims.Preemption | None:
        return within_shares(
            self._store, lambda effort: victims.choose_victims(self._store.snapshot, pod, running, effort)
        )
