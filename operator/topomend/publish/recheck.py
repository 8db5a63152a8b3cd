"""When an object is looked at again although nothing changed, in case somebody deleted or edited it."""

import random
from collections.abc import Callable

RECHECK_SECONDS = 300.0
"""At the latest after this long."""


class Recheck:
    """Falls due at once, and again after three quarters of the time or more: nodes started together drift apart."""

    def __init__(self, monotonic: Callable[[], float], jitter: Callable[[], float] = random.random) -> None:
        self._monotonic, self._jitter = monotonic, jitter
        self._due = 0.0

    def due(self) -> bool:
        """Whether it is time; if so, the next time is set."""
        if self._monotonic() < self._due:
            return False
        self._due = self._monotonic() + RECHECK_SECONDS * (0.75 + self._jitter() / 4)
        return True
