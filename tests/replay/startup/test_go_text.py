"""The kubelet's sentences print values as Go does."""

import pytest

from topomend.replay.startup.go_text import InvalidText, duration, duration_of, float32, floating, integer, quote


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("a b", '"a b"'),
        ('x"y\\', '"x\\"y\\\\"'),
        ("a\nb\x01\x7f", '"a\\nb\\x01\\x7f"'),
        ("ü\u200b\U000e0001", '"ü\\u200b\\U000e0001"'),
    ],
)
def test_text_is_quoted_as_go_quotes_it(text: str, printed: str) -> None:
    assert quote(text) == printed


@pytest.mark.parametrize(
    ("nanoseconds", "printed"),
    [
        (0, "0s"),
        (1, "1ns"),
        (-1_500, "-1.5µs"),
        (100_000_000, "100ms"),
        (60_000_000_000, "1m0s"),
        (-5_400_000_000_000, "-1h30m0s"),
        (3_600_000_000_001, "1h0m0.000000001s"),
    ],
)
def test_a_duration_is_printed_and_parsed_as_go_does_it(nanoseconds: int, printed: str) -> None:
    assert (duration(nanoseconds), duration_of(printed)) == (printed, nanoseconds)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", 'time: invalid duration ""'),
        ("1", 'time: missing unit in duration "1"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("-.s", 'time: invalid duration "-.s"'),
        ("9999999999h", 'time: invalid duration "9999999999h"'),
        ("1ü", 'time: unknown unit "\\xc3\\xbc" in duration "1\\xc3\\xbc"'),
    ],
)
def test_a_text_that_is_no_duration_has_gos_error(text: str, error: str) -> None:
    with pytest.raises(InvalidText) as raised:
        duration_of(text)
    assert str(raised.value) == error


@pytest.mark.parametrize(
    ("number", "printed"),
    [
        (0.9, "0.9"),
        (2.0, "2"),
        (1e-7, "1e-07"),
        (123456789.0, "1.23456789e+08"),
        (999999.0, "999999"),
        (-1e21, "-1e+21"),
    ],
)
def test_a_float_is_printed_with_gos_exponents(number: float, printed: str) -> None:
    assert floating(number) == printed


@pytest.mark.parametrize("text", ["", " 1", "1_0", "٣", "0x1", "99999999999999999999"])
def test_a_text_that_atoi_refuses_is_no_integer(text: str) -> None:
    with pytest.raises(InvalidText, match=r"strconv\.Atoi: parsing"):
        integer(text)


def test_a_huge_text_is_judged_without_the_limits_of_python() -> None:
    with pytest.raises(InvalidText, match="value out of range"):
        integer("9" * 100_000)
    with pytest.raises(InvalidText, match="value out of range"):
        float32("9" * 100_000)
