"""Whether others come first although victims have been found for a pod: it is tried again in a moment.

kube-scheduler decides about one pod after the other, and counts those that leave already. Several gated pods are tried
at a time, the largest of one priority first. Owns two cases: pods leave another node, where fewer have to for this one;
and an older pod would find no place any more. Leaves all else about turns to ``preemption``.
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
from topomend.reconcile.store import Store

AWAITED_SECONDS = 15.0
"""How long a pod waits at most for others to leave another node, and for older pods."""

MAX_AWAITED = 3
"""How many such nodes are looked at for a pod."""

CHOOSING_SECONDS, LEAVING_SECONDS = 0.5, 2.0
"""When a pod is tried again: while kube-scheduler chooses victims, and while they leave or an older pod is tried."""

MAX_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class Turn:
    """The pod that is tried, the ``older`` ones of its priority that are tried after it, and what ``look`` showed."""

    pod: WatchedPod
    older: Sequence[WatchedPod]
    look: Look
    running: victims.Running


class Precedence:
    """For one thread. ``running`` lists the pods of the nodes of these names."""

    def __init__(
        self,
        store: Store,
        running: Callable[[Collection[str]], victims.Running],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._running, self._clock = store, running, clock
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
        if any(self._comes_first(older, turn, choice) for older in turn.older):
            return LEAVING_SECONDS
        # Nodes that others leave now. kube-scheduler counts these others as victims that cost nothing.
        names = list(islice(turn.look.barred, MAX_AWAITED))
        return self._seconds_until_left(turn.pod, self._running(names), choice) if names else 0.0

    def _comes_first(self, older: WatchedPod, turn: Turn, choice: victims.Preemption) -> bool:
        """Whether the ``older`` pod finds a place now, and none once the younger one has had these victims leave.

        So does one for which nobody need leave: an end was not seen, and the totals are counted anew in its turn.
        """
        now = self._choose(older, turn.running)
        if now is None:
            return False
        then = victims.carried_out(turn.running, choice, turn.pod.pod)
        return not now.victims or self._choose(older, then) is None

    def _seconds_until_left(self, pod: WatchedPod, there: victims.Running, choice: victims.Preemption) -> float:
        snapshot = self._store.snapshot
        if any(victims.is_choosing(snapshot, name, pods) for name, pods in there.by_node.items()):
            return CHOOSING_SECONDS
        return LEAVING_SECONDS if victims.is_better(self._choose(pod, there), choice) else 0.0

    def _choose(self, pod: WatchedPod, running: victims.Running) -> victims.Preemption | None:
        return within_shares(
            self._store, lambda effort: victims.choose_victims(self._store.snapshot, pod, running, effort)
        )
