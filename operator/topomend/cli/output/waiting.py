"""A line on the terminal while a command takes its time, which goes before anything else is printed.

Owns when it is drawn. Leaves to the command what it says: it may say how far the command is.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread

PATIENCE_SECONDS = 2.0
"""After how long it appears."""

EACH_SECONDS = 1.0
"""How often it is drawn again."""

Words = Callable[[], str]
"""What a line says now. A thread of its own asks."""


class Waiting:
    """One line for one command, drawn again and again by a thread of its own until ``end``, which may come often.

    ``words`` may be replaced meanwhile: the command does something else.
    """

    def __init__(self, draw: Callable[[str], None], words: Words, clock: Callable[[], float] = time.monotonic) -> None:
        self.words = words
        self._draw, self._clock = draw, clock
        self._began, self._ended, self._lock = clock(), Event(), Lock()
        self._drawn = False
        self._thread = Thread(target=self._run, name="waiting", daemon=True)

    def begin(self) -> None:
        """Start to wait."""
        self._thread.start()

    def end(self) -> None:
        """Take the line away. None comes after this."""
        with self._lock:
            self._ended.set()
            if self._drawn:
                self._draw("")
                self._drawn = False

    def _run(self) -> None:
        pause = PATIENCE_SECONDS
        while not self._ended.wait(pause):
            pause = EACH_SECONDS
            with self._lock:
                if not self._ended.is_set():
                    self._draw(f"{self.words()}, {self._clock() - self._began:.0f} s")
                    self._drawn = True


class Terminal:
    """What is drawn on this process's terminal now."""

    def __init__(self) -> None:
        self._waiting: Waiting | None = None

    @contextmanager
    def waiting(self, draw: Callable[[str], None], words: Words) -> Iterator[None]:
        """During the block, and until something is printed, say ``words`` on a terminal where it takes long.

        A block within another has the line of the other one say its words: the time goes on.
        """
        if sys.stderr is None or not sys.stderr.isatty():
            yield
        elif self._waiting is None:
            yield from self._begun(draw, words)
        else:
            outer, before = self._waiting, self._waiting.words
            outer.words = words
            try:
                yield
            finally:
                outer.words = before

    def _begun(self, draw: Callable[[str], None], words: Words) -> Iterator[None]:
        self._waiting = Waiting(draw, words)
        self._waiting.begin()
        try:
            yield
        finally:
            self.clear()

    def clear(self) -> None:
        """Something is printed: no such line from now on."""
        if self._waiting is not None:
            self._waiting.end()
            self._waiting = None
