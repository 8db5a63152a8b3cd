"""Each duty is done by itself: whatever one of them does or raises, the others are done."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from tests.waiting import eventually

from topomend.kube.errors import APIError, Unanswered, refused
from topomend.runtime.duties import Duties, Duty


class Running:
    """Duties that run, how often each has succeeded, and what they wait for."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.stopped, self.leads = threading.Event(), threading.Event()
        self.hangs, self.released = threading.Event(), threading.Event()
        self.leads.set()
        self.now = 0.0

    def start(self, **duties: Callable[[], None]) -> Duties:
        running = Duties(
            [Duty(name, run, 0.001) for name, run in duties.items()],
            stopped=self.stopped,
            are_due=self.leads.is_set,
            pause_after=lambda _: 0.0,
            succeeded=lambda name: self.done.update([name]),
            clock=lambda: self.now,
        )
        running.start()
        return running

    def hang(self) -> None:
        self.hangs.set()
        self.released.wait()

    def goes_on(self, name: str) -> bool:
        before = self.done[name]
        return bool(eventually(f"{name} to be done twice more", lambda: self.done[name] >= before + 2))


@pytest.fixture
def running() -> Iterator[Running]:
    made = Running()
    yield made
    made.stopped.set()
    made.released.set()


def nothing() -> None:
    """A duty that has nothing to do."""


def raising(error: Exception) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


ERRORS: list[Exception] = [
    *(refused(status, b"{}") for status in (400, 401, 403, 404, 405, 409, 410, 418, 422, 429, 500, 503)),
    Unanswered("no answer"),
    ValueError("unreadable"),
    RecursionError("too deep"),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_whatever_a_duty_raises_the_others_and_itself_are_done_again(running: Running, error: Exception) -> None:
    calls = Counter[str]()

    def fail() -> None:
        calls["fail"] += 1
        raise error

    running.start(fails=fail, other=nothing)
    assert running.goes_on("other")
    eventually("it to be tried again", lambda: calls["fail"] > 2)
    assert not running.done["fails"]


def test_a_duty_that_never_ends_delays_no_other_and_is_named_after_a_while(running: Running) -> None:
    duties = running.start(hangs=running.hang, other=nothing)
    running.hangs.wait()
    assert running.goes_on("other")
    running.now = 100.0
    assert running.goes_on("other")
    eventually("it to be stuck", lambda: duties.stuck(99.0) == "hangs")
    assert duties.stuck(101.0) == ""
    running.released.set()
    eventually("it to end", lambda: running.done["hangs"])
    eventually("nothing to be stuck", lambda: duties.stuck(99.0) == "")


def test_nothing_is_done_while_they_are_not_due(running: Running) -> None:
    running.leads.clear()
    running.start(other=nothing)
    running.leads.set()
    assert running.goes_on("other")
    running.leads.clear()
    eventually("the last one to end", lambda: _rests(running, "other"))


def _rests(running: Running, name: str) -> bool:
    before = running.done[name]
    return not running.stopped.wait(0.05) and running.done[name] == before


@pytest.mark.parametrize(
    ("error", "level"), [(refused(403, b"{}"), logging.WARNING), (KeyError("spec"), logging.ERROR)], ids=repr
)
def test_a_failure_that_lasts_is_said_once_a_minute(
    running: Running, error: Exception, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Counter[str]()

    def fail() -> None:
        calls["fail"] += 1
        raise error

    running.start(fails=fail)
    eventually("many failures", lambda: calls["fail"] > 5)
    assert [record.levelno for record in _said(caplog)] == [level]
    assert "fails: not done:" in _said(caplog)[0].getMessage()
    running.now = 61.0
    eventually("it to be said again", lambda: len(_said(caplog)) == 2)


def _said(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the duties said, and no thread that an earlier test left."""
    return [record for record in caplog.records if record.name == Duties.__module__ and record.levelno > logging.DEBUG]


def test_a_pause_that_the_api_server_asks_for_is_kept() -> None:
    asked: list[Exception] = []
    stopped = threading.Event()

    def pause(error: Exception) -> float:
        asked.append(error)
        return 3600.0

    calls = Counter[str]()

    def fail() -> None:
        calls["fail"] += 1
        raise APIError("later")

    Duties(
        [Duty("fails", fail, 0.001)],
        stopped=stopped,
        are_due=lambda: True,
        pause_after=pause,
        succeeded=lambda _: None,
    ).start()
    eventually("it to be asked how long to pause", lambda: asked)
    stopped.wait(0.05)
    assert calls["fail"] == 1
    stopped.set()
