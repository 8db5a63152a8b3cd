"""A fault of one object is that object's: what cannot be read, or is refused about it, ends no loop over others.

Owns which errors are an object's own, and what the log says of them. Errors that concern every object pass: an API
server that does not answer or is overloaded, and a process that may not write.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from topomend.base.bounded_dict import BoundedDict
from topomend.kube.errors import DeniedForNow, NotPermitted, Refused, TooManyRequests, Unanswered
from topomend.replay.effort import Overspent, TurnOver
from topomend.wire.document import MalformedObject

REPEAT_SECONDS = 60.0
"""How often the log repeats the same fault of an object."""

MAX_SAID = 1_000


class ObjectFaults:
    """``undone`` says what is not done for such an object. For one thread."""

    def __init__(self, log: logging.Logger, undone: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._undone, self._clock = log, undone, clock
        self._said: BoundedDict[tuple[str, str], float] = BoundedDict(MAX_SAID)

    @contextmanager
    def of(self, namespace: str, name: str, *, passing: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """Ends the work in it at a fault of the object; Unanswered, NotPermitted, Overspent and TurnOver pass.

        So does TooManyRequests, unless it is about the object (DeniedForNow), and so do the errors of ``passing``.
        """
        try:
            yield
        except Exception as error:  # a bug that one object reveals must not stop the others
            if concerns_all(error) or isinstance(error, passing):
                raise
            self._note(f"{namespace}/{name}", error)

    def _note(self, name: str, error: Exception) -> None:
        if isinstance(error, MalformedObject | Refused):
            self._say(name, str(error), logging.WARNING)
            return
        self._say(name, f"unexpected: {error!r}", logging.ERROR)
        self._log.debug("where it happened", exc_info=error)

    def _say(self, name: str, problem: str, level: int) -> None:
        now = self._clock()
        if self._said.get((name, problem), now) <= now:
            self._said[name, problem] = now + REPEAT_SECONDS
            self._log.log(level, "%s: %s: %s", name, self._undone, problem)


def concerns_all(error: Exception) -> bool:
    """Whether an error is no fault of the object that was asked about: whatever is asked next meets it too."""
    if isinstance(error, TooManyRequests):
        return not isinstance(error, DeniedForNow)
    return isinstance(error, Unanswered | NotPermitted | Overspent | TurnOver)
