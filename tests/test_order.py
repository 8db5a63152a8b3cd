"""The longest groups of tests begin first, and those that compute beside those that wait."""

from pathlib import Path

import pytest
from tests.order import LONGEST, in_turn

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", [name for name in LONGEST if "/" in name])
def test_a_long_group_has_the_name_of_a_file(name: str) -> None:
    assert (ROOT / name).is_file()


def test_each_group_is_there_once_and_the_longest_comes_first() -> None:
    names = [f"tests/test_{number}.py" for number in range(50)]
    waits = dict.fromkeys(names, False) | dict.fromkeys(reversed(LONGEST), True)
    assert sorted(in_turn(waits)) == sorted(waits)
    assert [name for name in in_turn(waits) if name in LONGEST] == list(LONGEST)
    assert [name for name in in_turn(waits) if name in names] == names


def test_groups_that_compute_stand_between_those_that_wait() -> None:
    waits = {"a": True, "b": True, "1": False, "2": False, "3": False, "4": False}
    assert in_turn(waits) == ["a", "1", "2", "b", "3", "4"]
    assert in_turn({"a": True}) == ["a"]
    assert in_turn({}) == []
