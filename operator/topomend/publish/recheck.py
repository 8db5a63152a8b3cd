"""Decide when to read an object again although nothing changed here: it may have been deleted or edited."""

import random
from collections.abc import Callable

RECHECK_SECONDS = 300.0
"""The longest time between two re-checks."""


class Recheck:
    """Falls due at once, then after 75 to 100 % of RECHECK_SECONDS, so that nodes started together drift apart.

    ``monotonic`` is a clock in seconds, ``jitter`` returns numbers from 0 to 1.
    """

    def __init__(self, monotonic: Callable[[], float], jitter: Callable[[], float] = random.random) -> None:
        self._monotonic, self._jitter = monotonic, jitter
        self._due = 0.0

    def due(self) -> bool:
        """Whether a re-check is due. If so, the next one is scheduled."""
        if self._monotonic() < self._due:
            return False
        self._due = self._monotonic() + RECHECK_SECONDS * (0.75 + self._jitter() / 4)
        return True
