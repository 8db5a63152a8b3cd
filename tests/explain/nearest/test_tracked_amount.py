"""The range of amounts for which every comparison comes out the same."""

import operator
from collections.abc import Callable
from functools import partial
from itertools import product
from random import Random

import pytest
from tests.seeds import SEED

from topomend.explain.nearest.tracked_amount import NotLinear, Range, TrackedAmount

ALL_ONES = (1 << 64) - 1

Computation = Callable[[int], object]


def range_of(computation: Computation, amount: int, slope: int = 1) -> tuple[int | None, int | None]:
    """The amounts for which the computation runs as with ``amount``."""
    seen = Range()
    computation(TrackedAmount.of(amount, slope, seen))
    return seen.least, seen.most


@pytest.mark.parametrize(
    ("computation", "expected"),
    [
        (lambda amount: amount >= 8, (8, None)),
        (lambda amount: amount > 8, (9, None)),
        (lambda amount: amount <= 12, (None, 12)),
        (lambda amount: amount < 12, (None, 11)),
        (lambda amount: amount < 8, (8, None)),
        (lambda amount: amount + 2 > 3 and 20 - amount > 4, (2, 15)),
        (lambda amount: amount == 10, (10, 10)),
        (lambda amount: amount == 11, (None, 10)),
        (bool, (1, None)),
        (lambda amount: max(0, amount - 4), (5, None)),
        (lambda amount: min(amount, 4), (5, None)),
        (lambda amount: amount - amount > 0, (None, None)),
        (lambda amount: abs(-amount) > 5, (6, None)),
        (lambda amount: (amount & ALL_ONES) > 5, (6, ALL_ONES)),
    ],
)
def test_each_comparison_narrows_the_range(computation: Computation, expected: tuple[int | None, int | None]) -> None:
    assert range_of(computation, 10) == expected


@pytest.mark.parametrize("compare", [operator.ge, operator.gt, operator.le, operator.lt])
def test_a_comparison_comes_out_the_same_within_the_range_and_nowhere_else(
    compare: Callable[[int, int], bool],
) -> None:
    for slope, bound in product((-3, -1, 1, 2, 1000), range(-7, 8)):
        answer = compare(slope, bound)
        least, most = range_of(partial(_compared, compare, bound), 1, slope)
        for amount in range(-20, 21):
            within = (least is None or amount >= least) and (most is None or amount <= most)
            assert (compare(slope * amount, bound) == answer) is within, (slope, bound, amount)


def _compared(compare: Callable[[int, int], bool], bound: int, amount: int) -> bool:
    return compare(amount, bound)


def test_thousandths_are_divided_where_nothing_is_left_over() -> None:
    assert range_of(lambda amount: amount // 1000 >= 8, 10, slope=1000) == (8, None)
    seen = Range()
    assert TrackedAmount.of(10, 1000, seen) % 1000 == 0
    assert (seen.least, seen.most) == (None, None)


@pytest.mark.parametrize(
    "computation",
    [
        lambda amount: amount // 3,
        lambda amount: amount % 3,
        lambda amount: amount * 2,
        lambda amount: amount / 2,
        lambda amount: amount & 7,
        lambda amount: 7 & amount,
        lambda amount: amount | 1,
        lambda amount: amount << 1,
        lambda amount: amount.bit_length(),
        lambda amount: [0] * amount,
        int,
        float,
    ],
)
def test_anything_else_that_is_done_with_an_amount_ends_the_computation(computation: Computation) -> None:
    with pytest.raises(NotLinear):
        range_of(computation, 10)


def test_a_tracked_amount_counts_as_an_int_and_keeps_the_range_of_its_comparisons() -> None:
    seen = Range()
    amount = TrackedAmount.of(7, 1000, seen) // 1000
    assert sum([amount, 3]) == 10
    assert seen == Range(7, 7)
    seen = Range()
    amount = TrackedAmount.of(7, 1000, seen) // 1000
    assert max(0, 5 - amount) == 0
    assert amount + 3 < 20
    assert (seen.least, seen.most) == (5, 16)
    with pytest.raises(NotLinear):
        amount * 2


@pytest.mark.parametrize("seed", [SEED])
def test_every_amount_of_a_range_compares_as_the_one_that_was_tracked(seed: int) -> None:
    random = Random(seed)
    for _ in range(300):
        numbers = [random.randrange(-40, 40) for _ in range(6)]
        seen = Range()
        outcomes = _compared_in_every_way(TrackedAmount.of(random.randrange(60), 1, seen), numbers)
        least = -60 if seen.least is None else seen.least
        most = 120 if seen.most is None else seen.most
        assert all(_compared_in_every_way(number, numbers) == outcomes for number in range(least, most + 1)), numbers


def _compared_in_every_way(amount: int, numbers: list[int]) -> list[object]:
    left = amount - numbers[0]
    rest = max(0, numbers[1] - amount)
    order = [left > numbers[2], rest >= numbers[3], amount == numbers[4], min(left, numbers[5]) < rest]
    return [*order, bool(left), -left <= amount]
