"""Duties that are done again and again, each in a thread of its own: a slow, refused or faulty one delays no other.

Owns the threads, what the log says of a duty that fails, and since when each has made no progress. Leaves to its owner
what a duty does and when duties are due.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from topomend.kube.errors import APIError

REPEAT_SECONDS = 60.0
"""How often the log repeats the same failure of a duty."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Duty:
    """``run`` is called every ``period`` seconds. It may raise anything; ``name`` is a noun for logs and metrics.

    ``longer``: how many seconds longer than others it may take.
    """

    name: str
    run: Callable[[], None]
    period: float
    longer: float = 0.0


class Duties:
    """Runs each duty while ``are_due`` and until ``stopped``.

    ``pause_after`` gives the seconds to wait at least after an error. ``succeeded`` gets the name of a duty after each
    success.
    """

    def __init__(  # noqa: PLR0913  when they run, and who learns of it
        self,
        duties: Iterable[Duty],
        *,
        stopped: threading.Event,
        are_due: Callable[[], bool],
        pause_after: Callable[[Exception], float],
        succeeded: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._duties, self._stopped, self._are_due = tuple(duties), stopped, are_due
        self._pause_after, self._succeeded, self._clock = pause_after, succeeded, clock
        self._begun: dict[str, float] = {}
        self._said: dict[str, tuple[str, float]] = {}

    @property
    def names(self) -> Sequence[str]:
        """Their names."""
        return tuple(duty.name for duty in self._duties)

    def start(self) -> None:
        """Start a thread for each."""
        for duty in self._duties:
            threading.Thread(target=self._repeat, args=(duty,), name=duty.name, daemon=True).start()

    def stuck(self, seconds: float) -> str:
        """The name of a duty that began more than ``seconds`` ago and has not ended since; empty if there is none.

        To them is added what the duty may take longer.
        """
        now, begun = self._clock(), self._begun.copy()
        late = (duty.name for duty in self._duties if begun.get(duty.name, now) < now - seconds - duty.longer)
        return next(late, "")

    def _repeat(self, duty: Duty) -> None:
        wait = duty.period
        while not self._stopped.wait(wait):
            wait = max(duty.period, self._do(duty)) if self._are_due() else duty.period

    def _do(self, duty: Duty) -> float:
        """Do it once. Returns the seconds to wait at least before the next time."""
        self._begun[duty.name] = self._clock()
        try:
            duty.run()
        except APIError as error:
            self._say(duty, f"{error}", logging.WARNING)
            return self._pause_after(error)
        except Exception as error:  # noqa: BLE001  it is done again, and the others are not its concern
            self._say(duty, f"unexpected: {error!r}", logging.ERROR)
            _log.debug("where it happened", exc_info=True)
        else:
            self._said.pop(duty.name, None)
            self._succeeded(duty.name)
        finally:
            del self._begun[duty.name]
        return 0.0

    def _say(self, duty: Duty, problem: str, level: int) -> None:
        said, until = self._said.get(duty.name, ("", 0.0))
        if problem == said and self._clock() < until:
            return
        self._said[duty.name] = problem, self._clock() + REPEAT_SECONDS
        _log.log(level, "%s: not done: %s; tried again", duty.name, problem)
