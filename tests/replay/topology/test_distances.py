"""NUMA nodes of one class can replace each other in any mask.

A failing random test shows its seed in its name; TOPOMEND_SEED runs it again.
"""

import random
from itertools import combinations

import pytest
from tests.seeds import SEED

from topomend.model.bitmask import mask_of
from topomend.replay.effort import UNLIMITED
from topomend.replay.topology.distances import Distances, fittest, interchangeable_classes, total_distance


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
def test_masks_with_as_many_numa_nodes_of_each_class_are_equally_close(seed: int) -> None:
    pick = random.Random(seed)
    for _ in range(200):
        count = pick.randint(1, 7)
        distances = random_distances(pick, count)
        classes = interchangeable_classes(range(count), distances)
        totals: dict[tuple[int, ...], int] = {}
        for nodes in combinations(range(count), pick.randint(1, count)):
            spread = tuple(sorted(classes[node] for node in nodes))
            total = total_distance(mask_of(nodes), distances, UNLIMITED)
            assert totals.setdefault(spread, total) == total


def test_the_numa_nodes_of_each_of_two_sockets_are_interchangeable() -> None:
    distances = {
        node: tuple(10 if node == other else 12 if node // 2 == other // 2 else 32 for other in range(4))
        for node in range(4)
    }
    assert interchangeable_classes(range(4), distances) == [0, 0, 1, 1]


def test_numa_nodes_with_a_distance_of_their_own_to_themselves_are_not_interchangeable() -> None:
    assert interchangeable_classes(range(3), {0: (10, 20, 20), 1: (20, 11, 20), 2: (20, 20, 10)}) == [0, 1, 0]


def test_the_fittest_mask_is_narrow_then_close_then_small() -> None:
    distances = {0: (10, 32, 12), 1: (32, 10, 12), 2: (12, 12, 10)}
    assert fittest([], distances, UNLIMITED) is None
    assert fittest([0b111, 0b011, 0b110, 0b101], distances, UNLIMITED) == 0b101
    assert fittest([0b111, 0b110, 0b011], None, UNLIMITED) == 0b011
