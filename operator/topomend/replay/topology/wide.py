"""Hints on machines with too many NUMA nodes to table all masks: what ``merge`` asks, answered by search."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, product
from math import comb
from operator import or_

from topomend.model.bitmask import NUMAMask, members
from topomend.replay.topology.distances import Distances, fittest
from topomend.replay.topology.fittest import fittest_found
from topomend.replay.topology.hints import Family, Hints, Threshold, touching
from topomend.replay.topology.intersection import IntersectionSearch
from topomend.replay.topology.search import Budget, Search

MOST_CHOICES = 100
"""Among how many choices of sockets each is searched by itself."""


def narrowest(family: Family, including: NUMAMask = 0) -> NUMAMask | None:
    """The narrowest mask of the family that contains ``including``; None where there is none."""
    if family.is_empty() or including & ~family.universe:
        return None
    budget = Budget()
    for width in range(max(1, family.least, including.bit_count()), family.universe.bit_count() + 1):
        search = Search(family.universe, family.thresholds, width, budget, including=including)
        found = next(search.masks(), None)
        if found is not None:
            return found
    return None


def members_by_width(family: Family) -> Iterator[NUMAMask]:
    """The family's masks, narrowest first."""
    budget = Budget()
    for width in range(max(1, family.least), family.universe.bit_count() + 1):
        yield from Search(family.universe, family.thresholds, width, budget, all_alike=False).masks()


def common_preferred(nodes: NUMAMask, hints: Sequence[Hints], distances: Distances | None) -> NUMAMask | None:
    """The fittest mask that every resource offers and prefers; None where there is none."""
    named = {mask for each in hints for mask in each.masks}
    found = [mask for mask in named if all(each.offers(mask) and each.prefers(mask) for each in hints)]
    budget = Budget()
    for families in product(*(each.families for each in hints)):
        mask = _common_of_families(nodes, families, hints, distances, budget)
        if mask is not None:
            found.append(mask)
    return fittest(found, distances)


def fittest_intersection(
    nodes: NUMAMask, hints: Sequence[Hints], widths: Iterable[int], distances: Distances | None
) -> NUMAMask | None:
    """The fittest mask that is the intersection of one mask from each resource, of the first width that has one.

    ``widths`` are in order of preference.
    """
    alone = _single_nodes(nodes, hints)
    searches = [IntersectionSearch(nodes, choice, distances, Budget()) for choice in product(*map(_parts, hints))]
    for width in widths:
        found = list(alone) if width == 1 else []
        for search in searches:
            mask = search.of_width(width)
            if mask is not None:
                found.append(mask)
        if found:
            return fittest(found, distances)
    return None


def _common_of_families(
    nodes: NUMAMask,
    families: Sequence[Family],
    hints: Sequence[Hints],
    distances: Distances | None,
    budget: Budget,
) -> NUMAMask | None:
    universe = nodes
    for family in families:
        universe &= family.universe
    if not universe:
        return None
    thresholds = [threshold for family in families for threshold in family.thresholds]
    least = max(family.least for family in families)
    rules = [each.sockets for each in hints if each.sockets is not None]
    kinds: dict[int, object] = {
        node: tuple(mask for rule in rules for mask in rule.numa_nodes_of_sockets if mask >> node & 1)
        for node in members(universe)
    }
    common = _Common(universe, thresholds, hints, distances, budget, kinds)
    widths = _widths(hints, least, universe.bit_count())
    return next((mask for mask in map(common.fittest_of_width, widths) if mask is not None), None)


@dataclass
class _Common:
    """Masks that meet all thresholds and that every resource prefers; ``kinds`` as in ``Search``."""

    universe: NUMAMask
    thresholds: Sequence[Threshold]
    hints: Sequence[Hints]
    distances: Distances | None
    budget: Budget
    kinds: Mapping[int, object]

    def fittest_of_width(self, width: int) -> NUMAMask | None:
        """The closest mask of so many NUMA nodes, of these the smallest."""
        found = []
        for universe, touched in self._sockets(width):
            search = Search(
                universe,
                [*self.thresholds, *touched],
                width,
                self.budget,
                distances=self.distances,
                kinds=self.kinds,
            )
            mask = fittest_found(search, lambda mask: all(each.prefers(mask) for each in self.hints))
            if mask is not None:
                found.append(mask)
        return fittest(found, self.distances)

    def _sockets(self, width: int) -> Iterator[tuple[NUMAMask, list[Threshold]]]:
        """The NUMA nodes to search, and what a mask must touch.

        Where a resource prefers masks of this width only for their sockets, each choice of its sockets is searched by
        itself: a mask that touches all of these and no other one. With too many choices masks are tried one by one.
        """
        rule = next((each.sockets for each in self.hints if each.sockets and each.width not in {None, width}), None)
        sockets = [nodes & self.universe for nodes in rule.numa_nodes_of_sockets] if rule else []
        reachable = [nodes for nodes in sockets if nodes]
        if not rule or comb(len(reachable), rule.count) > MOST_CHOICES:
            yield self.universe, []
            return
        for chosen in combinations(range(len(reachable)), rule.count):
            excluded_nodes = reduce(or_, (nodes for each, nodes in enumerate(reachable) if each not in chosen), 0)
            yield self.universe & ~excluded_nodes, [touching(reachable[each]) for each in chosen]


def _widths(hints: Sequence[Hints], least: int, most: int) -> Iterable[int]:
    """The widths that every resource may prefer."""
    fixed = {each.width for each in hints if each.width is not None and each.sockets is None}
    return [width for width in range(max(1, least), most + 1) if fixed <= {width}]


def _single_nodes(nodes: NUMAMask, hints: Sequence[Hints]) -> list[NUMAMask]:
    """The single NUMA nodes that one resource offers as such, and that some mask of every other holds."""
    return [
        1 << node
        for node in members(nodes)
        if any(each.offers(1 << node) for each in hints) and all(_reaches(each, node) for each in hints)
    ]


def _reaches(hints: Hints, node: int) -> bool:
    return any(mask >> node & 1 for mask in hints.masks) or any(
        family.universe >> node & 1 and not family.is_empty() for family in hints.families
    )


def _parts(hints: Hints) -> list[Family]:
    """A resource's families, and each of its other masks as a family of one; single nodes are seen to elsewhere."""
    named = [Family(mask, (), mask.bit_count()) for mask in hints.masks if mask.bit_count() > 1]
    return [*(family for family in hints.families if not family.is_empty()), *named]
