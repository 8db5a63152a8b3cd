"""Token buckets: a rate on average, and a burst (client-go: flowcontrol.RateLimiter). Some are shared."""

import math
import threading
import time
from collections.abc import Callable

from topomend.base.bounded_dict import BoundedDict
from topomend.runtime.queues.fair_permits import MAX_GROUPS, Turns


class TokenBucket:
    """``rate`` tokens a second, at most ``burst`` at once. ``clock`` is in seconds and only goes forward."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._tokens, self._since = float(burst), clock()
        self._lock = threading.Lock()

    def take(self) -> float:
        """Take a token and return 0, or return the seconds until the next one."""
        with self._lock:
            wait = self._seconds_until(1)
            if not wait:
                self._tokens -= 1
            return wait

    def spend(self, tokens: int) -> None:
        """Take so many, also where there are fewer: what is missing has to come before there is the next one."""
        with self._lock:
            self._seconds_until(0)
            self._tokens -= tokens

    def seconds_until(self, tokens: int) -> float:
        """The seconds until there are so many; 0 if there are."""
        with self._lock:
            return self._seconds_until(tokens)

    def _seconds_until(self, tokens: int) -> float:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._since) * self._rate)
        self._since = now
        return max(0.0, (tokens - self._tokens) / self._rate)


class TokenBuckets:
    """A bucket of the same rate and burst for each key. Not for use by several threads without a lock.

    At most ``most`` are kept: the one that was used least recently is forgotten first, for it is fullest.
    """

    def __init__(self, rate: float, burst: int, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._buckets: BoundedDict[str, TokenBucket] = BoundedDict(most)

    def of(self, key: str) -> TokenBucket:
        """The bucket of this key."""
        bucket = self._buckets.pop(key, None) or TokenBucket(self._rate, self._burst, self._clock)
        self._buckets[key] = bucket
        return bucket

    def __len__(self) -> int:
        return len(self._buckets)


class FairTokenBucket:
    """A bucket that groups share, such as namespaces: no group uses up what is for the others.

    Each group has a bucket of the same rate and half the burst, so that one group alone always leaves half the burst to
    others. Where several together use up the burst, those that had to wait take turns, a token each.
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._all = TokenBucket(rate, burst, clock)
        self._buckets = TokenBuckets(rate, math.ceil(burst / 2), MAX_GROUPS, clock)
        self._turns = Turns(clock)
        self._lock = threading.Lock()

    def take(self, group: str) -> float:
        """Take a token for ``group`` and return 0, or return the seconds after which to ask again."""
        with self._lock:
            bucket = self._buckets.of(group)
            wait = bucket.seconds_until(1)
            if wait:
                return wait
            wait = self._all.seconds_until(self._turns.ahead_of(group) + 1)
            if wait:
                self._turns.wait(group, wait)
                return wait
            bucket.take()
            self._all.take()
            self._turns.end(group)
            return 0.0

    def spend(self, group: str, tokens: int) -> None:
        """Take so many more for ``group`` after ``take``: what that was taken for turned out to cost so much."""
        with self._lock:
            self._buckets.of(group).spend(tokens)
            self._all.spend(tokens)
