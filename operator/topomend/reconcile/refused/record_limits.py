"""How many records one namespace may have open, and how fast new ones come.

Anybody who may create pods has records written: a pod is refused and deleted, and another, without end. No quota of the
namespace counts its records, and they fill the API server's storage for all. Owns these bounds. Leaves the end of
records to the protocol, and their removal to the relist.
"""

import threading
import time
from collections.abc import Callable

from topomend.cache.snapshot import Snapshot
from topomend.model.relaunch_record import Step
from topomend.runtime.queues.token_bucket import TokenBuckets

MAX_OPEN = 500
"""Open records in one namespace. A pod beyond them waits without one; its events say why."""

MAX_BLOCKED = 10
"""Blocked records in one namespace: each holds the only copy of a pod, a megabyte at most."""

RATE, BURST = 1.0, 50
"""New records of pods that merely wait, by namespace: a second on average, and at once."""

_REMEMBERED = 10_000

BLOCKED = f"{MAX_BLOCKED} relaunches in this namespace are blocked; the next one starts once the API server accepts one"


class RecordLimits:
    """The limits of every namespace. May be used by several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._buckets = TokenBuckets(RATE, BURST, _REMEMBERED, clock)
        self._lock = threading.Lock()

    def may_wait_with_record(self, snapshot: Snapshot, namespace: str) -> bool:
        """Whether another pod that waits may have a record now. Counts it as written."""
        is_full = sum(space == namespace for space, _ in snapshot.relaunches) >= MAX_OPEN
        if is_full:
            return False
        with self._lock:
            return not self._buckets.of(namespace).take()

    def why_not_start(self, snapshot: Snapshot, namespace: str) -> str:
        """Why no further relaunch may start in the namespace now; empty where one may."""
        blocked = sum(
            record.step is Step.BLOCKED for (space, _), record in snapshot.relaunches.items() if space == namespace
        )
        return BLOCKED if blocked >= MAX_BLOCKED else ""
