"""A queue of keys for reconciling: each key at most once, one worker a key at a time, later after each failure.

The rules are those of client-go's rate limiting queue (util/workqueue): a key added while it is being worked on is
worked on once more afterwards; a failed key waits 5 ms, 10 ms, 20 ms and so on.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

FIRST_BACK_OFF, LONGEST_BACK_OFF = 0.005, 60.0

Key = TypeVar("Key", bound=Hashable)


class WorkQueue(Generic[Key]):
    """The keys that are due, and those that will be. ``clock`` is in seconds and only goes forward."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._due_at: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = itertools.count()
        self._in_work: set[Key] = set()
        self._again: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._stopped = False

    def add(self, key: Key, after: float = 0.0) -> None:
        """Have ``key`` worked on ``after`` seconds from now, or earlier if it was to be."""
        with self._changed:
            self._add(key, self._clock() + after)
            self._changed.notify()

    def get(self) -> Key | None:
        """The next key, when one is due; None once the queue is stopped."""
        with self._changed:
            while not self._stopped:
                now = self._clock()
                key = self._pop(now)
                if key is not None:
                    self._in_work.add(key)
                    return key
                self._changed.wait(self._heap[0][0] - now if self._heap else None)
            return None

    def done(self, key: Key, *, failed: bool = False, at_least: float = 0.0) -> None:
        """``key`` has been worked on; a failed one comes again after its back-off, of ``at_least`` so many seconds."""
        with self._changed:
            self._in_work.discard(key)
            again = self._again.pop(key, None)
            if failed:
                times = self._failures[key] = self._failures.get(key, 0) + 1
                backoff = min(max(FIRST_BACK_OFF * 2 ** min(times - 1, 20), at_least), LONGEST_BACK_OFF)
                tried = self._clock() + backoff
                again = tried if again is None or at_least else min(again, tried)
            else:
                self._failures.pop(key, None)
            if again is not None:
                self._add(key, again)
                self._changed.notify()

    def stop(self) -> None:
        """Have every ``get`` return None."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def clear(self) -> None:
        """Forget every key that waits."""
        with self._changed:
            self._due_at.clear()
            self._heap.clear()
            self._again.clear()
            self._failures.clear()

    def overdue(self) -> float:
        """For how many seconds the most overdue key has been waiting for a worker."""
        with self._changed:
            return max(0.0, self._clock() - min(self._due_at.values(), default=self._clock()))

    def __len__(self) -> int:
        with self._changed:
            return len(self._due_at) + len(self._in_work)

    def _add(self, key: Key, due: float) -> None:
        if key in self._in_work:
            self._again[key] = min(due, self._again.get(key, due))
        elif due < self._due_at.get(key, float("inf")):
            self._due_at[key] = due
            heapq.heappush(self._heap, (due, next(self._order), key))

    def _pop(self, now: float) -> Key | None:
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due_at.get(key) == due:
                del self._due_at[key]
                return key
        return None
