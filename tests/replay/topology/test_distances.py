"""Twins and spreads say of random machines what comparing all masks says.

A failing random test shows its seed in its name; TOPOMEND_SEED runs it again.
"""

import os
import random
from itertools import combinations

import pytest

from topomend.model.bitmask import mask_of
from topomend.replay.topology.distances import (
    Distances,
    Spread,
    classes_of_twins,
    count_of_spreads,
    spreads,
    total_distance,
)

SEED = int(os.environ.get("TOPOMEND_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


def random_distances(pick: random.Random, count: int) -> Distances:
    """Sockets of some nodes, seldom even, seldom the same there and back."""
    socket = pick.choice((1, 2, 3))
    far = {(one, other): pick.choice((20, 20, 20, 31)) for one in range(count) for other in range(count)}

    def distance(one: int, other: int) -> int:
        if one == other:
            return 10
        return 12 if one // socket == other // socket else far[one // socket, other // socket]

    return {one: tuple(distance(one, other) for other in range(count)) for one in range(count)}


@pytest.mark.parametrize("seed", [SEED])
def test_masks_that_are_spread_alike_are_as_close_and_every_spread_is_told_once(seed: int) -> None:
    pick = random.Random(seed)
    for _ in range(200):
        count = pick.randint(1, 7)
        distances = random_distances(pick, count)
        classes = classes_of_twins(range(count), distances)
        assert sorted(node for twins in classes for node in twins) == list(range(count))
        width = pick.randint(1, count)
        by_spread: dict[Spread, set[int]] = {}
        for nodes in combinations(range(count), width):
            spread = tuple(len(set(nodes).intersection(twins)) for twins in classes)
            by_spread.setdefault(spread, set()).add(total_distance(mask_of(nodes), distances))
        told = spreads(classes, width, distances)
        assert told == sorted((total, spread) for spread, totals in by_spread.items() for total in totals)
        assert count_of_spreads(classes, width) == len(by_spread)


def test_of_two_sockets_the_numa_nodes_of_each_are_twins() -> None:
    distances = {
        node: tuple(10 if node == other else 12 if node // 2 == other // 2 else 32 for other in range(4))
        for node in range(4)
    }
    assert classes_of_twins(range(4), distances) == [(0, 1), (2, 3)]
    assert spreads([(0, 1), (2, 3)], 2, distances) == [(44, (0, 2)), (44, (2, 0)), (84, (1, 1))]


def test_numa_nodes_with_a_distance_of_their_own_to_themselves_are_no_twins() -> None:
    assert classes_of_twins(range(3), {0: (10, 20, 20), 1: (20, 11, 20), 2: (20, 20, 10)}) == [(0, 2), (1,)]


def test_where_ids_have_gaps_no_numa_node_stands_for_another() -> None:
    assert classes_of_twins([0, 2], {0: (10, 20), 2: (20, 10)}) == [(0,), (2,)]
