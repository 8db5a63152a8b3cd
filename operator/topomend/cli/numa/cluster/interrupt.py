"""Ctrl-C ends a watch, and never what is printed of it."""

import signal
from collections.abc import Iterator
from types import FrameType
from typing import TypeVar

_Item = TypeVar("_Item")


def until_interrupted(items: Iterator[_Item]) -> Iterator[_Item]:
    """The items until the user interrupts the command; then it goes on behind them.

    An interrupt that comes while one is used counts once that is done; a second one ends the command. Only the main
    thread may ask for it.
    """
    interrupt = _Interrupt()
    before = signal.signal(signal.SIGINT, interrupt.came)
    try:
        while (item := interrupt.next_of(items)) is not None:
            yield item
    finally:
        signal.signal(signal.SIGINT, before)


class _Interrupt:
    """What to do about one: remember it, and raise it while the next item is waited for.

    It is remembered there too, because Python drops what is raised in a finalizer: the next item is then the last.
    """

    def __init__(self) -> None:
        self._waits, self._is_remembered = False, False

    def came(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signal (signal.signal)."""
        del number, frame
        is_second, self._is_remembered = self._is_remembered, True
        if self._waits or is_second:
            raise KeyboardInterrupt

    def next_of(self, items: Iterator[_Item]) -> _Item | None:
        """The next item; None at the end, and once an interrupt has come."""
        try:
            self._waits = True  # before the question: one that comes between the two is raised
            return None if self._is_remembered else next(items, None)
        except KeyboardInterrupt:
            return None
        finally:
            self._waits = False
