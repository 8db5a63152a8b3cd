"""Who failed is held back: a second after the first failure, twice as long after each further one."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 300.0

FORGOTTEN_SECONDS = 600.0
"""Who did not fail for so long begins anew."""


def hold_seconds(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    return min(FIRST_SECONDS * 2.0 ** (min(failures, 20) - 1), LONGEST_SECONDS) if failures > 0 else 0.0


@dataclass(frozen=True, slots=True)
class _Failures:
    times: int
    last: float
    because_of: str


class BackOff:
    """Keys and their failures. May be used by several threads. ``clock`` is in seconds and only goes forward."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[str, _Failures] = {}
        self._lock = threading.Lock()

    def failed(self, key: str, because_of: str) -> None:
        """``key`` failed once more, by ``because_of``; one that failed by it last time did not fail again."""
        now = self._clock()
        with self._lock:
            self._failures = {
                each: known for each, known in self._failures.items() if now - known.last < FORGOTTEN_SECONDS
            }
            known = self._failures.get(key)
            if known is None or known.because_of != because_of:
                self._failures[key] = _Failures(known.times + 1 if known else 1, now, because_of)

    def left(self, key: str) -> float:
        """How many seconds ``key`` is held back from now on; 0 where it is not."""
        with self._lock:
            known = self._failures.get(key)
        return max(0.0, known.last + hold_seconds(known.times) - self._clock()) if known else 0.0
