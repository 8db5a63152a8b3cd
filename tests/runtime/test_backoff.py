from itertools import islice

import pytest
from tests.clock import Clock

from topomend.runtime.backoff import PODS, RESET_SECONDS, Backoff, Exponential

EXACT = Exponential(1.0, 300.0)


def test_each_failure_doubles_the_delay_up_to_a_limit() -> None:
    assert [EXACT.seconds(failures) for failures in (0, 1, 2, 3, 4)] == [0, 1, 2, 4, 8]
    assert EXACT.seconds(100_000) == 300
    assert list(islice(EXACT, 4)) == [1, 2, 4, 8]


def test_jitter_takes_a_random_part_of_a_delay_off_and_never_adds_to_it() -> None:
    delays = {Exponential(8.0, 8.0, jitter=0.25).seconds(1) for _ in range(200)}
    assert len(delays) > 100
    assert 6 <= min(delays) < 6.5
    assert 7.5 < max(delays) <= 8


def test_a_failure_delays_its_key_and_no_other() -> None:
    clock = Clock()
    backoff = Backoff(clock, EXACT)
    backoff.failed("web", "pod-1")
    backoff.failed("web", "pod-1")  # reported twice, and still one failure
    assert (backoff.remaining("web"), backoff.remaining("db")) == (1, 0)
    backoff.failed("web", "pod-2")
    assert backoff.remaining("web") == 2
    clock.now += 2
    assert backoff.remaining("web") == 0


@pytest.mark.parametrize(("quiet", "remaining"), [(RESET_SECONDS - 1, 32), (RESET_SECONDS, 1)])
def test_a_key_starts_again_only_after_long_without_a_failure(quiet: float, remaining: float) -> None:
    clock = Clock()
    backoff = Backoff(clock, EXACT)
    for number in range(5):
        backoff.failed("web", f"pod-{number}")
    clock.now += quiet
    backoff.failed("db", "pod-0")  # what one key forgets does not depend on another
    backoff.failed("web", "pod-5")
    assert backoff.remaining("web") == remaining


def test_failures_reported_alternately_count_once_each() -> None:
    backoff = Backoff(Clock(), EXACT)
    for number in range(10):
        backoff.failed("web", f"pod-{number % 2}")
    assert backoff.remaining("web") == 2


def test_keys_that_fail_together_are_not_retried_together() -> None:
    backoff = Backoff(Clock())
    for number in range(20):
        backoff.failed(f"web-{number}", "pod")
    remaining = {backoff.remaining(f"web-{number}") for number in range(20)}
    assert len(remaining) > 1
    assert all(PODS.first * (1 - PODS.jitter) <= seconds <= PODS.first for seconds in remaining)


def test_of_too_many_keys_the_one_that_failed_first_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topomend.runtime.backoff.MAX_ENTRIES", 3)
    backoff = Backoff(Clock(), EXACT)
    for number, key in enumerate(["a", "b", "c", "a", "d"]):
        backoff.failed(key, f"pod-{number}")
    assert [backoff.remaining(key) for key in "abcd"] == [2, 0, 1, 1]
