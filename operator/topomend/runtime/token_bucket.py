"""A token bucket: a rate on average, and a burst (client-go: flowcontrol.RateLimiter)."""

import threading
import time
from collections.abc import Callable


class TokenBucket:
    """``rate`` tokens a second, at most ``burst`` at once. ``clock`` is in seconds and only goes forward."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._tokens, self._since = float(burst), clock()
        self._lock = threading.Lock()

    def take(self) -> float:
        """Take a token and return 0, or return the seconds until the next one."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._since) * self._rate)
            self._since = now
            if self._tokens >= 1:
                self._tokens -= 1
                return 0.0
            return (1 - self._tokens) / self._rate
