"""``make fragmentation`` in small: always the same clusters, in which both figures have nearly one order."""

from random import Random

import pytest
from verify.fragmentation.clusters import RESOURCES, measured
from verify.fragmentation.ranking import rank_correlation

CLUSTERS, PROBES = 20, 60

LEAST = 0.85
"""Of so few clusters the coefficient varies by 0.05; the target of many is 0.9."""


@pytest.fixture(scope="module")
def found() -> list[tuple[str, float, float]]:
    clusters = (measured(Random(f"7 {number}"), PROBES) for number in range(CLUSTERS))
    return [(one.resource, one.fragmentation, one.refused) for cluster in clusters for one in cluster]


@pytest.mark.parametrize("resource", RESOURCES)
def test_the_more_fragmented_a_cluster_is_the_more_probes_are_refused(
    found: list[tuple[str, float, float]], resource: str
) -> None:
    pairs = [(share, refused) for name, share, refused in found if name == resource]
    assert rank_correlation(*zip(*pairs, strict=True)) >= LEAST


def test_equal_figures_share_a_rank() -> None:
    assert rank_correlation([1, 2, 2, 9], [10, 20, 20, 30]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
