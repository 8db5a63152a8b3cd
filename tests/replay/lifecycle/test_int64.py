"""Whole numbers as Go's strconv.ParseInt reads them."""

import pytest

from topomend.replay.lifecycle.int64 import parse_int


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5),
        ("+5", 5),
        ("-7", -7),
        (str((1 << 63) - 1), (1 << 63) - 1),
        (str(1 << 63), None),
        (" 5", None),
        ("5_0", None),
        ("\u0665", None),
        ("", None),
    ],
)
def test_what_python_reads_and_go_does_not_is_no_number(text: str, number: int | None) -> None:
    assert parse_int(text) == number
