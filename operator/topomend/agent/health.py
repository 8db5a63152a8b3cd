"""Whether the agent works, for its kubelet's probes. Owns the criteria; ``runtime.http.endpoints`` serves them.

Alive is an agent whose loop turns, whatever the API server answers: a restart would not bring that back. Ready is one
whose publications arrive.
"""

import time
from collections.abc import Callable, Mapping

from topomend.runtime.http.endpoints import HEALTH, READINESS, check_page
from topomend.runtime.http.server import Page

STALE_SECONDS = 120.0
"""After how long without progress the agent is unhealthy: several attempts at the longest back-off."""


class Health:
    """Progress as the agent's loop reports it. May be read by several threads. ``clock`` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turned = clock()
        self._published: float | None = None

    def turned(self) -> None:
        """The loop begins another turn."""
        self._turned = self._clock()

    def published(self) -> None:
        """The API server has the node's current state."""
        self._published = self._clock()

    def problem(self) -> str:
        """Why the agent is not alive; empty if it is."""
        age = self._clock() - self._turned
        return f"the loop has not turned for {age:.0f} s" if age > STALE_SECONDS else ""

    def unready(self) -> str:
        """Why the agent is not ready; empty if it is."""
        if self._published is None:
            return "nothing was published yet"
        age = self._clock() - self._published
        return f"nothing was published or confirmed for {age:.0f} s" if age > STALE_SECONDS else ""

    def pages(self) -> Mapping[str, Callable[[], Page]]:
        """The pages for probes, by path."""
        return {HEALTH: check_page(self.problem), READINESS: check_page(self.unready)}
