"""Records all changes of the objects of a list, with times, by a watch beside the test."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException

from tests.waiting import eventually
from verify.e2e.containers.api import API, Object
from verify.e2e.containers.programs import Failed


@dataclass(frozen=True)
class Moment:
    """One change: its time (``time.monotonic``), ADDED, MODIFIED or DELETED, and the object after it."""

    at: float
    change: str
    object: Object


class Timeline:
    """Every change of the objects at ``path`` from now on, in order."""

    def __init__(self, api: API, path: str) -> None:
        self._moments: list[Moment] = []
        self._error: Exception | None = None
        self._over = False
        current = api.get(path)
        for item in current["items"]:
            self._moments.append(Moment(time.monotonic(), "ADDED", item))

        def follow() -> None:
            version = current["metadata"]["resourceVersion"]
            try:
                while True:  # the API server ends every watch after half an hour or more
                    for change, item in api.watch(path, version):
                        version = item["metadata"]["resourceVersion"]
                        if change != "BOOKMARK":
                            self._moments.append(Moment(time.monotonic(), change, item))
            except (OSError, HTTPException, ValueError, KeyError) as error:  # KeyError: a Status has no version
                self._error = error
            self._over = True

        threading.Thread(target=follow, name=f"watch {path}", daemon=True).start()

    def moments(self) -> list[Moment]:
        """All changes so far. Raises Failed if the watch has ended, because changes may be missing."""
        if self._over:
            raise Failed(f"the watch ended: {self._error}")
        return list(self._moments)

    def first(self, goal: str, seconds: float, condition: Callable[[Object], bool], *, since: float = 0.0) -> Moment:
        """Wait for the first change at ``since`` or later with such an object. Raises Failed."""

        def find() -> Moment | None:
            return next(
                (moment for moment in self.moments() if moment.at >= since and condition(moment.object)),
                None,
            )

        return eventually(goal, find, seconds)
