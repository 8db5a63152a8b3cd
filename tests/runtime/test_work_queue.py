import threading
import time

from topomend.runtime.token_bucket import TokenBucket
from topomend.runtime.work_queue import WorkQueue


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_key_added_twice_comes_once() -> None:
    queue: WorkQueue[str] = WorkQueue(Clock())
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert [queue.get(), queue.get()] == ["a", "b"]
    assert len(queue) == 2
    queue.done("a")
    queue.done("b")
    assert len(queue) == 0


def test_a_key_added_while_it_is_worked_on_comes_once_more_afterwards() -> None:
    queue: WorkQueue[str] = WorkQueue(Clock())
    queue.add("a")
    assert queue.get() == "a"
    queue.add("a")
    queue.add("b")
    assert queue.get() == "b"
    queue.done("a")
    assert queue.get() == "a"


def test_a_later_key_comes_at_its_time_or_at_an_earlier_one_it_is_given() -> None:
    clock = Clock()
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add("late", 60)
    queue.add("soon", 1)
    queue.add("late", 2)
    clock.now = 3
    assert [queue.get(), queue.get()] == ["soon", "late"]
    clock.now = 60
    queue.done("late")
    assert len(queue) == 1  # "soon", still in work


def test_a_key_that_fails_again_waits_longer() -> None:
    clock = Clock()
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add("a")
    waits = []
    for _ in range(4):
        assert queue.get() == "a"
        queue.done("a", failed=True)
        before = clock.now
        while queue.overdue() == 0:
            clock.now += 0.001
        waits.append(round(clock.now - before, 2))
    assert waits == [0.01, 0.01, 0.02, 0.04]


def test_a_key_that_fails_is_left_alone_for_as_long_as_was_asked_and_within_bounds() -> None:
    clock = Clock()
    for asked, expected in ((3.0, 3.0), (86400.0, 60.0)):
        queue: WorkQueue[str] = WorkQueue(clock)
        queue.add("a")
        assert queue.get() == "a"
        queue.add("a")  # an event that comes meanwhile is no reason to ask sooner
        begun = clock.now
        queue.done("a", failed=True, at_least=asked)
        while queue.overdue() == 0:
            clock.now += 0.25
        assert clock.now - begun == expected + 0.25


def test_an_event_that_comes_while_a_key_fails_has_it_tried_at_once() -> None:
    clock = Clock()
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
    deadline = time.monotonic() + 10
    while len(got) < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    queue.stop()
    worker.join(10)
    assert got == ["a", "b", None]


def test_a_bucket_gives_its_burst_and_then_one_at_a_time() -> None:
    clock = Clock()
    bucket = TokenBucket(2.0, 3, clock)
    assert [bucket.take() for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    clock.now = 0.5
    assert [bucket.take(), bucket.take()] == [0.0, 0.5]
    clock.now = 100.0
    assert [bucket.take() for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
