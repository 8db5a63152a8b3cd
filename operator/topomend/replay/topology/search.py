"""Masks of a family, found without a table of all masks.

Masks are built from the highest NUMA node down, each node left out before it is taken in, so the first mask found is
the smallest. A branch ends where the best of the remaining nodes cannot reach a threshold. Of nodes that can replace
each other only the lowest are tried.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from topomend.model.bitmask import NUMAMask, members
from topomend.replay.errors import KUBELET_WOULD_HANG, KubeletBreaks
from topomend.replay.topology.distances import Distances, closest, has_gaps, interchangeable_classes, total_distance
from topomend.replay.topology.hints import Family, Threshold

MAX_STEPS = 1_000_000
"""How many steps all searches of one merge may take together: some seconds."""

TRIED_NODES = 4
"""The most NUMA nodes on which trying every mask is faster than a search."""

_SCALE = 1 << 80


class Budget:
    """The steps that the searches of one merge have left."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def spend(self) -> None:
        """Take a step. Raises KubeletBreaks where none is left."""
        self._left -= 1
        if self._left < 0:
            raise KubeletBreaks(
                KUBELET_WOULD_HANG, f"replay gave up on these NUMA hints after {MAX_STEPS:,} steps of its search"
            )


def narrowest_of(family: Family, including: NUMAMask = 0) -> NUMAMask | None:
    """The narrowest mask of the family that contains ``including``; among equals the smallest. None without one."""
    if family.is_empty() or including & ~family.universe:
        return None
    if family.universe.bit_count() <= TRIED_NODES:
        masks = _submasks(family.universe)
        return next((mask for mask in masks if not including & ~mask and family.holds(mask)), None)
    budget = Budget()
    for width in range(max(1, family.least, including.bit_count()), family.universe.bit_count() + 1):
        mask = next(_Search(family, width, budget, including).masks(), None)
        if mask is not None:
            return mask
    return None


def masks_by_width(family: Family) -> Iterator[NUMAMask]:
    """Every mask of the family, narrowest first, equals by value."""
    if family.universe.bit_count() <= TRIED_NODES:
        yield from filter(family.holds, _submasks(family.universe))
        return
    budget = Budget()
    for width in range(max(1, family.least), family.universe.bit_count() + 1):
        yield from _Search(family, width, budget, every=True).masks()


@lru_cache(maxsize=256)
def _submasks(universe: NUMAMask) -> tuple[NUMAMask, ...]:
    """All masks within ``universe`` but the empty one, narrowest first, equals by value."""
    masks = [0]
    for node in members(universe):
        masks += [mask | 1 << node for mask in masks]
    return tuple(sorted(masks[1:], key=lambda mask: (mask.bit_count(), mask)))


def fittest_of_width(family: Family, width: int, distances: Distances | None, budget: Budget) -> NUMAMask | None:
    """The closest mask of the family with so many NUMA nodes; among equals, or without distances, the smallest."""
    if not 1 <= width <= family.universe.bit_count():
        return None
    if distances is None:
        return next(_Search(family, width, budget).masks(), None)
    if has_gaps(distances):
        masks = list(_Search(family, width, budget, every=True).masks())
        return closest(masks, distances) if masks else None
    approaching = _Search(family, width, budget, distances=distances).masks()
    return next(iter(deque(approaching, maxlen=1)), None)


@dataclass
class _Search:
    """The masks of a family with ``width`` NUMA nodes that contain ``including``, smallest first.

    Of masks that differ only by nodes that can replace each other it finds the smallest, with ``every`` all of them.
    With ``distances`` it leaves out masks that are not closer than the last one found.
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
        self._closest = None if self.distances is None else _Closest(self._nodes, self.distances)

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
                self._closest.best = total_distance(mask, self._closest.distances)
            yield mask
            return
        kind = self._kinds[position]
        if missing < len(self._nodes) - position and kind not in taken:
            yield from self._walk(position + 1, mask, missing, lacks, taken)
        wider = mask | 1 << self._nodes[position]
        yield from self._walk(position + 1, wider, missing - 1, self._less(lacks, position, wider), taken | {kind})

    def _less(self, lacks: tuple[int, ...], position: int, mask: NUMAMask) -> tuple[int, ...]:
        """What is still lacking once the node at ``position`` has made the mask what it is."""
        left = [lack - gains[position] for lack, gains in zip(lacks, self._gains, strict=True)]
        for index, threshold in self._shared:
            left[index] = threshold.need - threshold.gathered(mask)
        return tuple(left)


class _Closest:
    """The total distance of the last mask found, ``best``, and whether a branch can come to less."""

    def __init__(self, nodes: list[int], distances: Distances) -> None:
        self.distances = distances
        self.best: int | None = None
        self._nodes = nodes
        self._pairs = {one: {other: distances[one][other] + distances[other][one] for other in nodes} for one in nodes}
        self._nearest: dict[int, list[list[int]]] = {}

    def may_improve(self, position: int, mask: NUMAMask, missing: int) -> bool:
        """Whether ``missing`` of the nodes from ``position`` on can make a mask that is closer than the best.

        Each added node adds its distances to the mask, and half of those to the others that are added: at least to
        the nearest of them. All is counted twice, so that it stays whole.
        """
        if self.best is None or not missing:
            return self.best is None or total_distance(mask, self.distances) < self.best
        chosen = list(members(mask))
        costs = sorted(
            [
                2 * (self.distances[node][node] + sum([self._pairs[node][other] for other in chosen]))
                + nearest[missing - 1]
                for node, nearest in zip(self._nodes[position:], self._nearest_from(position), strict=True)
            ]
        )
        return 2 * total_distance(mask, self.distances) + sum(costs[:missing]) < 2 * self.best

    def _nearest_from(self, position: int) -> list[list[int]]:
        """For each node from ``position`` on, the distances to its nearest none, one, two and so on there."""
        if position not in self._nearest:
            rest = self._nodes[position:]
            self._nearest[position] = [
                _running_sums(sorted([self._pairs[node][other] for other in rest if other != node])) for node in rest
            ]
        return self._nearest[position]


def _running_sums(numbers: Iterable[int]) -> list[int]:
    """The sums of the first none, one, two and so on."""
    return list(accumulate(numbers, initial=0))


def _with_sum(thresholds: Iterable[Threshold], including: NUMAMask) -> list[Threshold]:
    """``thresholds``, and where several add up their sum, each divided by what it lacks.

    A mask that meets all meets the sum. The sum ends branches whose nodes are rich in one thing and poor in another.
    """
    rules = list(thresholds)
    lacks = [(rule, rule.need - rule.gathered(including)) for rule in rules if rule.adds_up]
    weighed = [(rule, _SCALE // lack) for rule, lack in lacks if lack > 0]
    if len(weighed) < 2:
        return rules
    groups = tuple([(nodes, weight * amount) for rule, weight in weighed for nodes, amount in rule.groups])
    return [*rules, Threshold(groups, sum([weight * rule.need for rule, weight in weighed]))]


def _interchangeable(nodes: list[int], thresholds: Iterable[Threshold], distances: Distances | None) -> list[object]:
    """A key for each node, equal for nodes that can replace each other: no rule and no distance tells them apart."""
    rules: dict[int, list[object]] = {node: [] for node in nodes}
    for number, threshold in enumerate(thresholds):
        for mask, amount in sorted(threshold.groups):
            for node in members(mask):
                if node in rules:
                    rules[node].append((number, 0 if mask.bit_count() == 1 else mask, amount))
    classes = [0] * len(nodes) if distances is None else interchangeable_classes(nodes, distances)
    return [(tuple(rules[node]), number) for node, number in zip(nodes, classes, strict=True)]
