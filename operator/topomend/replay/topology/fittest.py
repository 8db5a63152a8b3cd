"""The fittest of the masks that a search finds: the smallest, or where distances count the closest."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby, islice
from operator import itemgetter
from typing import TypeAlias

from topomend.model.bitmask import NUMAMask, mask_of, members
from topomend.replay.topology.closest_so_far import ClosestSoFar
from topomend.replay.topology.distances import (
    Distances,
    Spread,
    Twins,
    classes_of_twins,
    count_of_spreads,
    fittest,
    has_gaps,
    spreads,
)
from topomend.replay.topology.hints import Threshold, per_node
from topomend.replay.topology.search import Search, gains_of, running_sums, weighed_together

MOST_SPREADS = 2500
"""How many spreads are looked at; where NUMA nodes can be spread in more ways their masks are searched as they are."""

Accepts: TypeAlias = Callable[[NUMAMask], bool]


def fittest_found(search: Search, accepts: Accepts) -> NUMAMask | None:
    """The closest of the masks that are found and accepted, of these the smallest."""
    distances = search.distances
    if distances is None:
        return next(filter(accepts, search.masks()), None)
    if has_gaps(distances):
        return fittest(filter(accepts, search.masks()), distances)
    classes = classes_of_twins(sorted(members(search.universe), reverse=True), distances)
    if count_of_spreads(classes, search.width) <= MOST_SPREADS:
        return _closest_by_spread(search, classes, distances, accepts)
    return _closest_by_mask(search, distances, accepts)


def _closest_by_spread(
    search: Search, classes: Sequence[Twins], distances: Distances, accepts: Accepts
) -> NUMAMask | None:
    """How close a mask is follows from how many NUMA nodes of each class it holds: the closest spread comes first."""
    nodes = [node for twins in classes for node in twins]
    together = weighed_together(search.thresholds, [(nodes, search.width)])
    reaches = _reach([*search.thresholds, together] if together else search.thresholds, classes)

    def may_hold(spread: Spread) -> bool:
        if not reaches(spread):
            return False
        weighed = weighed_together(search.thresholds, list(zip(classes, spread, strict=True)))
        return weighed is None or _reach([weighed], classes)(spread)

    for _, equals in groupby(spreads(classes, search.width, distances), key=itemgetter(0)):
        searches = [_spread_so(search, classes, spread) for _, spread in equals if may_hold(spread)]
        found = [mask for each in searches for mask in islice(filter(accepts, each.masks()), 1)]
        if found:
            return min(found)
    return None


def _reach(thresholds: Iterable[Threshold], classes: Sequence[Twins]) -> Callable[[Spread], bool]:
    """Whether the best NUMA nodes of a spread meet each threshold by itself."""
    reach = []
    for each in thresholds:
        gains = gains_of(each)
        most = [running_sums(sorted([gains.get(node, 0) for node in twins], reverse=True)) for twins in classes]
        reach.append((each.need, most))

    def reaches(spread: Spread) -> bool:
        return all(sum([best[count] for best, count in zip(most, spread, strict=True)]) >= need for need, most in reach)

    return reaches


def _spread_so(search: Search, classes: Sequence[Twins], spread: Spread) -> Search:
    """The search for masks of this spread alone: distances do not tell these apart."""
    parts = [(mask_of(twins), count) for twins, count in zip(classes, spread, strict=True) if count]
    counts = [per_node(dict.fromkeys(members(nodes), 1), count) for nodes, count in parts]
    universe = sum([nodes for nodes, _ in parts])
    return replace(search, universe=universe, thresholds=[*search.thresholds, *counts], distances=None)


def _closest_by_mask(search: Search, distances: Distances, accepts: Accepts) -> NUMAMask | None:
    """One is found by its value alone and brought closer node by node; no other that is farther is then sought."""
    mask = next(filter(accepts, replace(search, distances=None).masks()), None)
    if mask is None:
        return None
    closest = ClosestSoFar(sorted(members(search.universe), reverse=True), distances)
    while True:
        nearer = (each for each in closest.nearer(mask) if all(rule.met_by(each) for rule in search.thresholds))
        closer = next(filter(accepts, nearer), None)
        if closer is None:
            break
        mask = closer
    closest.start_from(mask)
    best = None
    for each in filter(accepts, replace(search, closest=closest).masks()):
        if closest.improves(each):
            best = each
    return best
