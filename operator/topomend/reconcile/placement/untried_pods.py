"""Pods that fit nowhere now, and for which others may be evicted in a moment.

kube-scheduler decides about one pod after the other: it has victims leave for an older pod and keeps the place before
it looks at a younger one of the same priority. A gated pod is given time to find a node before anybody is evicted for
it. A younger one that fits meanwhile would take its place, and the older one would wait until that ends. So it stays
gated until the older pod was tried, for SECONDS at most. Owns which pods these are. Leaves whether the younger one is
in the way to ``decide/queue/order``.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence

from topomend.base.bounded_dict import BoundedDict
from topomend.decide.queue.order import is_waiting
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.store import Store
from topomend.wire.group import FIT_GATE

SECONDS = 3.5
"""How long after it was gated a pod is waited for: it is tried after two seconds, and attempts take turns."""

MAX_PODS = 50
"""Of how many pods of one namespace and priority this is known, those that began to wait first."""

MAX_ENTRIES = 10_000


def may_preempt(pod: WatchedPod) -> bool:
    """Whether others may be evicted for the gated pod.

    No place can be held for a replacement, which is gated otherwise, nor for a pod that was refused. Whether a
    scheduler of its own would preempt, and keep the place, nobody knows.
    """
    return pod.preempts and pod.gates == (FIT_GATE,) and "schedulerName" not in pod.scheduler_rules


class UntriedPods:
    """The pods that fit nowhere and were not tried yet. For any thread.

    Keeps their names alone: a pod may be large, and is read in the snapshot as long as it is there.
    ``lowest`` is the lowest priority that a pod of the cluster may have; None where nobody is evicted for others.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock, self._lock = store, clock, threading.Lock()
        self._waiting: BoundedDict[tuple[str, int], tuple[PodID, ...]] = BoundedDict(MAX_ENTRIES)
        self._tried: BoundedDict[str, None] = BoundedDict(MAX_ENTRIES)
        self.lowest: int | None = 0

    def add(self, pod: WatchedPod) -> None:
        """Add a pod that no node admits now, if others may be evicted for it soon."""
        if self.lowest is None or pod.priority <= self.lowest or not may_preempt(pod):
            return
        with self._lock:
            others = [PodID.of(other) for other in self._untried(pod) if other.uid != pod.uid]
            self._waiting[pod.namespace, pod.priority] = (*others, PodID.of(pod))[:MAX_PODS]

    def tried(self, pod: WatchedPod) -> None:
        """Have nobody wait for this pod any more: its place is held, or nothing makes room for it."""
        with self._lock:
            self._tried[pod.uid] = None

    def before(self, pod: WatchedPod) -> Sequence[WatchedPod]:
        """Those that come before ``pod`` in its namespace and have its priority."""
        if self.lowest is None:
            return []
        with self._lock:
            return [other for other in self._untried(pod) if other.order < pod.order]

    def _untried(self, pod: WatchedPod) -> Iterator[WatchedPod]:
        """Those of the pod's namespace and priority that still wait and are tried soon."""
        snapshot, now = self._store.snapshot, self._clock()
        for other in self._waiting.get((pod.namespace, pod.priority), ()):
            key = other.namespace, other.name
            gated = snapshot.gated.get(key)
            if gated is None or gated.uid != other.uid or other.uid in self._tried:
                continue
            if now - snapshot.gated_since[key] < SECONDS and is_waiting(snapshot, gated):
                yield gated
