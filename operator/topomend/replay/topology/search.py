"""Masks of one width that meet thresholds, found one after the other on machines too wide to table all masks.

Masks are built from the highest NUMA node down, leaving a node out before taking it in, so the first that fits is the
smallest. A branch ends where even the best remaining nodes cannot reach a threshold, and of nodes that are alike only
the lowest are tried. The kubelet itself walks all 2^n masks here and does not end.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from math import exp
from operator import mul

from topomend.model.bitmask import NUMAMask, members
from topomend.replay.errors import KUBELET_WOULD_HANG, KubeletBreaks
from topomend.replay.topology.closest_so_far import ClosestSoFar
from topomend.replay.topology.distances import Distances, classes_of_twins
from topomend.replay.topology.hints import Threshold

MOST_STEPS = 200_000
"""How long a search may take before it counts as one that never ends: about a second."""

ROUNDS = 30
"""How long weights are sought."""

_SCALE = 1 << 80
"""What weights are multiplied by to become whole numbers: what these rule out is ruled out for sure."""


class Budget:
    """The steps that are left to all searches of one question."""

    def __init__(self) -> None:
        self._left = MOST_STEPS

    def spend(self) -> None:
        """Take a step; raises KubeletBreaks where none is left."""
        self._left -= 1
        if self._left < 0:
            raise KubeletBreaks(KUBELET_WOULD_HANG, f"the hints of this machine need more than {MOST_STEPS} steps")


def running_sums(numbers: Iterable[int]) -> list[int]:
    """The sums of the first none, one, two and so on."""
    return list(accumulate(numbers, initial=0))


def signatures(nodes: Iterable[int], thresholds: Sequence[Threshold], distances: Distances | None) -> list[int]:
    """A number for each node, equal for nodes that can stand for each other: in no rule does it matter which."""
    numbers: dict[object, int] = {}
    every = list(nodes)
    rules: dict[int, list[object]] = {node: [] for node in every}
    for number, threshold in enumerate(thresholds):
        for mask, amount in sorted(threshold.groups):
            alone = mask.bit_count() == 1
            for node in members(mask):
                if node in rules:
                    rules[node].append((number, 0 if alone else mask, amount))
    classes = [every] if distances is None else classes_of_twins(every, distances)
    near = {node: number for number, twins in enumerate(classes) for node in twins}
    return [numbers.setdefault((tuple(rules[node]), near[node]), len(numbers)) for node in every]


@lru_cache(maxsize=256)
def gains_of(threshold: Threshold) -> Mapping[int, int]:
    """Every width of a search asks for these."""
    return threshold.gains()


@dataclass(frozen=True)
class _Rule:
    """A threshold as the search uses it: what each node adds, and the most that so many from a position on do."""

    threshold: Threshold
    gains: list[int]
    most: list[list[int]]


def _rule(threshold: Threshold, nodes: Sequence[int]) -> _Rule:
    by_node = gains_of(threshold)
    gains = [by_node.get(node, 0) for node in nodes]
    most = [running_sums(sorted(gains[position:], reverse=True)) for position in range(len(gains) + 1)]
    return _Rule(threshold, gains, most)


@dataclass
class Search:
    """Masks of ``width`` NUMA nodes that contain ``including`` and meet all thresholds, smallest first.

    With ``all_alike`` false every mask is found, not only one of those that differ by nodes alike. ``kinds`` tells
    nodes apart that the thresholds do not. With ``closest`` masks are left out that do not improve on it.
    """

    universe: NUMAMask
    thresholds: Sequence[Threshold]
    width: int
    budget: Budget
    including: NUMAMask = 0
    all_alike: bool = True
    distances: Distances | None = None
    closest: ClosestSoFar | None = None
    kinds: Mapping[int, object] = field(default_factory=dict)
    spares: Callable[[NUMAMask], bool] | None = None

    def masks(self) -> Iterator[NUMAMask]:
        """The masks, found as they are asked for."""
        thresholds = list(dict.fromkeys(self.thresholds))
        self._nodes = sorted(members(self.universe & ~self.including), reverse=True)
        wanted = self.width - self.including.bit_count()
        if not 0 <= wanted <= len(self._nodes) or any(self._is_beyond(each, wanted) for each in thresholds):
            return
        together = weighed_together(thresholds, [(self._nodes, wanted)], self.including)
        if together is not None:
            if self._is_beyond(together, wanted):
                return
            thresholds.append(together)
        self._rules = [_rule(each, self._nodes) for each in thresholds]
        self._shared = [(index, each) for index, each in enumerate(thresholds) if not each.adds_up]
        kinds = signatures(self._nodes, thresholds, self.distances)
        self._weighed = self._weigh(thresholds, wanted)
        self._alike: list[object] = [
            (signature, self.kinds.get(node)) if self.all_alike else node
            for signature, node in zip(kinds, self._nodes, strict=True)
        ]
        yield from self._walk(0, self.including, wanted, self._lacking(thresholds), frozenset())

    def _weigh(self, thresholds: Sequence[Threshold], wanted: int) -> int | None:
        """Let the last threshold, which is all together where there are several, weigh against the distances."""
        if not self.closest or not thresholds:
            return None
        lack = self._lacking(thresholds)[-1]
        self._lack = lack
        self.closest.weigh(self._rules[-1].gains, lack, wanted)
        return len(thresholds) - 1 if lack > 0 else None

    def _is_beyond(self, threshold: Threshold, wanted: int) -> bool:
        """Whether not even the best of so many nodes meet it."""
        gains = gains_of(threshold)
        most = sorted([gains.get(node, 0) for node in self._nodes], reverse=True)
        return sum(most[:wanted]) < threshold.need - threshold.gathered(self.including)

    def _lacking(self, thresholds: Iterable[Threshold]) -> tuple[int, ...]:
        return tuple(each.need - each.gathered(self.including) for each in thresholds)

    def _walk(
        self, position: int, mask: NUMAMask, wanted: int, lacking: tuple[int, ...], taken: frozenset[object]
    ) -> Iterator[NUMAMask]:
        self.budget.spend()
        for lack, rule in zip(lacking, self._rules, strict=True):
            if rule.most[position][wanted] < lack:
                return
        if self.closest:
            share = 0.0 if self._weighed is None else lacking[self._weighed] / self._lack
            if not self.closest.may_improve(position, mask, wanted, share):
                return
        if wanted == 0:
            yield mask
            return
        alike = self._alike[position]
        if wanted < len(self._nodes) - position and alike not in taken and self._can_spare(position, mask):
            yield from self._walk(position + 1, mask, wanted, lacking, taken)
        wider = mask | 1 << self._nodes[position]
        yield from self._walk(position + 1, wider, wanted - 1, self._less(lacking, position, wider), taken | {alike})

    def _can_spare(self, position: int, mask: NUMAMask) -> bool:
        return self.spares is None or self.spares(sum([1 << node for node in self._nodes[: position + 1]]) & ~mask)

    def _less(self, lacking: tuple[int, ...], position: int, mask: NUMAMask) -> tuple[int, ...]:
        """What is lacking once the node at a position has made the mask what it is."""
        left = [lack - rule.gains[position] for lack, rule in zip(lacking, self._rules, strict=True)]
        for index, threshold in self._shared:
            left[index] = threshold.need - threshold.gathered(mask)
        return tuple(left)


def weighed_together(
    thresholds: Iterable[Threshold], parts: Sequence[tuple[Sequence[int], int]], including: NUMAMask = 0
) -> Threshold | None:
    """The thresholds that add up as one, each weighed: a mask that meets them all meets this, whatever the weights.

    Masks that are good at one thing only are found out early by it. None where there are not several. The weights are
    the best for masks that hold so many nodes of each of ``parts``.
    """
    nodes = [node for part, _ in parts for node in part]
    several = [(each, each.need - each.gathered(including)) for each in thresholds if each.adds_up]
    several = [(each, lack) for each, lack in several if lack > 0]
    if len(several) < 2:
        return None
    gains = [
        [by_node.get(node, 0) / lack for node in nodes]
        for by_node, lack in ((gains_of(each), lack) for each, lack in several)
    ]
    weights = [int(weight * _SCALE) // lack for weight, (_, lack) in zip(_weights(gains, parts), several, strict=True)]
    groups = [
        (mask, weight * amount)
        for weight, (each, _) in zip(weights, several, strict=True)
        for mask, amount in each.groups
    ]
    return Threshold(tuple(groups), sum(weight * each.need for weight, (each, _) in zip(weights, several, strict=True)))


def _weights(gains: Sequence[Sequence[float]], parts: Sequence[tuple[Sequence[int], int]]) -> list[float]:
    """Weights, one for each row of gains, under which the best columns exceed a gain of one in all the least.

    So many columns are chosen of each part, which follow each other.

    They are only sought, not found for sure: multiplicative updates, by which a row that those columns serve best
    weighs less in the next round.
    """
    weights = best = [1 / len(gains)] * len(gains)
    least = float("inf")
    ends = running_sums(len(part) for part, _ in parts)
    columns = [(range(begin, end), count) for (begin, end), (_, count) in zip(pairwise(ends), parts, strict=True)]
    for _ in range(ROUNDS):
        worth = [sum(map(mul, weights, column)) for column in zip(*gains, strict=True)]
        chosen = [at for part, count in columns for at in sorted(part, key=worth.__getitem__, reverse=True)[:count]]
        excess = [sum(row[at] for at in chosen) - 1 for row in gains]
        total = sum(map(mul, weights, excess))
        if total < least:
            least, best = total, weights
        if total < 0:
            break
        most = 2 * max(map(abs, excess)) or 1
        weights = [weight * exp(-each / most) for weight, each in zip(weights, excess, strict=True)]
        weights = [weight / sum(weights) for weight in weights]
    return best
