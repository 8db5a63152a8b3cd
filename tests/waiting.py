"""How tests wait: until something is true, or through a time in which it must stay true.

A test says how long something may take on a machine with time to spare. A busy machine is given more.

What another thread, process or API server does meanwhile is no assertion after ``eventually``, but part of what is
waited for. That something is quick is shown by what it does without: a number of looks, the order of versions or
requests, a rival that is held for good. A bound of seconds is left where nothing else can tell.
"""

import os
import time
from collections.abc import Callable
from typing import TypeVar

from topomend.kube.errors import APIError

POLL_SECONDS = 0.05
MAX_SHOWN = 500
"""How many characters of the last answer a failure shows."""

Answer = TypeVar("Answer")


class TimedOut(AssertionError):
    """What a test waited for did not come, or did not last. The message names it and the last answer."""


def stretched(seconds: float) -> float:
    """The seconds that a busy machine is given: times the processes that wait for each CPU, if more than one."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def eventually(
    goal: str, condition: Callable[[], Answer | None], seconds: float = 30.0, *, poll: float = POLL_SECONDS
) -> Answer:
    """Wait until ``condition`` is true and return its value. ``goal`` completes "waited for".

    An APIError counts as "not yet": the object may not exist yet, or the server may not answer yet. Raises TimedOut
    after ``seconds``, more on a busy machine.
    """
    start = time.monotonic()
    while True:
        is_last = time.monotonic() - start >= stretched(seconds)
        last: object
        try:
            if answer := condition():
                return answer
            last = answer
        except APIError as error:
            last = error
        if is_last:
            raise TimedOut(f"waited {time.monotonic() - start:.0f} s for {goal}; last: {_shown(last)}")
        time.sleep(poll)


def consistently(state: str, condition: Callable[[], object], seconds: float, *, poll: float = POLL_SECONDS) -> None:
    """Check over and over for ``seconds`` that ``condition`` is true. Raises TimedOut at the first answer that is not.

    ``state`` completes "did not stay". The time is not stretched: a busy machine only checks less often.
    """
    start = time.monotonic()
    while True:
        answer = condition()
        if not answer:
            raise TimedOut(f"{state} did not stay so for {time.monotonic() - start:.1f} s; last: {_shown(answer)}")
        if time.monotonic() - start >= seconds:
            return
        time.sleep(poll)


def _shown(answer: object) -> str:
    text = repr(answer)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
