"""What a drain has done, a line a thing as it happens, and what it could not do."""

import threading
from collections import Counter
from collections.abc import Callable


class Journal:
    """Counts and says. ``dry`` is whether nothing is to be done, only said. May be used by several threads."""

    def __init__(self, say: Callable[[str], None], *, dry: bool) -> None:
        self.dry = dry
        self._say, self._lock = say, threading.Lock()
        self._done: Counter[str] = Counter()
        self._left: dict[str, str] = {}

    def did(self, what: str, line: str) -> None:
        """Something of the kind ``what`` was done, or would be."""
        with self._lock:
            self._done[what] += 1
            self._say(f"{line} (dry run)" if self.dry else line)

    def note(self, line: str) -> None:
        """Something to know that is neither done nor left."""
        with self._lock:
            self._say(line)

    def leave(self, thing: str, why: str) -> None:
        """``thing`` is still as it was, and why."""
        with self._lock:
            self._left[thing] = why

    def settle(self, thing: str) -> None:
        """``thing`` is no longer left."""
        with self._lock:
            self._left.pop(thing, None)

    @property
    def left(self) -> tuple[tuple[str, str], ...]:
        """What is left, each with the reason."""
        with self._lock:
            return tuple(sorted(self._left.items()))

    def count(self) -> int:
        """How many things were done so far."""
        with self._lock:
            return self._done.total()

    def summary(self) -> str:
        """One line: how many things of each kind."""
        with self._lock:
            counts = ", ".join(f"{number} {what}" for what, number in sorted(self._done.items()))
        done = "would be drained" if self.dry else "drained"
        return f"{done}: {counts or 'nothing was left to do'}"
