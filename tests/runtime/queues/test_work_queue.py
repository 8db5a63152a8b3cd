import threading

from tests.clock import Clock
from tests.waiting import eventually

from topomend.runtime.queues.work_queue import WorkQueue


def test_a_key_added_twice_comes_once() -> None:
    queue: WorkQueue[str] = WorkQueue(Clock(0.0))
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert [queue.get(), queue.get()] == ["a", "b"]
    assert len(queue) == 2
    queue.done("a")
    queue.done("b")
    assert len(queue) == 0


def test_a_key_added_while_it_is_worked_on_comes_once_more_afterwards() -> None:
    queue: WorkQueue[str] = WorkQueue(Clock(0.0))
    queue.add("a")
    assert queue.get() == "a"
    queue.add("a")
    queue.add("b")
    assert queue.get() == "b"
    queue.done("a")
    assert queue.get() == "a"


def test_a_delayed_key_comes_at_the_earliest_time_that_it_was_added_for() -> None:
    clock = Clock(0.0)
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add("late", 60)
    queue.add("soon", 1)
    queue.add("late", 2)
    clock.now = 3
    assert [queue.get(), queue.get()] == ["soon", "late"]
    clock.now = 60
    queue.done("late")
    assert len(queue) == 1  # "soon" is still being worked on


def test_a_key_that_fails_again_waits_longer() -> None:
    clock = Clock(0.0)
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add("a")
    waits = []
    for _ in range(4):
        assert queue.get() == "a"
        queue.done("a", failed=True)
        before = clock.now
        while queue.stalled() == 0:
            clock.now += 0.001
        waits.append(round(clock.now - before, 2))
    assert waits == [0.01, 0.01, 0.02, 0.04]


def test_a_key_that_fails_waits_at_least_as_long_as_asked_within_bounds() -> None:
    clock = Clock(0.0)
    for asked, expected in ((3.0, 3.0), (86400.0, 60.0)):
        queue: WorkQueue[str] = WorkQueue(clock)
        queue.add("a")
        assert queue.get() == "a"
        queue.add("a")  # an event that comes meanwhile is no reason to ask sooner
        begun = clock.now
        queue.done("a", failed=True, at_least=asked)
        while queue.stalled() == 0:
            clock.now += 0.25
        assert clock.now - begun == expected + 0.25


def test_keys_that_failed_are_due_at_once_when_the_cause_is_over_and_their_failures_are_forgotten() -> None:
    clock = Clock(0.0)
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add("later", 1000.0)
    queue.add("failed")
    for _ in range(12):
        assert queue.get() == "failed"
        queue.done("failed", failed=True)
        clock.now += 60.0
    assert queue.get() == "failed"
    queue.done("failed", failed=True)  # due in 20 s
    queue.retry_now()
    assert queue.get() == "failed"
    queue.done("failed", failed=True)  # as after a first failure
    clock.now += 0.006
    assert queue.get() == "failed"
    queue.add("next")
    assert queue.get() == "next"  # a key that has not failed keeps its time


def test_an_event_during_a_failing_attempt_is_tried_at_once() -> None:
    clock = Clock(0.0)
    queue: WorkQueue[str] = WorkQueue(clock)
    for _ in range(12):
        queue.add("a")
        assert queue.get() == "a"
        queue.add("a")
        queue.done("a", failed=True)
    assert queue.get() == "a"
    assert clock.now == 0


def test_a_waiting_worker_is_woken_by_a_key_and_by_the_end() -> None:
    queue: WorkQueue[str] = WorkQueue()
    got: list[str | None] = []

    def work() -> None:
        while (key := queue.get()) is not None:
            got.append(key)
            queue.done(key)
        got.append(None)

    worker = threading.Thread(target=work)
    worker.start()
    queue.add("a")
    queue.add("b", 0.01)
    eventually("both keys", lambda: len(got) == 2, poll=0.005)
    queue.stop()
    worker.join(60)
    assert got == ["a", "b", None]


def test_a_queue_is_stalled_while_keys_are_due_and_none_is_finished_however_many_wait() -> None:
    clock = Clock(0.0)
    queue: WorkQueue[int] = WorkQueue(clock)
    clock.now = 1000.0
    assert queue.stalled() == 0.0
    for number in range(1000):
        queue.add(number)
    for number in range(300):  # a round of all takes longer than anything may hang
        assert queue.get() == number
        clock.now += 1.0
        assert queue.stalled() == 1.0
        queue.done(number)
    queue.get()
    clock.now += 500.0
    assert queue.stalled() == 500.0


def test_a_queue_whose_keys_are_not_due_yet_or_that_has_none_is_not_stalled() -> None:
    clock = Clock(0.0)
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add("later", 100.0)
    clock.now = 99.0
    assert queue.stalled() == 0.0
    clock.now = 130.0
    assert queue.stalled() == 30.0


def _group(key: str) -> str:
    return key.partition("/")[0]


def test_a_group_with_many_keys_delays_another_by_one_key() -> None:
    queue: WorkQueue[str] = WorkQueue(Clock(0.0), _group)
    for number in range(20_000):
        queue.add(f"flood/{number}")
    queue.add("quiet/0")
    queue.add("quiet/1")
    assert [queue.get() for _ in range(5)] == ["flood/0", "quiet/0", "flood/1", "quiet/1", "flood/2"]


def test_keys_that_come_due_later_take_turns_with_those_that_are_due() -> None:
    clock = Clock(0.0)
    queue: WorkQueue[str] = WorkQueue(clock, _group)
    for number in range(3):
        queue.add(f"flood/{number}")
    queue.add("quiet/0", 1.0)
    assert queue.get() == "flood/0"
    clock.now = 1.0
    assert [queue.get() for _ in range(3)] == ["flood/1", "quiet/0", "flood/2"]
