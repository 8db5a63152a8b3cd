"""Ages as kubectl writes them. Source of the pairs: apimachinery pkg/util/duration/duration_test.go."""

from datetime import UTC, datetime, timedelta

import pytest

from topomend.cli.output.age import age

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (1, "1s"),
        (70, "70s"),
        (190, "3m10s"),
        (10 * MINUTE, "10m"),
        (47 * MINUTE, "47m"),
        (3 * HOUR, "3h"),
        (5 * HOUR + 7 * MINUTE, "5h7m"),
        (8 * HOUR + 3 * MINUTE, "8h"),
        (47 * HOUR + 59 * MINUTE, "47h"),
        (49 * HOUR, "2d1h"),
        (8 * DAY + 2 * HOUR, "8d"),
        (367 * DAY, "367d"),
        (2 * 365 * DAY + 25 * HOUR, "2y1d"),
        (8 * 365 * DAY, "8y"),
        (0, "0s"),
        (-1, "0s"),
        (-60, "<invalid>"),
    ],
)
def test_an_age_is_written_as_kubectl_writes_it(seconds: int, words: str) -> None:
    since = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert age(since, NOW) == words


@pytest.mark.parametrize("since", ["", "yesterday", "2026-01-01T00:00:00"])
def test_what_is_no_time_has_no_age(since: str) -> None:
    assert age(since, NOW) == "<unknown>"
