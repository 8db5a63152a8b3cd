"""Find masks of a family without a table of all masks, by branch and bound.

The search decides from the highest NUMA node down whether a mask contains it, and tries "no" first. So the first mask
that it finds is the smallest. A branch ends if the best of the remaining NUMA nodes cannot meet a threshold. Of NUMA
nodes that can replace each other the search tries only the lowest.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import accumulate, combinations, islice
from operator import or_

from topomend.model.bitmask import NUMAMask, members
from topomend.replay.effort import Effort
from topomend.replay.errors import KUBELET_WOULD_HANG, KubeletBreaks
from topomend.replay.topology.distances import Distances, closest, has_gaps, interchangeable_classes, total_distance
from topomend.replay.topology.hints import Family, Hints, Threshold, touching

MAX_STEPS = 1_000_000
"""The most steps of all searches of one merge together: they take some seconds."""

CHECKED_STEPS = 64
"""After so many steps the search checks whether it may go on: a step takes some microseconds."""

TRIED_NODES = 4
"""The most NUMA nodes on which trying every mask is faster than a search."""

_SCALE = 1 << 80


class Budget:
    """The remaining steps of the searches of one merge, which keep to ``effort``."""

    def __init__(self, effort: Effort) -> None:
        self._steps, self.effort = MAX_STEPS, effort

    def spend(self) -> None:
        """Take a step. Raises KubeletBreaks if none remains."""
        self._steps -= 1
        if not self._steps % CHECKED_STEPS:
            self.effort.check()
        if self._steps < 0:
            raise KubeletBreaks(
                KUBELET_WOULD_HANG, f"replay gave up on these NUMA hints after {MAX_STEPS:,} steps of its search"
            )


def narrowest_of(family: Family, effort: Effort, including: NUMAMask = 0) -> NUMAMask | None:
    """The family's narrowest mask that contains ``including``; among equals the smallest. None if there is none."""
    if family.is_empty() or including & ~family.universe:
        return None
    if family.universe.bit_count() <= TRIED_NODES:
        masks = _submasks(family.universe)
        return next((mask for mask in masks if not including & ~mask and family.holds(mask)), None)
    budget = Budget(effort)
    for width in range(max(1, family.least, including.bit_count()), family.universe.bit_count() + 1):
        mask = next(_Search(family, width, budget, including).masks(), None)
        if mask is not None:
            return mask
    return None


def masks_by_width(family: Family, effort: Effort) -> Iterator[NUMAMask]:
    """Every mask of the family, narrowest first, equals by value."""
    if family.universe.bit_count() <= TRIED_NODES:
        yield from filter(family.holds, _submasks(family.universe))
        return
    budget = Budget(effort)
    for width in range(max(1, family.least), family.universe.bit_count() + 1):
        yield from _Search(family, width, budget, every=True).masks()


def preferred_of_width(hints: Hints, width: int, limit: int, effort: Effort) -> list[NUMAMask]:
    """The smallest masks of ``width`` NUMA nodes that are offered and preferred, at most ``limit``, ascending."""
    masks = {mask for mask in hints.masks if mask.bit_count() == width and hints.prefers(mask)}
    budget = Budget(effort)
    for family in hints.families:
        for preferred in preferred_families(family, hints, width, budget):
            masks.update(islice(_Search(preferred, width, budget, every=True).masks(), limit))
    return sorted(masks)[:limit]


def preferred_families(family: Family, hints: Hints, width: int, budget: Budget) -> Iterator[Family]:
    """Families whose union contains, of this width, exactly the masks of ``family`` that ``hints`` prefer."""
    if hints.width in {None, width}:
        yield family
        return
    if hints.sockets is None:
        return
    sockets = hints.sockets.numa_nodes_of_sockets
    for chosen in combinations(range(len(sockets)), hints.sockets.count):
        budget.spend()
        other_sockets = reduce(or_, (nodes for number, nodes in enumerate(sockets) if number not in chosen), 0)
        demands = tuple([touching(sockets[number]) for number in chosen])
        yield Family(family.universe & ~other_sockets, (*family.thresholds, *demands), family.least)


@lru_cache(maxsize=256)
def _submasks(universe: NUMAMask) -> tuple[NUMAMask, ...]:
    """All masks within ``universe`` but the empty one, narrowest first, equals by value."""
    masks = [0]
    for node in members(universe):
        masks += [mask | 1 << node for mask in masks]
    return tuple(sorted(masks[1:], key=lambda mask: (mask.bit_count(), mask)))


def fittest_of_width(family: Family, width: int, distances: Distances | None, budget: Budget) -> NUMAMask | None:
    """The family's closest mask of ``width`` NUMA nodes; among equals, or without distances, the smallest."""
    if not 1 <= width <= family.universe.bit_count():
        return None
    if distances is None:
        return next(_Search(family, width, budget).masks(), None)
    if has_gaps(distances):
        masks = list(_Search(family, width, budget, every=True).masks())
        return closest(masks, distances, budget.effort) if masks else None
    approaching = _Search(family, width, budget, distances=distances).masks()
    return next(iter(deque(approaching, maxlen=1)), None)


@dataclass
class _Search:
    """The masks of a family with ``width`` NUMA nodes that contain ``including``, smallest first.

    Of masks that differ only by interchangeable NUMA nodes the search finds the smallest, or all with ``every``. With
    ``distances`` it skips masks that are not closer than the last one.
    """

    family: Family
    width: int
    budget: Budget
    including: NUMAMask = 0
    every: bool = False
    distances: Distances | None = None

    def __post_init__(self) -> None:
        self._nodes = sorted(members(self.family.universe & ~self.including), reverse=True)
        thresholds = _with_sum(dict.fromkeys(self.family.thresholds), self.including)
        self._shared = [(index, rule) for index, rule in enumerate(thresholds) if not rule.adds_up]
        self._lacks = tuple([rule.need - rule.gathered(self.including) for rule in thresholds])
        gains = [rule.gains() for rule in thresholds]
        self._gains = [[by_node.get(node, 0) for node in self._nodes] for by_node in gains]
        self._most = [
            [_running_sums(sorted(amounts[position:], reverse=True)) for position in range(len(amounts) + 1)]
            for amounts in self._gains
        ]
        self._kinds: Sequence[object] = (
            self._nodes if self.every else _interchangeable(self._nodes, thresholds, self.distances)
        )
        self._closest = None if self.distances is None else _Closest(self._nodes, self.distances, self.budget.effort)

    def masks(self) -> Iterator[NUMAMask]:
        missing = self.width - self.including.bit_count()
        if self.width >= self.family.least and 0 <= missing <= len(self._nodes):
            yield from self._walk(0, self.including, missing, self._lacks, frozenset())

    def _walk(
        self, position: int, mask: NUMAMask, missing: int, lacks: tuple[int, ...], taken: frozenset[object]
    ) -> Iterator[NUMAMask]:
        self.budget.spend()
        for lack, most in zip(lacks, self._most, strict=True):
            if most[position][missing] < lack:
                return
        if self._closest and not self._closest.may_improve(position, mask, missing):
            return
        if missing == 0:
            if self._closest:
                self._closest.best = self._closest.total(mask)
            yield mask
            return
        kind = self._kinds[position]
        if missing < len(self._nodes) - position and kind not in taken:
            yield from self._walk(position + 1, mask, missing, lacks, taken)
        wider = mask | 1 << self._nodes[position]
        yield from self._walk(position + 1, wider, missing - 1, self._less(lacks, position, wider), taken | {kind})

    def _less(self, lacks: tuple[int, ...], position: int, mask: NUMAMask) -> tuple[int, ...]:
        """The amounts that each threshold still lacks after the node at ``position`` joined the mask."""
        lacking = [lack - gains[position] for lack, gains in zip(lacks, self._gains, strict=True)]
        for index, threshold in self._shared:
            lacking[index] = threshold.need - threshold.gathered(mask)
        return tuple(lacking)


class _Closest:
    """A lower bound for the total distance of a branch. ``best`` is the total distance of the last mask."""

    def __init__(self, nodes: list[int], distances: Distances, effort: Effort) -> None:
        self.distances, self._effort = distances, effort
        self.best: int | None = None
        self._nodes = nodes
        self._pairs = {one: {other: distances[one][other] + distances[other][one] for other in nodes} for one in nodes}
        self._nearest: dict[int, list[list[int]]] = {}

    def total(self, mask: NUMAMask) -> int:
        """The total distance of a mask."""
        return total_distance(mask, self.distances, self._effort)

    def may_improve(self, position: int, mask: NUMAMask, missing: int) -> bool:
        """Whether ``missing`` of the nodes from ``position`` on can make a mask closer than the best.

        Each added node adds its distances to the mask, and half of its distances to the other added nodes. The bound
        takes the nearest of those. All terms are doubled to stay integers.
        """
        if self.best is None or not missing:
            return self.best is None or self.total(mask) < self.best
        chosen = list(members(mask))
        costs = sorted(
            [
                2 * (self.distances[node][node] + sum([self._pairs[node][other] for other in chosen]))
                + nearest[missing - 1]
                for node, nearest in zip(self._nodes[position:], self._nearest_from(position), strict=True)
            ]
        )
        return 2 * self.total(mask) + sum(costs[:missing]) < 2 * self.best

    def _nearest_from(self, position: int) -> list[list[int]]:
        """For each node from ``position`` on, the summed distances to its nearest 0, 1, 2, ... of these nodes."""
        if position not in self._nearest:
            rest = self._nodes[position:]
            self._nearest[position] = [
                _running_sums(sorted([self._pairs[node][other] for other in rest if other != node])) for node in rest
            ]
        return self._nearest[position]


def _running_sums(numbers: Iterable[int]) -> list[int]:
    """The sums of the first 0, 1, 2, ... numbers."""
    return list(accumulate(numbers, initial=0))


def _with_sum(thresholds: Iterable[Threshold], including: NUMAMask) -> list[Threshold]:
    """``thresholds``, and the sum of those that add up, each divided by the amount that it lacks.

    A mask that meets all thresholds meets their sum. The sum ends branches whose NUMA nodes have much of one resource
    and little of another.
    """
    rules = list(thresholds)
    lacks = [(rule, rule.need - rule.gathered(including)) for rule in rules if rule.adds_up]
    lacks = [(rule, lack) for rule, lack in lacks if lack > 0]
    if len(lacks) < 2:
        return rules
    weighed = [(rule, _SCALE // lack) for rule, lack in lacks]
    groups = tuple([(nodes, weight * amount) for rule, weight in weighed for nodes, amount in rule.groups])
    return [*rules, Threshold(groups, sum([weight * rule.need for rule, weight in weighed]))]


def _interchangeable(nodes: list[int], thresholds: Iterable[Threshold], distances: Distances | None) -> list[object]:
    """A key for each node. Nodes with equal keys are interchangeable: equal in every threshold and distance."""
    rules: dict[int, list[object]] = {node: [] for node in nodes}
    for number, threshold in enumerate(thresholds):
        for mask, amount in sorted(threshold.groups):
            for node in members(mask):
                if node in rules:
                    rules[node].append((number, 0 if mask.bit_count() == 1 else mask, amount))
    classes = [0] * len(nodes) if distances is None else interchangeable_classes(nodes, distances)
    return [(tuple(rules[node]), number) for node, number in zip(nodes, classes, strict=True)]
