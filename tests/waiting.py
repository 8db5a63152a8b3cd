"""How tests wait: until something is true, or through a time in which it must stay true.

A test says how long something may take on a machine with time to spare. A busy machine is given more.

What another thread, process or API server does meanwhile is no assertion after ``eventually``, but part of what is
waited for. That something is quick is shown by what it does without: a number of looks, the order of versions or
requests, a rival that is held for good. A bound of seconds is left where nothing else can tell, and ``awake`` counts
those: a machine stands still for seconds at times, which says nothing of what is tried on it.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from topomend.kube.errors import APIError

POLL_SECONDS = 0.05
LONGEST_POLL_SECONDS, POLLED_PART = 0.3, 0.1
"""Whoever has waited long looks less often, up to these seconds, and learns at most this part of the wait too late: the
looks of all tests are a third of the processor time that tests and API servers take."""
LOOK_SECONDS, LONGEST_STALL_SECONDS = 1.0, 30.0
"""A look and the pause after it that take longer than the former are taken for a machine that stands still. A wait is
longer by as much, at most by the latter: a server that hangs must not be waited for without an end."""
TICK_SECONDS, LATE_SECONDS = 0.05, 0.5
"""How often ``awake`` looks whether the machine stands still, and how late a look may be on one that does not."""
MAX_SHOWN = 500
"""How many characters of the last answer a failure shows."""

Answer = TypeVar("Answer")


class TimedOut(AssertionError):
    """What a test waited for did not come, or did not last. The message names it and the last answer."""


def stretched(seconds: float) -> float:
    """The seconds that a busy machine is given: times the processes that wait for each CPU, if more than one."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class Time(Protocol):
    """Python's module of that name, or the time that a test makes.

    It is passed, never put in the module's place: the thread of ``awake`` outlives the test that started it.
    """

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


class _Stalls:
    """The seconds in which nothing of this process ran, which a thread counts from the first question on."""

    def __init__(self, clock: Time = time) -> None:
        self._clock = clock
        self._counted = 0.0
        self._ticked = 0.0
        self._lock = threading.Lock()

    def seconds(self) -> float:
        """Those so far, with a stall that the thread has not woken from yet."""
        with self._lock:
            if not self._ticked:
                self._ticked = self._clock.monotonic()
                threading.Thread(target=self._tick, name="stalls", daemon=True).start()
            return self._counted + self._late(self._clock.monotonic())

    def _tick(self) -> None:
        while True:
            self._clock.sleep(TICK_SECONDS)
            with self._lock:
                now = self._clock.monotonic()
                self._counted += self._late(now)
                self._ticked = now

    def _late(self, now: float) -> float:
        late = now - self._ticked - TICK_SECONDS
        return late if late > LATE_SECONDS else 0.0


_stalls = _Stalls()


def awake() -> float:
    """Seconds of the monotonic clock without those in which the machine stood still, by which promises are measured."""
    return time.monotonic() - _stalls.seconds()


def eventually(
    goal: str,
    condition: Callable[[], Answer | None],
    seconds: float = 30.0,
    *,
    poll: float | None = None,
    clock: Time = time,
) -> Answer:
    """Wait until ``condition`` is true and return its value. ``goal`` completes "waited for".

    ``poll`` is the seconds between two looks where a state may be short; by default they grow with the wait.

    An APIError counts as "not yet": the object may not exist yet, or the server may not answer yet. Raises TimedOut
    after ``seconds``, more on a machine that is busy or stands still meanwhile.
    """
    start = looked = clock.monotonic()
    stalled = 0.0
    while True:
        now = clock.monotonic()
        stalled += max(0.0, now - looked - LOOK_SECONDS)
        looked, waited = now, now - start
        is_last = waited >= stretched(seconds) + min(stalled, LONGEST_STALL_SECONDS)
        last: object
        try:
            if answer := condition():
                return answer
            last = answer
        except APIError as error:
            last = error
        if is_last:
            raise TimedOut(f"waited {clock.monotonic() - start:.0f} s for {goal}; last: {_shown(last)}")
        clock.sleep(_until_next_look(waited) if poll is None else poll)


def _until_next_look(waited: float) -> float:
    return min(max(POLL_SECONDS, waited * POLLED_PART), LONGEST_POLL_SECONDS)


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
