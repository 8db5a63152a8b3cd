"""Report a drain: one line for each thing that it did, and the things that it could not drain.

Owns counting and output. Leaves the words of each line to the step that writes it.
"""

import threading
from collections import Counter
from collections.abc import Callable


class Journal:
    """Counts what was done and prints it through ``say``, which gets one line a call.

    ``dry`` is whether the drain only reports what it would do. Several threads may use it at once.
    """

    def __init__(self, say: Callable[[str], None], *, dry: bool) -> None:
        self.dry = dry
        self._say, self._lock = say, threading.Lock()
        self._done: Counter[str] = Counter()
        self._not_drained: dict[str, str] = {}

    def did(self, kind: str, line: str) -> None:
        """Count one thing of the kind ``kind``, such as "pods cleaned", and print ``line``."""
        with self._lock:
            self._done[kind] += 1
            self._say(f"{line} (dry run)" if self.dry else line)

    def note(self, line: str) -> None:
        """Print a line that counts neither as done nor as not done."""
        with self._lock:
            self._say(line)

    def report_remaining(self, thing: str, why: str) -> None:
        """Report at the end that ``thing`` could not be drained, and why and what to do."""
        with self._lock:
            self._not_drained[thing] = why

    def resolve(self, thing: str) -> None:
        """Forget that ``thing`` could not be drained: a later attempt succeeded."""
        with self._lock:
            self._not_drained.pop(thing, None)

    @property
    def remaining(self) -> tuple[tuple[str, str], ...]:
        """What could not be drained, as pairs of thing and reason, sorted by thing."""
        with self._lock:
            return tuple(sorted(self._not_drained.items()))

    def count(self) -> int:
        """How many things were done so far, of all kinds."""
        with self._lock:
            return self._done.total()

    def summary(self) -> str:
        """One line that says how many things of each kind were done."""
        with self._lock:
            counts = ", ".join(f"{number} {kind}" for kind, number in sorted(self._done.items()))
        done = "would be drained" if self.dry else "drained"
        return f"{done}: {counts or 'nothing to do'}"
