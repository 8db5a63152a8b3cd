"""What some NUMA nodes have together, where devices belong to several of them."""

import random
from itertools import combinations

import pytest

from topomend.explain import refused_merge
from topomend.explain.refused_merge import Amounts
from topomend.model.bitmask import mask_of
from topomend.replay.topology.hints import Family
from topomend.replay.topology.merge import least_width

SEED = 7


def random_amounts(pick: random.Random, numa_nodes: int) -> Amounts:
    masks = [mask_of(pick.sample(range(numa_nodes), pick.randint(1, numa_nodes))) for _ in range(pick.randint(1, 5))]
    return tuple((mask, pick.randint(1, 6)) for mask in masks)


@pytest.mark.parametrize("seed", [SEED])
def test_the_most_is_what_the_best_of_so_many_numa_nodes_touch(seed: int) -> None:
    pick = random.Random(seed)
    for _ in range(200):
        numa_nodes = pick.randint(1, 4)
        amounts = random_amounts(pick, numa_nodes)
        for width in range(1, numa_nodes + 1):
            chosen = [mask_of(nodes) for nodes in combinations(range(numa_nodes), width)]
            most = max(sum(amount for mask, amount in amounts if mask & nodes) for nodes in chosen)
            assert refused_merge._most(amounts, width) == most, (amounts, width)


def test_thousands_of_devices_of_several_numa_nodes_take_few_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[Family] = []

    def counted(family: Family) -> int | None:
        searches.append(family)
        return least_width(family)

    monkeypatch.setattr(refused_merge, "least_width", counted)
    assert refused_merge._most(((0b011, 5000), (0b110, 4000), (0b101, 1)), 1) == 9000
    assert len(searches) < 20
