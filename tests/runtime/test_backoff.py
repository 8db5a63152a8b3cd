from topomend.runtime.backoff import FORGOTTEN_SECONDS, LONGEST_SECONDS, Backoff, backoff_seconds


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_failure_is_waited_for_twice_as_long_up_to_a_bound() -> None:
    assert [backoff_seconds(times) for times in (0, 1, 2, 3, 4)] == [0, 1, 2, 4, 8]
    assert backoff_seconds(1000) == LONGEST_SECONDS


def test_who_failed_is_held_back_and_nobody_else() -> None:
    clock = Clock()
    backoff = Backoff(clock, lambda: 1.0)
    backoff.failed("web", "pod-1")
    backoff.failed("web", "pod-1")  # seen twice, and still one failure
    assert (backoff.left("web"), backoff.left("db")) == (1, 0)
    backoff.failed("web", "pod-2")
    assert backoff.left("web") == 2
    clock.now += 2
    assert backoff.left("web") == 0


def test_who_did_not_fail_for_long_begins_anew() -> None:
    clock = Clock()
    backoff = Backoff(clock, lambda: 1.0)
    for number in range(5):
        backoff.failed("web", f"pod-{number}")
    clock.now += FORGOTTEN_SECONDS
    backoff.failed("web", "pod-5")
    assert backoff.left("web") == 1


def test_failures_that_are_seen_by_turns_count_once_each() -> None:
    backoff = Backoff(Clock(), lambda: 1.0)
    for number in range(10):
        backoff.failed("web", f"pod-{number % 2}")
    assert backoff.left("web") == 2


def test_who_failed_together_does_not_come_back_together() -> None:
    backoff = Backoff(Clock())
    for number in range(20):
        backoff.failed(f"web-{number}", "pod")
    left = {backoff.left(f"web-{number}") for number in range(20)}
    assert len(left) > 1
    assert all(0.75 <= each <= 1.25 for each in left)
