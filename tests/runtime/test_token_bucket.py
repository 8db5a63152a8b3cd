from tests.clock import Clock

from topomend.runtime.token_bucket import TokenBucket


def test_a_bucket_gives_its_burst_and_then_one_at_a_time() -> None:
    clock = Clock(0.0)
    bucket = TokenBucket(2.0, 3, clock)
    assert [bucket.take() for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    clock.now = 0.5
    assert [bucket.take(), bucket.take()] == [0.0, 0.5]
    clock.now = 100.0
    assert [bucket.take() for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
