"""A queue of keys to reconcile: each key once, one worker a key at a time, with a growing delay after failures.

The rules are those of client-go's rate limiting queue (util/workqueue): a key added while a worker has it is worked on
once more afterwards; a key that fails waits 5 ms, 10 ms, 20 ms and so on. Keys that are due are in groups, which take
turns: a group with many keys delays another by one key only.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from topomend.runtime.backoff import Exponential
from topomend.runtime.queues.fair_queue import RoundRobin

DELAYS = Exponential(0.005, 60.0)

Key = TypeVar("Key", bound=Hashable)


class WorkQueue(Generic[Key]):
    """Keys with the times at which they are due. ``clock`` is in seconds and only goes forward.

    ``group_of`` names the group of a key; by default there is one group.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, group_of: Callable[[Key], str] = lambda _: ""
    ) -> None:
        self._clock, self._group_of = clock, group_of
        self._changed = threading.Condition()
        self._ready: RoundRobin[tuple[float, Key]] = RoundRobin()
        self._due_at: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = itertools.count()
        self._processing: set[Key] = set()
        self._requeued: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._stopped = False
        self._progressed = clock()

    def add(self, key: Key, after: float = 0.0) -> None:
        """Make ``key`` due in ``after`` seconds, or earlier where it already is."""
        with self._changed:
            self._add(key, self._clock() + after)
            self._changed.notify()

    def get(self) -> Key | None:
        """Wait for the next key that is due; None once the queue is stopped."""
        with self._changed:
            while not self._stopped:
                now = self._clock()
                key = self._pop(now)
                if key is not None:
                    self._processing.add(key)
                    return key
                self._changed.wait(self._heap[0][0] - now if self._heap else None)
            return None

    def done(self, key: Key, *, failed: bool = False, at_least: float = 0.0) -> None:
        """Mark ``key`` as processed. A failed key is due again after its back-off, ``at_least`` so many seconds."""
        with self._changed:
            self._progressed = self._clock()
            self._processing.discard(key)
            due = self._requeued.pop(key, None)
            if failed:
                self._failures[key] = self._failures.get(key, 0) + 1
                delay = min(max(DELAYS.seconds(self._failures[key]), at_least), DELAYS.longest)
                retry = self._clock() + delay
                due = retry if due is None or at_least else min(due, retry)
            else:
                self._failures.pop(key, None)
            if due is not None:
                self._add(key, due)
                self._changed.notify()

    def retry_now(self) -> None:
        """Make every key due that waits after a failure, and count its failures anew: what made them fail is over."""
        with self._changed:
            failed, self._failures = self._failures, {}
            now = self._clock()
            for key in failed:
                if key in self._due_at:
                    self._add(key, now)
            self._changed.notify_all()

    def stop(self) -> None:
        """Make every ``get`` return None."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def clear(self) -> None:
        """Remove every key that no worker has."""
        with self._changed:
            self._due_at.clear()
            self._heap.clear()
            self._ready.clear()
            self._requeued.clear()
            self._failures.clear()

    def stalled(self) -> float:
        """Seconds for which keys have been overdue and no key was finished: the time without any progress."""
        with self._changed:
            now = self._clock()
            return max(0.0, now - max(self._progressed, min(self._due_at.values(), default=now)))

    def __len__(self) -> int:
        with self._changed:
            return len(self._due_at) + len(self._processing)

    def _add(self, key: Key, due: float) -> None:
        if key in self._processing:
            self._requeued[key] = min(due, self._requeued.get(key, due))
        elif due < self._due_at.get(key, float("inf")):
            self._due_at[key] = due
            heapq.heappush(self._heap, (due, next(self._order), key))

    def _pop(self, now: float) -> Key | None:
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due_at.get(key) == due:
                self._ready.push(self._group_of(key), (due, key))
        while (ready := self._ready.pop()) is not None:
            due, key = ready
            if self._due_at.get(key) == due:
                del self._due_at[key]
                return key
        return None
