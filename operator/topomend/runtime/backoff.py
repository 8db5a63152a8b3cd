"""Exponential back-off: how long to wait after failures, for every room that retries.

Owns growth, jitter and the counting of failures by key. Leaves what counts as a failure to the rooms that use it.
Source of the rules: k8s.io/client-go/util/flowcontrol/backoff.go; jitter is taken off, so that a limit is never passed.
"""

import random
import threading
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from topomend.base.bounded_dict import BoundedDict

RESET_SECONDS = 600.0
"""After so long without a failure a key starts again with the first delay."""

MAX_ENTRIES = 10_000

_MAX_DOUBLINGS = 60


@dataclass(frozen=True, slots=True)
class Exponential:
    """``first`` seconds after the first failure, twice as long after each further one, at most ``longest``.

    A random part of each delay, up to ``jitter`` of it, is taken off, so that what failed together is not retried
    together.
    """

    first: float
    longest: float
    jitter: float = 0.0

    def seconds(self, failures: int) -> float:
        """The delay after so many failures in a row; 0 after none."""
        if failures <= 0:
            return 0.0
        delay = min(self.first * 2.0 ** min(failures - 1, _MAX_DOUBLINGS), self.longest)
        return delay * random.uniform(1.0 - self.jitter, 1.0)  # noqa: S311  jitter, not a secret

    def __iter__(self) -> Iterator[float]:
        """The delays after the first failure, the second, and so on without end."""
        failures = 0
        while True:
            failures += 1
            yield self.seconds(failures)


class Retry:
    """Failures in a row of one operation. For one thread. Times are seconds of any one clock."""

    def __init__(self, delays: Exponential) -> None:
        self._delays, self._failures = delays, 0
        self.until = 0.0

    def failed(self, now: float, at_least: float = 0.0) -> float:
        """Count a failure. Returns the seconds until the next attempt, ``at_least`` so many."""
        self._failures += 1
        delay = max(self._delays.seconds(self._failures), at_least)
        self.until = now + delay
        return delay

    def succeeded(self) -> None:
        """Start again with the first delay."""
        self.until, self._failures = 0.0, 0


PODS = Exponential(1.0, 300.0, jitter=0.25)
"""For pods that are refused although replay admits them."""


@dataclass(frozen=True, slots=True)
class _Failures:
    count: int
    until: float
    last: float


class Backoff:
    """Failures by key. May be used by several threads. ``clock`` is in seconds and only goes forward."""

    def __init__(self, clock: Callable[[], float], delays: Exponential = PODS) -> None:
        self._clock, self._delays = clock, delays
        self._counted: BoundedDict[tuple[Hashable, str], None] = BoundedDict(MAX_ENTRIES)
        self._failures: BoundedDict[Hashable, _Failures] = BoundedDict(MAX_ENTRIES)
        self._lock = threading.Lock()

    def failed(self, key: Hashable, cause: str) -> None:
        """Count a failure of ``key``. Each ``cause`` counts once, however often it is reported."""
        now = self._clock()
        with self._lock:
            if (key, cause) in self._counted:
                return
            self._counted[key, cause] = None
            before = self._failures.pop(key, None)  # the latest comes last: the oldest makes room
            count = before.count + 1 if before and now - before.last < RESET_SECONDS else 1
            self._failures[key] = _Failures(count, now + self._delays.seconds(count), now)

    def remaining(self, key: Hashable) -> float:
        """Seconds until the back-off of ``key`` ends; 0 where there is none."""
        with self._lock:
            failures = self._failures.get(key)
        return max(0.0, failures.until - self._clock()) if failures else 0.0
