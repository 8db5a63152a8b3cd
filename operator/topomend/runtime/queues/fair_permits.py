"""Turns that groups, such as namespaces, take at what they share, and permits that are given out in turn.

Who has to wait asks again later, so nobody is woken: a group that no longer asks loses its turn. Owns the order.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

MAX_GROUPS = 1_000
"""How many groups wait at most; a further one has its turn when some of them have had theirs."""

PATIENCE_SECONDS = 2.0
"""How long after its time a group that had to wait keeps its turn."""


class Turns:
    """The groups that wait, the one that has waited longest first. Not for use by several threads without a lock.

    ``clock`` is in seconds and only goes forward.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: OrderedDict[str, float] = OrderedDict()

    def ahead_of(self, group: str) -> int:
        """The number of groups whose turn is before that of ``group``; those that no longer ask have none."""
        now = self._clock()
        for other in [other for other, until in self._waiting.items() if until < now]:
            del self._waiting[other]
        names = list(self._waiting)
        return names.index(group) if group in self._waiting else len(names)

    def wait(self, group: str, seconds: float) -> None:
        """``group`` asks again after so many seconds, and keeps its place in the order until then."""
        if group in self._waiting or len(self._waiting) < MAX_GROUPS:
            self._waiting[group] = self._clock() + seconds + PATIENCE_SECONDS

    def end(self, group: str) -> None:
        """``group`` has had its turn, or needs none."""
        self._waiting.pop(group, None)


class FairPermits:
    """So many groups at a time may work, each on one thing; those that had to wait take turns."""

    def __init__(self, permits: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._permits = permits
        self._holders: set[str] = set()
        self._turns = Turns(clock)
        self._lock = threading.Lock()

    def take(self, group: str, retry_seconds: float) -> bool:
        """Take a permit for ``group``, or return False: it asks again after ``retry_seconds``."""
        with self._lock:
            if group in self._holders:
                return False
            if len(self._holders) + self._turns.ahead_of(group) >= self._permits:
                self._turns.wait(group, retry_seconds)
                return False
            self._turns.end(group)
            self._holders.add(group)
            return True

    def give_back(self, group: str) -> None:
        """``group`` has done its work."""
        with self._lock:
            self._holders.remove(group)
