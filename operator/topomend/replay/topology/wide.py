"""Merge hints on machines with too many NUMA nodes for a table of all masks.

A kubelet that answers within an hour has at most one long list of hints, because two lists longer than
``MAX_SHORT_LIST`` have too many permutations. So all lists but the longest are enumerated, and the longest is searched
by its rules.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from math import comb

from topomend.model.bitmask import NUMAMask, members
from topomend.replay.effort import Effort
from topomend.replay.topology.distances import Distances, fittest
from topomend.replay.topology.hints import Family, Hints, Threshold, width_rank
from topomend.replay.topology.search import Budget, fittest_of_width, narrowest_of, preferred_families
from topomend.replay.topology.walk_time import MAX_SHORT_LIST, check_walk


class WideMerge:
    """The two cases of the merge (``merge``) for lists of hints that are too long for tables.

    Raises KubeletBreaks if the kubelet's walk would take more than an hour.
    """

    def __init__(self, nodes: NUMAMask, hints: Sequence[Hints], distances: Distances | None, effort: Effort) -> None:
        check_walk(map(_least_length, hints))
        self._nodes = nodes
        self._hints = hints
        self._distances = distances
        self._effort, self._budget = effort, Budget(effort)
        self._longest, self._lists = _divided(hints, effort)

    def fittest_preferred(self) -> NUMAMask | None:
        """Case preferred: the best mask that every resource offers and prefers; None if there is none."""
        if not self._lists:
            return self._fittest_preferred_of(self._longest)
        masks = min(self._lists, key=len)
        return fittest(filter(self._is_preferred, masks), self._distances, self._effort)

    def _is_preferred(self, mask: NUMAMask) -> bool:
        """Whether every resource offers and prefers the mask."""
        self._effort.check()
        return all(hints.offers(mask) and hints.prefers(mask) for hints in self._hints)

    def fittest_intersection(self, wanted: int) -> NUMAMask | None:
        """Case not preferred: the best intersection of one mask from each list; None if there is none.

        ``wanted`` is that of ``width_rank``.
        """
        intersections = {self._nodes}
        for masks in self._lists:
            intersections = set(_intersections(intersections, masks, self._effort))
        named = set(_intersections(intersections, self._longest.masks, self._effort)) - {0}
        families = set(self._meeting_longest(intersections))
        widths = {family: _best_width(family, wanted, self._effort) for family in families}
        ranks = [width_rank(width, wanted) for width in (*widths.values(), *(mask.bit_count() for mask in named))]
        if not ranks:
            return None
        best = min(ranks)
        masks = [mask for mask in named if width_rank(mask.bit_count(), wanted) == best]
        for family, width in widths.items():
            if width_rank(width, wanted) == best:
                mask = fittest_of_width(family, width, self._distances, self._budget)
                masks += [] if mask is None else [mask]
        return fittest(masks, self._distances, self._effort)

    def _meeting_longest(self, intersections: Iterable[NUMAMask]) -> Iterator[Family]:
        for common in intersections:
            self._effort.check()
            for family in self._longest.families:
                met = _intersected(family, common)
                if not met.is_empty():
                    yield met

    def _fittest_preferred_of(self, hints: Hints) -> NUMAMask | None:
        """The best preferred mask of a single list."""
        masks = [mask for mask in hints.masks if hints.prefers(mask)]
        for width in range(1, self._nodes.bit_count() + 1):
            for family in hints.families:
                for preferred in preferred_families(family, hints, width, self._budget):
                    mask = fittest_of_width(preferred, width, self._distances, self._budget)
                    masks += [] if mask is None else [mask]
            if any(mask.bit_count() <= width for mask in masks):
                break
        return fittest(masks, self._distances, self._effort)


def _intersections(left: Iterable[NUMAMask], right: Collection[NUMAMask], effort: Effort) -> Iterator[NUMAMask]:
    for common in left:
        effort.check()
        yield from [common & mask for mask in right]


def _divided(hints: Sequence[Hints], effort: Effort) -> tuple[Hints, list[list[NUMAMask]]]:
    """The longest list as its rules, and all others enumerated."""
    if len(hints) == 1:
        return hints[0], []
    written = {index: _written_out(hint_list, effort) for index, hint_list in enumerate(hints)}
    lengths = [MAX_SHORT_LIST + 1 if masks is None else len(masks) for masks in written.values()]
    check_walk(lengths)
    longest = max(written, key=lengths.__getitem__)
    return hints[longest], [masks for index, masks in written.items() if masks is not None and index != longest]


def _written_out(hints: Hints, effort: Effort) -> list[NUMAMask] | None:
    """Every offered mask; None if there are more than ``MAX_SHORT_LIST``.

    A family is closed upwards, so removing one NUMA node after the other from its widest mask finds all its masks.
    """
    offered = set(hints.masks)
    for family in hints.families:
        masks = [] if family.is_empty() else [family.universe]
        for node in members(family.universe):
            masks += list(_without(node, masks, family, effort))
            if len(masks) > MAX_SHORT_LIST:
                return None
        offered.update(masks)
    return list(offered) if len(offered) <= MAX_SHORT_LIST else None


def _without(node: int, masks: Iterable[NUMAMask], family: Family, effort: Effort) -> Iterator[NUMAMask]:
    """The masks without ``node`` that the family still has."""
    for mask in masks:
        effort.check()
        narrower = mask & ~(1 << node)
        if narrower and family.holds(narrower):
            yield narrower


def _least_length(hints: Hints) -> int:
    """A lower bound for the length of the list, which is enough to detect hopeless merges at once."""
    return max([1, len(hints.masks), *(_least_members(family) for family in hints.families)])


def _least_members(family: Family) -> int:
    """A lower bound for the family's size: the masks so wide that even the poorest NUMA nodes meet all thresholds."""
    size = family.universe.bit_count()
    enough = max([family.least, *(poorest_width(threshold, family.universe) for threshold in family.thresholds)])
    return sum(comb(size, width) for width in range(max(1, enough), size + 1))


def poorest_width(threshold: Threshold, universe: NUMAMask) -> int:
    """The number of poorest NUMA nodes that meet the threshold; one more than exist if all together do not.

    Groups of several NUMA nodes are left out, which only makes the answer larger.
    """
    amounts = dict.fromkeys(members(universe), 0)
    for nodes, amount in threshold.groups:
        node = nodes.bit_length() - 1
        if nodes.bit_count() == 1 and node in amounts:
            amounts[node] += amount
    gathered = 0
    for count, amount in enumerate(sorted(amounts.values())):
        if gathered >= threshold.need:
            return count
        gathered += amount
    return len(amounts) if gathered >= threshold.need else len(amounts) + 1


def _intersected(family: Family, common: NUMAMask) -> Family:
    """The intersections of ``common`` with the masks of ``family``, which form a family again.

    NUMA nodes outside ``common`` do not change the intersection. So a mask may contain all of them, and the NUMA nodes
    inside ``common`` must supply what the thresholds still lack.
    """
    outside = family.universe & ~common
    thresholds = [
        Threshold(
            tuple([(nodes, amount) for nodes, amount in threshold.groups if not nodes & outside]),
            threshold.need - threshold.gathered(outside),
        )
        for threshold in family.thresholds
    ]
    return Family(
        family.universe & common,
        tuple([threshold for threshold in thresholds if threshold.need > 0]),
        max(1, family.least - outside.bit_count()),
    )


def _best_width(family: Family, wanted: int, effort: Effort) -> int:
    """The family's width that ranks best. A family has masks of every width from its narrowest to its widest."""
    widest = family.universe.bit_count()
    if widest <= wanted:
        return widest
    narrowest = narrowest_of(family, effort)
    return wanted if narrowest is None else max(wanted, narrowest.bit_count())
