from tests.clock import Clock

from topomend.runtime.queues.fair_permits import MAX_GROUPS
from topomend.runtime.queues.token_bucket import FairTokenBucket, TokenBucket


def test_a_bucket_gives_its_burst_and_then_one_at_a_time() -> None:
    clock = Clock(0.0)
    bucket = TokenBucket(2.0, 3, clock)
    assert [bucket.take() for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    clock.now = 0.5
    assert [bucket.take(), bucket.take()] == [0.0, 0.5]
    clock.now = 100.0
    assert [bucket.take() for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_one_group_always_leaves_half_the_burst_to_others() -> None:
    clock = Clock(0.0)
    bucket = FairTokenBucket(2.0, 20, clock)
    for _ in range(1000):
        bucket.take("flood")
        clock.now += 0.01
    assert [bucket.take("quiet") for _ in range(10)] == [0.0] * 10
    assert bucket.take("quiet") > 0


def test_groups_that_together_use_up_the_rate_get_equal_shares() -> None:
    clock = Clock(0.0)
    bucket = FairTokenBucket(2.0, 4, clock)
    taken = dict.fromkeys(["flood-1", "flood-2", "flood-3", "quiet"], 0)
    while bucket.take("flood-1") == 0 or bucket.take("flood-2") == 0 or bucket.take("flood-3") == 0:
        pass
    for _ in range(4000):
        for group in ("flood-1", "flood-1", "flood-2", "flood-2", "flood-2", "flood-3", "quiet"):
            taken[group] += bucket.take(group) == 0
        clock.now += 0.01
    assert sum(taken.values()) >= 78
    assert all(abs(count - 20) <= 1 for count in taken.values()), taken


def test_a_group_that_no_longer_asks_holds_up_nobody() -> None:
    clock = Clock(0.0)
    bucket = FairTokenBucket(1.0, 2, clock)
    assert [bucket.take("a"), bucket.take("b"), bucket.take("c"), bucket.take("d")] == [0.0, 0.0, 1.0, 2.0]
    clock.now = 10.0
    assert [bucket.take("d"), bucket.take("e")] == [0.0, 0.0]


def test_a_single_token_is_shared_as_well() -> None:
    clock = Clock(0.0)
    bucket = FairTokenBucket(1.0, 1, clock)
    assert [bucket.take("a"), bucket.take("a"), bucket.take("b")] == [0.0, 1.0, 1.0]
    clock.now = 1.0
    assert [bucket.take("a"), bucket.take("b")] == [1.0, 0.0]


def test_buckets_of_groups_are_bounded() -> None:
    clock = Clock(0.0)
    bucket = FairTokenBucket(1.0, 2, clock)
    for number in range(3 * MAX_GROUPS):
        bucket.take(f"group-{number}")
        clock.now += 1.0
    assert len(bucket._buckets) == MAX_GROUPS


def test_what_was_spent_beyond_what_there_was_has_to_come_before_there_is_the_next_token() -> None:
    clock = Clock()
    bucket = FairTokenBucket(1.0, 4, clock)
    assert bucket.take("a") == 0.0
    bucket.spend("a", 5)
    assert bucket.take("a") == 5.0
    assert bucket.take("b") == 3.0, "others pay for what is missing in all"
    clock.now += 3.0
    assert bucket.take("b") == 0.0
