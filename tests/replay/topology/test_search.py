"""Searches find what trying every mask finds, and give up when their steps are spent.

A failing random test shows its seed in its name; TOPOMEND_SEED runs it again.
"""

import random

import pytest
from tests.seeds import SEED

from topomend.replay.effort import UNLIMITED
from topomend.replay.errors import KUBELET_WOULD_HANG, KubeletBreaks
from topomend.replay.topology import search
from topomend.replay.topology.distances import Distances, total_distance
from topomend.replay.topology.hints import Family, Threshold, per_node
from topomend.replay.topology.search import TRIED_NODES, Budget, fittest_of_width, masks_by_width, narrowest_of

FAMILIES = 150
MAX_NODES = 8


def random_family(pick: random.Random) -> Family:
    """Amounts on single NUMA nodes, and devices that belong to two of them."""
    nodes = pick.randint(1, MAX_NODES)
    thresholds = [
        per_node({node: pick.choice((0, 1, 1, 2, 3)) for node in range(nodes)}, pick.randint(1, 6))
        for _ in range(pick.randint(1, 2))
    ]
    pairs = [(1 << pick.randrange(nodes) | 1 << pick.randrange(nodes), 1) for _ in range(pick.randint(0, 3))]
    shared = [Threshold(tuple(pairs), pick.randint(1, len(pairs)))] if pairs else []
    return Family((1 << nodes) - 1, (*thresholds, *shared), pick.choice((1, 1, 2)))


def random_distances(pick: random.Random) -> Distances:
    return {
        node: tuple(10 if node == other else pick.choice((11, 12, 20)) for other in range(MAX_NODES))
        for node in range(MAX_NODES)
    }


def tried(family: Family) -> list[int]:
    """Every mask of the family, narrowest first, equals by value."""
    return sorted(filter(family.holds, range(1, family.universe + 1)), key=lambda mask: (mask.bit_count(), mask))


@pytest.mark.parametrize("seed", [SEED])
def test_masks_come_narrowest_first_and_none_is_missing(seed: int) -> None:
    pick = random.Random(seed)
    for _ in range(FAMILIES):
        family = random_family(pick)
        assert list(masks_by_width(family, UNLIMITED)) == tried(family), family


@pytest.mark.parametrize("seed", [SEED])
def test_the_narrowest_mask_contains_the_numa_nodes_that_it_must(seed: int) -> None:
    pick = random.Random(seed)
    for _ in range(FAMILIES):
        family = random_family(pick)
        including = pick.randrange(family.universe + 1)
        fitting = [mask for mask in tried(family) if not including & ~mask]
        assert narrowest_of(family, UNLIMITED, including) == next(iter(fitting), None), (family, including)
        assert narrowest_of(family, UNLIMITED, family.universe + 1) is None


@pytest.mark.parametrize("seed", [SEED])
def test_of_one_width_the_closest_mask_is_the_fittest_and_without_distances_the_smallest(seed: int) -> None:
    pick = random.Random(seed)
    for _ in range(FAMILIES):
        family, distances = random_family(pick), random_distances(pick)
        for width in range(family.universe.bit_count() + 2):
            fitting = [mask for mask in tried(family) if mask.bit_count() == width]
            smallest = min(fitting, default=None)
            assert fittest_of_width(family, width, None, Budget(UNLIMITED)) == smallest, (family, width)
            closest = min(fitting, key=lambda mask: (total_distance(mask, distances, UNLIMITED), mask), default=None)
            assert fittest_of_width(family, width, distances, Budget(UNLIMITED)) == closest, (family, width, distances)


def test_a_search_whose_steps_are_spent_is_said_to_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_STEPS", 100)
    family = Family((1 << 20) - 1, (per_node(dict.fromkeys(range(20), 1), 10),))
    with pytest.raises(KubeletBreaks, match="gave up on these NUMA hints after 100 steps") as broken:
        list(masks_by_width(family, UNLIMITED))
    assert broken.value.reason == KUBELET_WOULD_HANG


def test_interchangeable_numa_nodes_are_not_searched_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40 alike NUMA nodes 20 give more than 10^11 masks; the smallest is the first."""
    monkeypatch.setattr(search, "MAX_STEPS", 1000)
    family = Family((1 << 40) - 1, (per_node(dict.fromkeys(range(40), 1), 20),))
    assert family.universe.bit_count() > TRIED_NODES
    equal = dict.fromkeys(range(40), (10,) * 40)
    assert fittest_of_width(family, 20, equal, Budget(UNLIMITED)) == (1 << 20) - 1
