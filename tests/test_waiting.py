"""Waiting ends with the first true answer, or names the missing event."""

from itertools import count

import pytest
from tests.waiting import TimedOut, consistently, eventually

from topomend.kube.errors import Unanswered


def test_the_first_true_answer_is_returned() -> None:
    answers = count()
    assert eventually("three looks", lambda: max(0, next(answers) - 2), poll=0) == 1


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
