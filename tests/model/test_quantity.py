import pytest

from topomend.model.quantity import (
    MAX_INT64,
    InvalidQuantity,
    as_int64,
    format_bytes,
    is_whole,
    parse_quantity,
    value,
)


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("2", 2000),
        (2, 2000),
        (0.5, 500),
        ("1500m", 1500),
        ("1.5Gi", 1536 * 1024 * 1024 * 1000),
        ("1e3", 1_000_000),
        ("1E", 10**18 * 1000),
        ("1Ei", 2**60 * 1000),
        (".5", 500),
        ("1.", 1000),
        ("-2", -2000),
        ("1n", 1),
    ],
)
def test_a_quantity_is_read_in_thousandths(text: str | int | float, milli: int) -> None:
    assert parse_quantity(text) == milli


@pytest.mark.parametrize(("text", "milli"), [("1.9999", 2000), ("2.0001", 2001), ("-0.0001", -1)])
def test_a_part_below_a_thousandth_rounds_away_from_zero(text: str, milli: int) -> None:
    assert parse_quantity(text) == milli


def test_what_lies_beyond_an_int64_is_capped_there() -> None:
    assert parse_quantity("1e40") == MAX_INT64 * 1000


@pytest.mark.parametrize(
    "text", ["", "x", "1 Gi", "1ki", "--1", "1e", "e3", ".", "1Gi2", "\u0662", True, None, "1e1000"]
)
def test_a_text_that_is_no_quantity_is_refused(text: object) -> None:
    with pytest.raises(InvalidQuantity, match="is not a quantity"):
        parse_quantity(text)


def test_space_around_a_quantity_and_its_length_change_nothing() -> None:
    assert parse_quantity(" " * 1000 + "1" + " " * 1000) == 1000
    assert parse_quantity("+" + "9" * 40 + "." + "9" * 40 + "e-999") == 1
    with pytest.raises(InvalidQuantity):
        parse_quantity("1" * 1000)


def test_a_value_rounds_up_and_an_int64_must_be_exact() -> None:
    assert (value(1500), as_int64(1500), is_whole(1500)) == (2, None, False)
    assert (value(2000), as_int64(2000), is_whole(2000)) == (2, 2, True)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (1023, "1023"), (64 << 30, "64Gi"), (3 << 29, "1.5Gi"), (512 << 20, "512Mi")]
)
def test_bytes_are_written_for_people(number: int, text: str) -> None:
    assert format_bytes(number) == text
