"""Groups take turns, and none waits for another that no longer asks."""

from tests.clock import Clock

from topomend.runtime.queues.fair_permits import MAX_GROUPS, PATIENCE_SECONDS, FairPermits, Turns


def test_the_group_that_has_waited_longest_is_first() -> None:
    turns = Turns(Clock())
    for group in ("a", "b", "c", "a"):
        turns.wait(group, 1.0)
    assert [turns.ahead_of(group) for group in ("a", "b", "c", "new")] == [0, 1, 2, 3]
    turns.end("a")
    assert [turns.ahead_of(group) for group in ("b", "c", "a")] == [0, 1, 2]


def test_a_group_that_no_longer_asks_loses_its_turn() -> None:
    clock = Clock()
    turns = Turns(clock)
    turns.wait("a", 1.0)
    clock.now += 1.0 + PATIENCE_SECONDS
    assert turns.ahead_of("b") == 1
    clock.now += 0.1
    assert turns.ahead_of("b") == 0


def test_no_more_groups_wait_than_are_kept() -> None:
    turns = Turns(Clock())
    for number in range(2 * MAX_GROUPS):
        turns.wait(str(number), 1.0)
    assert turns.ahead_of("late") == MAX_GROUPS


def test_a_group_has_one_permit_and_leaves_the_others_to_other_groups() -> None:
    permits = FairPermits(2, Clock())
    assert permits.take("greedy", 1.0)
    assert not permits.take("greedy", 1.0)
    assert permits.take("other", 1.0)
    assert not permits.take("third", 1.0)


def test_groups_that_had_to_wait_get_their_permits_in_turn() -> None:
    permits = FairPermits(1, Clock())
    assert permits.take("a", 1.0)
    assert not permits.take("b", 1.0)
    assert not permits.take("c", 1.0)
    permits.give_back("a")
    assert not permits.take("a", 1.0), "others have waited"
    assert not permits.take("c", 1.0)
    assert permits.take("b", 1.0)
    permits.give_back("b")
    assert permits.take("c", 1.0)
