from datetime import UTC, datetime

from topomend.runtime.timestamp import micro_timestamp, timestamp

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 60, tzinfo=UTC)


def test_times_are_written_as_the_api_writes_them() -> None:
    assert timestamp(MOMENT) == "2026-01-02T03:04:05Z"
    assert micro_timestamp(MOMENT) == "2026-01-02T03:04:05.000060Z"


def test_without_a_moment_it_is_now() -> None:
    before = datetime.now(UTC)
    micro, second = datetime.fromisoformat(micro_timestamp()), datetime.fromisoformat(timestamp())
    assert before <= micro <= datetime.now(UTC)
    assert -1.0 < (second - before).total_seconds() < 60.0
