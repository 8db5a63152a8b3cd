"""A signal that ends what the main thread does, wherever it finds it."""

from types import FrameType
from typing import NoReturn


class Interrupt:
    """Raises ``error`` where a signal finds the thread, and remembers that one came.

    Python drops an exception that is raised in a finalizer, before 3.13 without a word for that of an HTTP answer
    (CPython Modules/_io/iobase.c:iobase_finalize).
    """

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error
        self._has_come = False

    def came(self, number: int, frame: FrameType | None) -> NoReturn:
        """The handler of the signals (signal.signal). Raises the error."""
        del number, frame
        self._has_come = True
        raise self._error

    def raise_if_lost(self) -> None:
        """Raise the error if a signal has come: a thread that still asks was not ended by it."""
        if self._has_come:
            raise self._error
