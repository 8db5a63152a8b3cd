"""Finds requests that go out while their thread holds a lock: whoever needs the lock waits for the API server."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from topomend.kube.client import Client

_new_lock = threading.Lock


class _Held(threading.local):
    def __init__(self) -> None:
        self.places: list[str] = []


_held = _Held()


class WatchedLock:
    """A lock that knows the threads which hold it, and the line that made it."""

    def __init__(self) -> None:
        frame = sys._getframe(1)
        self._lock, self._place = _new_lock(), f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As of a lock."""
        taken = self._lock.acquire(blocking, timeout)
        if taken:
            _held.places.append(self._place)
        return taken

    def release(self) -> None:
        """As of a lock. Another thread may release it, as some conditions do."""
        self._lock.release()
        if self._place in _held.places:
            _held.places.remove(self._place)

    def locked(self) -> bool:
        """As of a lock."""
        return self._lock.locked()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def held_here() -> list[str]:
    """The lines that made the locks which this thread holds."""
    return list(_held.places)


@contextmanager
def no_request_under_a_lock() -> Iterator[list[str]]:
    """Every lock that is made in it is watched; ends with an error where a request went out under one of them."""
    found: list[str] = []
    sent = Client._sent

    @contextmanager
    def watched(client: Client, method: str, target: str, *arguments: Any, **options: Any) -> Iterator[Any]:
        found.extend(f"{method} {target} under the lock of {place}" for place in held_here())
        with sent(client, method, target, *arguments, **options) as answer:
            yield answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "Lock", WatchedLock)
        patch.setattr(Client, "_sent", watched)
        yield found
    assert not found, found
