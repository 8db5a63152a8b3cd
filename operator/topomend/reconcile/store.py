"""The one view of the cluster that all threads share, and the only place where it changes."""

import threading
from collections.abc import Callable
from typing import TypeVar

from topomend.cache.changes import Event, apply
from topomend.cache.snapshot import Snapshot

_Result = TypeVar("_Result")


class Store:
    """Holds the view. ``snapshot`` is a value: whoever has read it keeps it as it was."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.snapshot = Snapshot()

    def apply(self, event: Event) -> tuple[Snapshot, Snapshot]:
        """The views before and after ``event``."""
        with self._lock:
            before = self.snapshot
            self.snapshot = apply(before, event)
            return before, self.snapshot

    def decide(self, decision: Callable[[Snapshot], tuple[_Result, tuple[Event, ...]]]) -> _Result:
        """Take a decision and fold what follows from it, with nothing in between: no two take one place."""
        with self._lock:
            result, events = decision(self.snapshot)
            for event in events:
                self.snapshot = apply(self.snapshot, event)
            return result
