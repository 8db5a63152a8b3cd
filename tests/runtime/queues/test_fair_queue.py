"""Queues between threads: groups take turns, and none fills the queue of others."""

import threading

from topomend.runtime.queues.fair_queue import FairQueue


def test_groups_take_turns() -> None:
    queue: FairQueue[str] = FairQueue(100, 50)
    for number in range(3):
        queue.put("flood", f"flood-{number}")
    queue.put("quiet", "quiet-0")
    assert [queue.get() for _ in range(4)] == ["flood-0", "quiet-0", "flood-1", "flood-2"]


def test_a_group_that_is_full_leaves_room_for_others() -> None:
    queue: FairQueue[int] = FairQueue(4, 2)
    assert [queue.put("flood", number) for number in range(5)] == [True, True, False, False, False]
    assert [queue.put("quiet", 0), queue.put("other", 0), queue.put("third", 0)] == [True, True, False]


def test_a_stopped_queue_gives_out_what_it_has_and_then_none() -> None:
    queue: FairQueue[int] = FairQueue(4, 2)
    queue.put("a", 1)
    queue.stop()
    assert not queue.put("a", 2)
    assert [queue.get(), queue.get()] == [1, None]


def test_an_item_wakes_the_thread_that_waits() -> None:
    queue: FairQueue[int] = FairQueue(4, 2)
    got: list[int | None] = []
    thread = threading.Thread(target=lambda: got.append(queue.get()))
    thread.start()
    queue.put("a", 7)
    thread.join(60)
    assert got == [7]
