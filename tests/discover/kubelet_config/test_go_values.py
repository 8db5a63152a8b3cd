import pytest

from topomend.discover.kubelet_config.go_values import (
    GoError,
    parse_bool,
    parse_cpu_list,
    parse_duration,
    parse_integer,
)
from topomend.model.bitmask import mask_of


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("0", 0), ("1h1m1.5s", 3661500000000), (".5s", 500000000), ("1.s", 10**9), ("-2us", -2000), ("1µs", 1000)],
)
def test_durations_are_parsed_as_go_does(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    "text", ["", "5", "s", "1d", " 1s", "1s ", ".s", "9223372036854775808ns", "1" * 60_000, "\uff11s"]
)
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(GoError):
        parse_duration(text)


def test_a_cpu_list_may_have_signs_and_repeat_itself() -> None:
    assert parse_cpu_list("+1,0-3,2") == mask_of([0, 1, 2, 3])
    assert parse_cpu_list("") == 0


@pytest.mark.parametrize("text", ["0, 1", ",", "1-", "-1", "2-1", "1-2-3", "a", "\uff11", "0-99999999999", "1_0"])
def test_other_cpu_lists_are_refused(text: str) -> None:
    with pytest.raises(GoError):
        parse_cpu_list(text)


def test_flags_have_the_numbers_and_booleans_of_go() -> None:
    assert [parse_integer(text, 0, 1000) for text in ("7", "0x10", "010", "1_0")] == [7, 16, 8, 10]
    assert [parse_bool(text) for text in ("T", "0")] == [True, False]
    for text in ("", "1e3", "1001", "-1"):
        with pytest.raises(GoError):
            parse_integer(text, 0, 1000)
