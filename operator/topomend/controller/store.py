"""The one view of the cluster that all threads share, and the only place where it changes."""

import threading
from collections.abc import Callable
from typing import TypeVar

from topomend.watch.events import Event, fold
from topomend.watch.view import ClusterView

_Result = TypeVar("_Result")


class Store:
    """Holds the view. ``view`` is a value: whoever has read it keeps it as it was."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.view = ClusterView()

    def fold(self, event: Event) -> tuple[ClusterView, ClusterView]:
        """The views before and after ``event``."""
        with self._lock:
            before = self.view
            self.view = fold(before, event)
            return before, self.view

    def decide(self, decision: Callable[[ClusterView], tuple[_Result, tuple[Event, ...]]]) -> _Result:
        """Take a decision and fold what follows from it, with nothing in between: no two take one place."""
        with self._lock:
            result, events = decision(self.view)
            for event in events:
                self.view = fold(self.view, event)
            return result
