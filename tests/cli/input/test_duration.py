"""Durations on a command line."""

from datetime import timedelta

import pytest

from topomend.cli.input.duration import read_duration
from topomend.cli.output.failures import BadInput


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90m", timedelta(minutes=90)),
        ("24h", timedelta(days=1)),
        ("7d", timedelta(weeks=1)),
        ("1h30m", timedelta(minutes=90)),
        ("1s", timedelta(seconds=1)),
    ],
)
def test_a_duration_is_a_sum_of_units(text: str, expected: timedelta) -> None:
    assert read_duration("--since", text) == expected


@pytest.mark.parametrize(
    "text", ["", "h", "24", "24 h", "-1h", "1.5h", "1y", "0s", "1h now", "9999999d", "999999d" * 2_000]
)
def test_what_is_none_says_how_one_looks(text: str) -> None:
    with pytest.raises(BadInput, match=r"is no duration, such as 90m, 24h or 7d|is too short"):
        read_duration("--since", text)
