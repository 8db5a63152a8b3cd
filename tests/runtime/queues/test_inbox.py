"""The inbox of one thread: groups take turns, each in its order, and a list comes after what was there before it."""

import random
import threading

from tests.seeds import SEED

from topomend.runtime.queues.inbox import Inbox


def taken(inbox: Inbox[str], most: int = 100) -> list[str] | None:
    return inbox.take(most, 0.0)


def filled(*groups: str) -> Inbox[str]:
    """An inbox of one item for each of these, each with its number in the group."""
    inbox: Inbox[str] = Inbox(1000)
    for number, group in enumerate(groups):
        inbox.put(group, f"{group}{groups[:number].count(group)}")
    return inbox


def test_groups_take_turns_and_the_items_of_each_stay_in_order() -> None:
    assert taken(filled("a", "a", "a", "b", "b")) == ["a0", "b0", "a1", "b1", "a2"]


def test_at_most_so_many_are_taken_and_the_others_stay() -> None:
    inbox = filled("a", "a", "b")
    assert taken(inbox, 2) == ["a0", "b0"]
    assert len(inbox) == 1
    assert taken(inbox, 2) == ["a1"]


def test_what_is_put_behind_all_comes_after_all_that_was_there_and_lets_later_items_pass() -> None:
    inbox = filled("a", "a", "b")
    inbox.put_behind_all("list")
    inbox.put_behind_all("second list")
    inbox.put("c", "c0")
    assert taken(inbox) == ["a0", "b0", "c0", "a1", "list", "second list"]


def test_a_list_waits_for_no_item_that_came_after_it() -> None:
    inbox = filled("a")
    inbox.put_behind_all("list")
    for number in range(50):
        inbox.put("a", f"later-{number}")
    assert taken(inbox, 3) == ["a0", "list", "later-0"]


def test_a_group_has_half_the_room_and_what_was_taken_makes_room() -> None:
    inbox: Inbox[str] = Inbox(100)
    assert [inbox.put("flood", "x", 20) for _ in range(3)] == [True, True, False]
    assert [inbox.put(group, "x", 40) for group in ("quiet", "other")] == [True, False]
    assert inbox.put("flood", "without a size")
    taken(inbox)
    assert inbox.put("flood", "x", 50)


def test_of_random_items_none_is_lost_each_group_keeps_its_order_and_no_list_overtakes() -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    inbox: Inbox[str] = Inbox(1 << 30)
    put, out = list[str](), list[str]()
    for number in range(3000):
        match chance.randrange(10):
            case 0:
                inbox.put_behind_all(f"list {number}")
                put.append(f"list {number}")
            case 1 | 2 | 3:
                out += taken(inbox, chance.randrange(1, 5)) or []
            case _:
                group = chance.choice("abc")
                inbox.put(group, f"{group} {number}", chance.randrange(100))
                put.append(f"{group} {number}")
    out += taken(inbox, 3000) or []
    assert sorted(out) == sorted(put)
    for group in ("a", "b", "c", "list"):
        assert [item for item in out if item.startswith(group)] == [item for item in put if item.startswith(group)]
    for item in put:
        if item.startswith("list"):
            assert set(put[: put.index(item)]) <= set(out[: out.index(item)])


def test_an_item_wakes_the_thread_that_waits_and_a_stopped_inbox_gives_out_what_it_has_and_then_none() -> None:
    inbox: Inbox[str] = Inbox(100)
    got = list[list[str] | None]()

    def take_all() -> None:
        while (items := inbox.take(1)) is not None:
            got.append(items)
        got.append(None)

    thread = threading.Thread(target=take_all)
    thread.start()
    inbox.put("a", "first")
    inbox.put("a", "second")
    inbox.stop()
    thread.join(60)
    assert got == [["first"], ["second"], None]
