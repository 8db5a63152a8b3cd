"""Whether two figures put things in the same order."""

from collections.abc import Sequence
from statistics import correlation


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Spearman's coefficient: the correlation of the ranks, of which equal figures share the mean.

    Raises StatisticsError where all figures of one side are equal.
    """
    return correlation(_ranks(left), _ranks(right))


def _ranks(figures: Sequence[float]) -> list[float]:
    places: dict[float, list[int]] = {}
    for place, figure in enumerate(sorted(figures)):
        places.setdefault(figure, []).append(place)
    return [sum(places[figure]) / len(places[figure]) for figure in figures]
