"""Who failed is held back: a second after the first failure, twice as long after each further one."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from topomend.model.bounded_dict import BoundedDict

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 300.0

FORGOTTEN_SECONDS = 600.0
"""Who did not fail for so long begins anew."""

MAX_ENTRIES = 10_000


def backoff_seconds(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    return min(FIRST_SECONDS * 2.0 ** (min(failures, 20) - 1), LONGEST_SECONDS) if failures > 0 else 0.0


def _jitter() -> float:
    return random.uniform(0.75, 1.25)  # noqa: S311  jitter, not a secret


@dataclass(frozen=True, slots=True)
class _Failures:
    times: int
    until: float
    last: float


class Backoff:
    """Keys and their failures. May be used by several threads. ``clock`` is in seconds and only goes forward.

    ``jitter`` is by what a hold is multiplied, so that who failed together does not come back together.
    """

    def __init__(self, clock: Callable[[], float], jitter: Callable[[], float] = _jitter) -> None:
        self._clock, self._jitter = clock, jitter
        self._counted: BoundedDict[tuple[str, str], None] = BoundedDict(MAX_ENTRIES)
        self._failures: dict[str, _Failures] = {}
        self._lock = threading.Lock()

    def failed(self, key: str, because_of: str) -> None:
        """``key`` failed once more, by ``because_of``; one that failed by it before did not fail again."""
        now = self._clock()
        with self._lock:
            if (key, because_of) in self._counted:
                return
            self._counted[key, because_of] = None
            self._failures = {
                each: known for each, known in self._failures.items() if now - known.last < FORGOTTEN_SECONDS
            }
            times = self._failures[key].times + 1 if key in self._failures else 1
            self._failures[key] = _Failures(times, now + backoff_seconds(times) * self._jitter(), now)

    def left(self, key: str) -> float:
        """How many seconds ``key`` is held back from now on; 0 where it is not."""
        with self._lock:
            known = self._failures.get(key)
        return max(0.0, known.until - self._clock()) if known else 0.0
