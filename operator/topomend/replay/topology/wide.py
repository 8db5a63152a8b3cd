"""Hints on machines with too many NUMA nodes to table all masks: found by search over their rules.

Masks are built from the highest NUMA node down, leaving a node out before taking it in, so the first that fits is the
smallest. A branch ends where even the best remaining nodes cannot reach a threshold, and of nodes that are alike only
the lowest are tried. The kubelet itself walks all 2^n masks here and does not end.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, product
from math import exp, gcd, prod
from operator import mul

from topomend.model.bitmask import NUMAMask, mask_of, members
from topomend.replay.rejection import KUBELET_WOULD_CRASH, KUBELET_WOULD_HANG, KubeletBreaks
from topomend.replay.topology.hints import Family, Hints, Threshold, per_node

MOST_STEPS = 200_000
"""How long a search may take before it counts as one that never ends: about a second."""

MOST_MIXES = 64
"""In how many ways NUMA nodes may be taken from sockets before the search by distance looks at them one by one."""

_SCALE = 1 << 80
"""What weights are multiplied by to become whole numbers: what these rule out is ruled out for sure."""

_ROUNDS = 40
"""How long weights are sought."""

Distances = Mapping[int, tuple[int, ...]]


def narrowest(family: Family, including: NUMAMask = 0) -> NUMAMask | None:
    """The narrowest mask of the family that contains ``including``; None where there is none."""
    if family.is_empty() or including & ~family.universe:
        return None
    budget = _Budget()
    for width in range(max(1, family.least, including.bit_count()), family.universe.bit_count() + 1):
        search = _Search(family.universe, family.thresholds, width, budget, including=including)
        found = next(search.masks(), None)
        if found is not None:
            return found
    return None


def members_by_width(family: Family) -> Iterator[NUMAMask]:
    """The family's masks, narrowest first."""
    budget = _Budget()
    for width in range(max(1, family.least), family.universe.bit_count() + 1):
        yield from _Search(family.universe, family.thresholds, width, budget, all_alike=False).masks()


def common_preferred(nodes: NUMAMask, hints: Sequence[Hints], distances: Distances | None) -> NUMAMask | None:
    """The fittest mask that every resource offers and prefers; None where there is none."""
    named = {mask for each in hints for mask in each.masks}
    found = [mask for mask in named if all(each.offers(mask) and each.prefers(mask) for each in hints)]
    budget = _Budget()
    for families in product(*(each.families for each in hints)):
        mask = _common_of_families(nodes, families, hints, distances, budget)
        if mask is not None:
            found.append(mask)
    return _fittest(found, distances)


def fittest_intersection(
    nodes: NUMAMask, hints: Sequence[Hints], widths: Iterable[int], distances: Distances | None
) -> NUMAMask | None:
    """The fittest mask that is the intersection of one mask from each resource, of the first width that has one.

    ``widths`` are in order of preference.
    """
    alone = _single_nodes(nodes, hints)
    searches = [_IntersectionSearch(nodes, choice, distances, _Budget()) for choice in product(*map(_parts, hints))]
    for width in widths:
        found = list(alone) if width == 1 else []
        for search in searches:
            mask = search.of_width(width)
            if mask is not None:
                found.append(mask)
        if found:
            return _fittest(found, distances)
    return None


class _Budget:
    def __init__(self) -> None:
        self._left = MOST_STEPS

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise KubeletBreaks(KUBELET_WOULD_HANG, f"the hints of this machine need more than {MOST_STEPS} steps")


def _fittest(masks: Iterable[NUMAMask], distances: Distances | None) -> NUMAMask | None:
    """The narrowest, of these the closest, of these the smallest."""
    several = set(masks)
    width = min((mask.bit_count() for mask in several), default=0)
    several = {mask for mask in several if mask.bit_count() == width}
    if len(several) < 2 or distances is None:
        return min(several, default=None)
    return min(several, key=lambda mask: (total_distance(mask, distances), mask))


def total_distance(mask: NUMAMask, distances: Distances) -> int:
    """The sum of distances over all ordered pairs of a mask (numa_info.go:CalculateAverageFor).

    Raises KubeletBreaks where a NUMA id lies past the end of a list, which the kubelet reads unasked.
    """
    nodes = list(members(mask))
    try:
        return sum(distances[node][other] for node in nodes for other in nodes)
    except IndexError:
        raise KubeletBreaks(
            KUBELET_WOULD_CRASH,
            "prefer-closest-numa-nodes reads past the end of a distance list where NUMA ids have gaps",
        ) from None


def has_gaps(distances: Distances) -> bool:
    """Whether a NUMA id lies past the end of a distance list."""
    return any(node >= len(row) for node in distances for row in distances.values())


class _Closest:
    """The least total distance found so far, and whether a branch of the search can still beat it."""

    def __init__(self, nodes: Sequence[int], distances: Distances) -> None:
        self._distances = distances
        self._nodes = nodes
        self._pairs = {one: [distances[one][other] + distances[other][one] for other in nodes] for one in distances}
        self._nearest = [_running_sums(sorted(self._pairs_with_others(node))) for node in nodes]
        self._at = {node: at for at, node in enumerate(nodes)}
        self._known = {0: (0, [distances[node][node] for node in nodes])}
        self._step = self._least_difference()
        self._best: int | None = None

    def _least_difference(self) -> int:
        """What totals of masks of one width differ by at least, unless they are equal."""
        own = [self._distances[node][node] for node in self._nodes]
        pairs = [pair for node in self._nodes for pair in self._pairs_with_others(node)]
        return gcd(*(each - own[0] for each in own), *(each - pairs[0] for each in pairs)) or 1

    def _pairs_with_others(self, node: int) -> list[int]:
        return [pair for pair, other in zip(self._pairs[node], self._nodes, strict=True) if other != node]

    def may_improve(self, position: int, mask: NUMAMask, wanted: int) -> bool:
        """Whether adding so many of the nodes from a position on can come to less than the best, by a step at least.

        Each adds at least its distances to the mask, and half of those to as many of its nearest nodes as are added.
        """
        if self._best is None or wanted == 0:
            return True
        total, costs = self._costs(mask)
        nearest = self._nearest
        added = sorted(2 * costs[at] + nearest[at][wanted - 1] for at in range(position, len(costs)))
        return 2 * total + sum(added[:wanted]) <= 2 * (self._best - self._step)

    def _costs(self, mask: NUMAMask) -> tuple[int, list[int]]:
        """The total distance of a mask, and what each node would add to it."""
        known = self._known.get(mask)
        if known is None:
            rest = mask & (mask - 1)
            node = (mask ^ rest).bit_length() - 1
            total, costs = self._costs(rest)
            wider = [cost + pair for cost, pair in zip(costs, self._pairs[node], strict=True)]
            known = self._known[mask] = (total + costs[self._at[node]], wider)
        return known

    def improves(self, mask: NUMAMask) -> bool:
        """Whether the mask is the closest so far; then it is what others must beat."""
        total = total_distance(mask, self._distances)
        if self._best is not None and total >= self._best:
            return False
        self._best = total
        return True


def _running_sums(numbers: Iterable[int]) -> list[int]:
    """The sums of the first none, one, two and so on."""
    return list(accumulate(numbers, initial=0))


def _choose(masks: Iterator[NUMAMask], distances: Distances | None, closest: _Closest | None) -> NUMAMask | None:
    """The first mask, or where distances count the last that beat all before it."""
    if distances is None:
        return next(masks, None)
    if closest is None:
        return _fittest(masks, distances)
    best = None
    for mask in masks:
        if closest.improves(mask):
            best = mask
    return best


def _closest(nodes: Sequence[int], distances: Distances | None) -> _Closest | None:
    """Where distances count and can be read. With gaps in the ids every mask is walked, and two of them end it."""
    return None if distances is None or has_gaps(distances) else _Closest(nodes, distances)


def _signatures(nodes: Iterable[int], thresholds: Sequence[Threshold], distances: Distances | None) -> list[int]:
    """A number for each node, equal for nodes that can stand for each other: in no rule does it matter which."""
    numbers: dict[object, int] = {}
    result = []
    every = list(nodes)
    for node in every:
        bit = 1 << node
        rules = tuple(
            tuple(sorted((0 if mask == bit else mask, amount) for mask, amount in each.groups if mask & bit))
            for each in thresholds
        )
        row = None if distances is None else _distance_profile(node, every, distances)
        result.append(numbers.setdefault((rules, row), len(numbers)))
    return result


def _distance_profile(node: int, nodes: list[int], distances: Distances) -> object:
    """Equal for two nodes only if they are each other's nearest and alike to every third one."""
    if has_gaps(distances):
        return node
    own = distances[node][node]
    rows = tuple(own if other == node else distances[node][other] for other in nodes)
    columns = tuple(own if other == node else distances[other][node] for other in nodes)
    near = min((distance for other, distance in zip(nodes, rows, strict=True) if other != node), default=own)
    twins = tuple(other for other in nodes if other == node or distances[node][other] == near)
    outside = tuple(
        (row, column) for other, row, column in zip(nodes, rows, columns, strict=True) if other not in twins
    )
    within = {distances[one][other] for one in twins for other in twins if one != other}
    return (own, twins, outside) if within <= {near} else node


@dataclass(frozen=True)
class _Rule:
    """A threshold as the search uses it: what each node adds, and the most that so many from a position on do."""

    threshold: Threshold
    gains: list[int]
    most: list[list[int]]


def _rule(threshold: Threshold, nodes: Sequence[int]) -> _Rule:
    gains = [threshold.gain(node) for node in nodes]
    most = [_running_sums(sorted(gains[position:], reverse=True)) for position in range(len(gains) + 1)]
    return _Rule(threshold, gains, most)


@dataclass
class _Search:
    """Masks of ``width`` NUMA nodes that contain ``including`` and meet all thresholds, smallest first.

    With ``all_alike`` false every mask is found, not only one of those that differ by nodes alike. ``kinds`` tells
    nodes apart that the thresholds do not. With ``closest`` masks are left out that do not improve on it.
    """

    universe: NUMAMask
    thresholds: Iterable[Threshold]
    width: int
    budget: _Budget
    including: NUMAMask = 0
    all_alike: bool = True
    distances: Distances | None = None
    closest: _Closest | None = None
    kinds: Mapping[int, object] = field(default_factory=dict)

    def masks(self) -> Iterator[NUMAMask]:
        """The masks, found as they are asked for."""
        thresholds = list(dict.fromkeys(self.thresholds))
        self._nodes = sorted(members(self.universe & ~self.including), reverse=True)
        wanted = self.width - self.including.bit_count()
        if not 0 <= wanted <= len(self._nodes) or any(self._is_beyond(each, wanted) for each in thresholds):
            return
        together = _together([each for each in thresholds if each.adds_up], self._nodes, self.including, wanted)
        if together is not None:
            if self._is_beyond(together, wanted):
                return
            thresholds.append(together)
        self._rules = [_rule(each, self._nodes) for each in thresholds]
        self._shared = [(index, each) for index, each in enumerate(thresholds) if not each.adds_up]
        signatures = _signatures(self._nodes, thresholds, self.distances)
        self._alike: list[object] = [
            (signature, self.kinds.get(node)) if self.all_alike else node
            for signature, node in zip(signatures, self._nodes, strict=True)
        ]
        yield from self._walk(0, self.including, wanted, self._lacking(thresholds), frozenset())

    def _is_beyond(self, threshold: Threshold, wanted: int) -> bool:
        """Whether not even the best of so many nodes meet it."""
        gains = sorted((threshold.gain(node) for node in self._nodes), reverse=True)
        return sum(gains[:wanted]) < threshold.need - threshold.gathered(self.including)

    def _lacking(self, thresholds: Iterable[Threshold]) -> tuple[int, ...]:
        return tuple(each.need - each.gathered(self.including) for each in thresholds)

    def _walk(
        self, position: int, mask: NUMAMask, wanted: int, lacking: tuple[int, ...], taken: frozenset[object]
    ) -> Iterator[NUMAMask]:
        self.budget.spend()
        for lack, rule in zip(lacking, self._rules, strict=True):
            if rule.most[position][wanted] < lack:
                return
        if self.closest and not self.closest.may_improve(position, mask, wanted):
            return
        if wanted == 0:
            yield mask
            return
        alike = self._alike[position]
        if wanted < len(self._nodes) - position and alike not in taken:
            yield from self._walk(position + 1, mask, wanted, lacking, taken)
        wider = mask | 1 << self._nodes[position]
        yield from self._walk(position + 1, wider, wanted - 1, self._less(lacking, position, wider), taken | {alike})

    def _less(self, lacking: tuple[int, ...], position: int, mask: NUMAMask) -> tuple[int, ...]:
        """What is lacking once the node at a position has made the mask what it is."""
        left = [lack - rule.gains[position] for lack, rule in zip(lacking, self._rules, strict=True)]
        for index, threshold in self._shared:
            left[index] = threshold.need - threshold.gathered(mask)
        return tuple(left)


def _together(
    thresholds: Iterable[Threshold], nodes: Sequence[int], including: NUMAMask, wanted: int
) -> Threshold | None:
    """Thresholds that add up as one, each weighed: a mask that meets them all meets this, whatever the weights.

    Masks that are good at one thing only are found out early by it. None where there are not several.
    """
    several = [(each, each.need - each.gathered(including)) for each in thresholds]
    several = [(each, lack) for each, lack in several if lack > 0]
    if len(several) < 2:
        return None
    gains = [[each.gain(node) / lack for node in nodes] for each, lack in several]
    weights = [int(weight * _SCALE) // lack for weight, (_, lack) in zip(_weights(gains, wanted), several, strict=True)]
    groups = [
        (mask, weight * amount)
        for weight, (each, _) in zip(weights, several, strict=True)
        for mask, amount in each.groups
    ]
    return Threshold(tuple(groups), sum(weight * each.need for weight, (each, _) in zip(weights, several, strict=True)))


def _weights(gains: Sequence[Sequence[float]], wanted: int) -> list[float]:
    """Weights, one for each row of gains, under which the best so many columns exceed a gain of one in all the least.

    They are only sought, not found for sure: multiplicative updates, by which a row that those columns serve best
    weighs less in the next round.
    """
    weights = best = [1 / len(gains)] * len(gains)
    least = float("inf")
    for _ in range(_ROUNDS):
        worth = [sum(map(mul, weights, column)) for column in zip(*gains, strict=True)]
        chosen = sorted(range(len(worth)), key=worth.__getitem__, reverse=True)[:wanted]
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


def _common_of_families(
    nodes: NUMAMask,
    families: Sequence[Family],
    hints: Sequence[Hints],
    distances: Distances | None,
    budget: _Budget,
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
    """Masks that meet all thresholds and that every resource prefers; ``kinds`` as in ``_Search``."""

    universe: NUMAMask
    thresholds: Sequence[Threshold]
    hints: Sequence[Hints]
    distances: Distances | None
    budget: _Budget
    kinds: Mapping[int, object]

    def fittest_of_width(self, width: int) -> NUMAMask | None:
        """The closest mask of so many NUMA nodes, of these the smallest."""
        mixes = [[()]] if self.distances is None else _mixes(self.universe, width, self.distances)
        if mixes is None:
            closest = _closest(sorted(members(self.universe), reverse=True), self.distances)
            search = _Search(
                self.universe,
                self.thresholds,
                width,
                self.budget,
                distances=self.distances,
                closest=closest,
                kinds=self.kinds,
            )
            return _choose(filter(self._is_preferred, search.masks()), self.distances, closest)
        for equally_close in mixes:
            smallest = [self._smallest(width, mix) for mix in equally_close]
            found = [mask for mask in smallest if mask is not None]
            if found:
                return min(found)
        return None

    def _smallest(self, width: int, mix: Sequence[Threshold]) -> NUMAMask | None:
        search = _Search(self.universe, [*self.thresholds, *mix], width, self.budget, kinds=self.kinds)
        return next(filter(self._is_preferred, search.masks()), None)

    def _is_preferred(self, mask: NUMAMask) -> bool:
        return all(each.prefers(mask) for each in self.hints)


def _mixes(universe: NUMAMask, width: int, distances: Distances) -> list[list[tuple[Threshold, ...]]] | None:
    """How many NUMA nodes a mask can take of each socket, or of whatever else is alike in distance: the closest first.

    The distances within a mask follow from these numbers alone. Those equally close stand together, each as demands
    for so many of each. None where there are more than MOST_MIXES.
    """
    if has_gaps(distances):
        return None
    nodes = list(members(universe))
    alike: dict[object, list[int]] = {}
    for node in nodes:
        alike.setdefault(_distance_profile(node, nodes, distances), []).append(node)
    sockets = list(alike.values())
    if prod(min(width, len(socket)) + 1 for socket in sockets[1:]) > MOST_MIXES:
        return None
    by_total: dict[int, list[tuple[Threshold, ...]]] = {}
    for others in product(*(range(min(width, len(socket)) + 1) for socket in sockets[1:])):
        counts = (width - sum(others), *others)
        if 0 <= counts[0] <= len(sockets[0]):
            taken = [node for socket, count in zip(sockets, counts, strict=True) for node in socket[:count]]
            demands = tuple(
                per_node(dict.fromkeys(socket, 1), count)
                for socket, count in zip(sockets, counts, strict=True)
                if count
            )
            by_total.setdefault(total_distance(mask_of(taken), distances), []).append(demands)
    return [mixes for _, mixes in sorted(by_total.items())]


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


@dataclass
class _IntersectionSearch:
    """Masks that are an intersection of one mask from each of ``families``.

    A mask is one if every other node can be left out by one of the families, none of which then lacks anything.
    """

    nodes: NUMAMask
    families: Sequence[Family]
    distances: Distances | None
    budget: _Budget

    def __post_init__(self) -> None:
        universe = self.nodes
        for family in self.families:
            universe &= family.universe
        self._universe = universe
        self._order = sorted(members(universe), reverse=True)
        thresholds = [threshold for family in self.families for threshold in (*family.thresholds, _counting(family))]
        self._alike = _signatures(self._order, thresholds, self.distances)
        self._closest = _closest(self._order, self.distances)
        self._most_left_out = sum(map(self._most_by, self.families))

    def _most_by(self, family: Family) -> int:
        """At most how many nodes of the universe one family can do without."""
        most = min(len(self._order), family.universe.bit_count() - family.least)
        for threshold in family.thresholds:
            alone = {mask: amount for mask, amount in threshold.groups if mask.bit_count() == 1}
            spare = sum(amount for mask, amount in threshold.groups if mask & family.universe) - threshold.need
            count = 0
            for loss in sorted(alone.get(1 << node, 0) for node in self._order):
                spare -= loss
                if spare < 0:
                    break
                count += 1
            most = min(most, count)
        return most

    def of_width(self, width: int) -> NUMAMask | None:
        """The fittest one of so many NUMA nodes."""
        if not 0 < width <= len(self._order) or len(self._order) - width > self._most_left_out:
            return None
        masks = self._walk(0, 0, width, [0] * len(self.families), frozenset())
        return _choose(masks, self.distances, self._closest)

    def _walk(
        self, position: int, mask: NUMAMask, wanted: int, left_out: list[NUMAMask], taken: frozenset[int]
    ) -> Iterator[NUMAMask]:
        self.budget.spend()
        if self._closest and not self._closest.may_improve(position, mask, wanted):
            return
        if wanted == 0:
            rest = sum(1 << node for node in self._order[position:])
            if self._leave_out(rest, left_out) is not None:
                yield mask
            return
        node, alike = self._order[position], self._alike[position]
        if wanted < len(self._order) - position and alike not in taken:
            more = self._leave_out(1 << node, left_out)
            if more is not None:
                yield from self._walk(position + 1, mask, wanted, more, taken)
        yield from self._walk(position + 1, mask | 1 << node, wanted - 1, left_out, taken | {alike})

    def _leave_out(self, more: NUMAMask, left_out: list[NUMAMask]) -> list[NUMAMask] | None:
        """Who leaves out what, with ``more`` left out too; None where that cannot be."""
        for index, family in enumerate(self.families):
            if family.holds(family.universe & ~(left_out[index] | more)):
                return [mask | more if at == index else mask for at, mask in enumerate(left_out)]
        every = more
        for mask in left_out:
            every |= mask
        return self._divide(list(members(every)), [0] * len(self.families))

    def _divide(self, nodes: list[int], left_out: list[NUMAMask]) -> list[NUMAMask] | None:
        self.budget.spend()
        if not nodes:
            return left_out
        tried: set[tuple[NUMAMask, Family]] = set()
        for index, family in enumerate(self.families):
            without = left_out[index] | 1 << nodes[0]
            if (left_out[index], family) in tried or not family.holds(family.universe & ~without):
                continue
            tried.add((left_out[index], family))
            divided = self._divide(nodes[1:], [without if at == index else each for at, each in enumerate(left_out)])
            if divided is not None:
                return divided
        return None


def _counting(family: Family) -> Threshold:
    """The demand for so many NUMA nodes, as a threshold."""
    return Threshold(tuple((1 << node, 1) for node in members(family.universe)), family.least)
