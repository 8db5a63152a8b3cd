"""Waiting ends with the first true answer, or names the missing event."""

from itertools import count

import pytest
from tests import waiting
from tests.clock import Clock
from tests.waiting import (
    LONGEST_STALL_SECONDS,
    TICK_SECONDS,
    TimedOut,
    _Stalls,
    _until_next_look,
    consistently,
    eventually,
)

from topomend.kube.errors import Unanswered


class MadeTime(Clock):
    """Time that goes on by what is slept, and by stalls."""

    monotonic, sleep = Clock.__call__, Clock.advance


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MadeTime:
    monkeypatch.setattr(waiting, "stretched", lambda seconds: seconds)
    return MadeTime()


def test_the_first_true_answer_is_returned() -> None:
    answers = count()
    assert eventually("three looks", lambda: max(0, next(answers) - 2), poll=0) == 1


def test_looks_become_fewer_as_a_wait_lasts() -> None:
    assert [_until_next_look(waited) for waited in (0.0, 1.0, 2.0, 4.0, 100.0)] == [0.05, 0.1, 0.2, 0.3, 0.3]


def test_an_api_that_does_not_answer_yet_is_waited_for_and_named_at_the_end() -> None:
    def fail() -> None:
        raise Unanswered("connection refused")

    with pytest.raises(TimedOut, match=r"waited 0 s for the server; last: Unanswered\('connection refused'\)"):
        eventually("the server", fail, seconds=0)


def test_any_other_error_ends_the_wait() -> None:
    with pytest.raises(ZeroDivisionError):
        eventually("a result", lambda: 1 // 0)


def test_what_changes_once_does_not_stay() -> None:
    answers = iter([True, True, False])
    with pytest.raises(TimedOut, match="the pod did not stay so"):
        consistently("the pod", lambda: next(answers), 30.0, poll=0)


def test_a_machine_that_stands_still_takes_no_time_from_a_wait(clock: MadeTime) -> None:
    """The first look takes all the seconds; what is waited for needs some after them."""

    def comes_after_fifteen() -> bool:
        if clock.now == 1000.0:
            clock.now += 12.0
        return clock.now >= 1015.0

    assert eventually("it", comes_after_fifteen, seconds=10.0, clock=clock)


def test_a_server_that_hangs_is_not_waited_for_without_an_end(clock: MadeTime) -> None:
    with pytest.raises(TimedOut):
        eventually("it", lambda: clock.sleep(15.0), seconds=10.0, clock=clock)
    assert clock.now <= 1000.0 + 10.0 + LONGEST_STALL_SECONDS + 2 * 15.0 + 1.0


def test_seconds_in_which_nothing_ran_are_not_counted(clock: MadeTime) -> None:
    stalls = _Stalls(clock)
    stalls._ticked = clock.now  # as its thread leaves it, which has not woken since
    clock.now += TICK_SECONDS + 0.1
    assert stalls.seconds() == 0.0
    clock.now += 10.0
    assert stalls.seconds() == pytest.approx(10.1)
