"""Hints on machines with too many NUMA nodes to table all masks: found by search over their rules.

Masks are built from the highest NUMA node down, leaving a node out before taking it in, so the first that fits is the
smallest. A branch ends where even the best remaining nodes cannot reach a threshold, and of nodes that are alike only
the lowest are tried. The kubelet itself walks all 2^n masks here and does not end.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from itertools import accumulate, combinations, product
from math import comb, exp, gcd
from operator import mul, or_

from topomend.model.bitmask import NUMAMask, members
from topomend.replay.rejection import KUBELET_WOULD_CRASH, KUBELET_WOULD_HANG, KubeletBreaks
from topomend.replay.topology.distance_tree import DistanceTree, distance_tree
from topomend.replay.topology.hints import Family, Hints, Threshold, per_node, touching

MOST_STEPS = 200_000
"""How long a search may take before it counts as one that never ends: about a second."""

_SCALE = 1 << 80
"""What weights are multiplied by to become whole numbers: what these rule out is ruled out for sure."""

_SHARES = 1 << 40
"""The same for shares of what can be spared."""

_ROUNDING = 1e-6
"""More than what sums of such numbers are off by."""

_PRICES = 8
"""At how many prices distances and amounts are weighed."""

_ROUNDS = 40
"""How long weights are sought."""

MOST_CHOICES = 100
"""Among how many choices of sockets each is searched by itself."""

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
    """The least total distance found so far, and whether a branch of the search can still beat it.

    ``nodes`` are those of the search, in its order.
    """

    def __init__(self, nodes: Sequence[int], distances: Distances) -> None:
        self._distances = distances
        self._nodes = nodes
        self._pairs = {one: {other: distances[one][other] + distances[other][one] for other in nodes} for one in nodes}
        self._left = [sum([1 << node for node in nodes[position:]]) for position in range(len(nodes) + 1)]
        self._own = {distances[node][node] for node in nodes}
        self._tree = distance_tree(nodes, self._pairs) if len(nodes) > 1 and len(self._own) == 1 else None
        self._priced = self._tree
        self._worth = dict.fromkeys(nodes, 0.0)
        self._price = 0.0
        self._nearest: dict[int, list[list[float]]] = {}
        self._known: dict[NUMAMask, tuple[int, dict[int, int]]] = {
            0: (0, {node: distances[node][node] for node in nodes})
        }
        self._step = self._least_difference()
        self._best: int | None = None

    def _least_difference(self) -> int:
        """What totals of masks of one width differ by at least, unless they are equal."""
        own = sorted(self._own)
        pairs = sorted({self._pairs[one][other] for one, other in combinations(self._nodes, 2)})
        return gcd(*(each - own[0] for each in own), *(each - pairs[0] for each in pairs)) or 1

    def start_from(self, mask: NUMAMask) -> None:
        """A mask is known: others must be as close."""
        self._best = total_distance(mask, self._distances) + self._step

    def weigh(self, gains: Sequence[int], lack: int, wanted: int) -> None:
        """Let distances and a threshold bound the search together: what each node adds to it, and what is lacking.

        A mask that meets the threshold gathers no less than is lacking, so that at any price a unit of it the distance
        less what is gathered bounds the distance. The best price is sought.
        """
        if lack <= 0 or self._best is None:
            return
        shares = {node: gain / lack for node, gain in zip(self._nodes, gains, strict=True)}
        best, scale = (
            self._bound(0, 0, wanted, 1.0),
            float(max(map(max, map(dict.values, self._pairs.values())))) * wanted,
        )
        for step in range(-2, _PRICES - 2):
            tree, worth, price = self._priced, self._worth, self._price
            self._price = scale * 2**-step
            self._worth = {node: self._price * share for node, share in shares.items()}
            if self._tree:
                self._priced = self._tree.priced(self._worth)
            bound = self._bound(0, 0, wanted, 1.0)
            if bound > best:
                best = bound
            else:
                self._priced, self._worth, self._price = tree, worth, price

    def may_improve(self, position: int, mask: NUMAMask, wanted: int, lacking: float) -> bool:
        """Whether adding so many of the nodes from a position on can come to less than the best, by a step at least.

        ``lacking`` is the share of the weighed threshold that is.
        """
        if self._best is None or wanted == 0:
            return True
        most = self._best - self._step + _ROUNDING
        if self._bound(position, mask, wanted, lacking) > most:
            return False
        return not self._price or not self._tree or self._tree_bound(self._tree, position, mask, wanted) <= most

    def _bound(self, position: int, mask: NUMAMask, wanted: int, lacking: float) -> float:
        """What the total distance comes to at least.

        Without a tree each node adds at least its distances to the mask, and half of those to as many of its nearest
        as are added of the nodes that are left.
        """
        if self._priced:
            return self._tree_bound(self._priced, position, mask, wanted) + self._price * lacking
        total, costs = self._costs(mask)
        worth = self._worth
        added = sorted(
            [
                costs[node] + nearest[wanted - 1] - worth[node]
                for node, nearest in zip(self._nodes[position:], self._nearest_of(position), strict=True)
            ]
        )
        return total + sum(added[:wanted]) + self._price * lacking

    def _nearest_of(self, position: int) -> list[list[float]]:
        """For each node from a position on, half the distances to none, one, two and so on of its nearest there."""
        nearest = self._nearest.get(position)
        if nearest is None:
            left = self._nodes[position:]
            nearest = self._nearest[position] = [
                list(accumulate(sorted([self._pairs[node][other] / 2 for other in left if other != node]), initial=0.0))
                for node in left
            ]
        return nearest

    def _tree_bound(self, tree: DistanceTree, position: int, mask: NUMAMask, wanted: int) -> float:
        own = next(iter(self._own)) * (mask.bit_count() + wanted)
        return own + tree.least(mask, self._left[position], wanted)

    def _costs(self, mask: NUMAMask) -> tuple[int, dict[int, int]]:
        """The total distance of a mask, and what each node would add to it."""
        known = self._known.get(mask)
        if known is None:
            rest = mask & (mask - 1)
            node = (mask ^ rest).bit_length() - 1
            total, costs = self._costs(rest)
            pairs = self._pairs[node]
            wider = {each: cost + pairs[each] for each, cost in costs.items()}
            known = self._known[mask] = (total + costs[node], wider)
        return known

    def improves(self, mask: NUMAMask) -> bool:
        """Whether the mask is the closest so far; then it is what others must beat."""
        total = total_distance(mask, self._distances)
        if self._best is not None and total >= self._best:
            return False
        self._best = total
        return True

    def nearer(self, mask: NUMAMask) -> Iterator[NUMAMask]:
        """The masks that are closer by one node taken for another, the closest first."""
        _, costs = self._costs(mask)
        inside = [node for node in self._nodes if mask >> node & 1]
        swaps = []
        for out in inside:
            pairs, leaving = self._pairs[out], costs[out] - self._pairs[out][out]
            for into in self._nodes:
                if not mask >> into & 1:
                    change = costs[into] - pairs[into] - leaving
                    if change < 0:
                        swaps.append((change, out, into))
        for _, out, into in sorted(swaps):
            yield mask & ~(1 << out) | 1 << into


def _running_sums(numbers: Iterable[int]) -> list[int]:
    """The sums of the first none, one, two and so on."""
    return list(accumulate(numbers, initial=0))


def _signatures(nodes: Iterable[int], thresholds: Sequence[Threshold], distances: Distances | None) -> list[int]:
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
    near = [0] * len(every) if distances is None else _equally_near(every, distances)
    return [
        numbers.setdefault((tuple(rules[node]), each), len(numbers)) for node, each in zip(every, near, strict=True)
    ]


def _equally_near(nodes: Sequence[int], distances: Distances) -> list[int]:
    """For each node the first one that it can stand for: as far from every third one there and back, and from itself.

    Of three nodes, two pairs of which can stand for each other, so can the third pair: one of each class is compared.
    """
    if has_gaps(distances):
        return list(nodes)
    firsts: list[int] = []
    result = []
    for node in nodes:
        first = next((each for each in firsts if _are_twins(node, each, nodes, distances)), node)
        if first == node:
            firsts.append(node)
        result.append(first)
    return result


def _are_twins(one: int, other: int, nodes: Sequence[int], distances: Distances) -> bool:
    return distances[one][one] == distances[other][other] and all(
        distances[one][third] + distances[third][one] == distances[other][third] + distances[third][other]
        for third in nodes
        if third not in {one, other}
    )


@lru_cache(maxsize=256)
def _gains(threshold: Threshold) -> Mapping[int, int]:
    """Every width of a search asks for these."""
    return threshold.gains()


@dataclass(frozen=True)
class _Rule:
    """A threshold as the search uses it: what each node adds, and the most that so many from a position on do."""

    threshold: Threshold
    gains: list[int]
    most: list[list[int]]


def _rule(threshold: Threshold, nodes: Sequence[int]) -> _Rule:
    by_node = _gains(threshold)
    gains = [by_node.get(node, 0) for node in nodes]
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
    spares: Callable[[NUMAMask], bool] | None = None

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
        self._weighed = self._weigh(thresholds, wanted)
        self._alike: list[object] = [
            (signature, self.kinds.get(node)) if self.all_alike else node
            for signature, node in zip(signatures, self._nodes, strict=True)
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
        gains = _gains(threshold)
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
    gains = [
        [by_node.get(node, 0) / lack for node in nodes]
        for by_node, lack in ((_gains(each), lack) for each, lack in several)
    ]
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
        found = []
        for universe, touched in self._sockets(width):
            search = _Search(
                universe,
                [*self.thresholds, *touched],
                width,
                self.budget,
                distances=self.distances,
                kinds=self.kinds,
            )
            mask = _fittest_found(search, lambda mask: all(each.prefers(mask) for each in self.hints))
            if mask is not None:
                found.append(mask)
        return _fittest(found, self.distances)

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
            left_out = reduce(or_, (nodes for each, nodes in enumerate(reachable) if each not in chosen), 0)
            yield self.universe & ~left_out, [touching(reachable[each]) for each in chosen]


def _fittest_found(search: _Search, accepts: Callable[[NUMAMask], bool]) -> NUMAMask | None:
    """The closest of the masks that are found and accepted, of these the smallest.

    One is found by its value alone and brought closer node by node; no other that is farther is then sought.
    """
    distances = search.distances
    if distances is None:
        return next(filter(accepts, search.masks()), None)
    if has_gaps(distances):
        return _fittest(filter(accepts, search.masks()), distances)
    mask = next(filter(accepts, replace(search, distances=None).masks()), None)
    if mask is None:
        return None
    closest = _Closest(sorted(members(search.universe & ~search.including), reverse=True), distances)
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


@dataclass(frozen=True, slots=True)
class _Spare:
    """How much of one demand a family can spare, and what it loses of it at least with each NUMA node."""

    amount: int
    losses: Mapping[int, int]

    def share(self, node: int) -> float:
        """The part of what can be spared that goes with a node."""
        loss = self.losses.get(node, 0)
        return loss / self.amount if self.amount else float("inf") if loss else 0.0


_Lost = tuple[tuple[int, ...], ...]
"""What each family has lost: of each demand, or where amounts do not add up the mask that it leaves out."""


@dataclass(frozen=True, slots=True)
class _Leaving:
    """What one family can leave out of its widest mask."""

    family: Family
    spares: list[_Spare]
    adds_up: bool

    @staticmethod
    def of(family: Family, universe: NUMAMask) -> "_Leaving":
        """What a family can spare of its NUMA nodes in ``universe``."""
        spares = []
        for threshold in (*family.thresholds, _counting(family)):
            losses: dict[int, int] = {}
            for nodes, amount in threshold.groups:
                if nodes & universe and nodes.bit_count() == 1:
                    node = nodes.bit_length() - 1
                    losses[node] = losses.get(node, 0) + amount
            spares.append(_Spare(threshold.gathered(family.universe) - threshold.need, losses))
        return _Leaving(family, spares, all(threshold.adds_up for threshold in family.thresholds))

    @property
    def nothing(self) -> tuple[int, ...]:
        """Nothing left out."""
        return (0,) * len(self.spares) if self.adds_up else (0,)

    def more(self, lost: tuple[int, ...], bit: NUMAMask) -> tuple[int, ...] | None:
        """What is lost with one node more; None where it cannot be spared."""
        if not self.adds_up:
            mask = lost[0] | bit
            return (mask,) if self.family.holds(self.family.universe & ~mask) else None
        node = bit.bit_length() - 1
        more = tuple([loss + spare.losses.get(node, 0) for loss, spare in zip(lost, self.spares, strict=True)])
        return more if all(loss <= spare.amount for loss, spare in zip(more, self.spares, strict=True)) else None


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
        self._leaving = [_Leaving.of(family, universe) for family in self.families]
        every = [threshold for family in self.families for threshold in (*family.thresholds, _counting(family))]
        nodes = list(members(universe))
        self._divisions: dict[NUMAMask, _Lost | None] = {0: tuple(each.nothing for each in self._leaving)}
        self._kinds: dict[int, object] = dict(zip(nodes, _signatures(nodes, every, None), strict=True))

    def of_width(self, width: int) -> NUMAMask | None:
        """The fittest one of so many NUMA nodes."""
        left_out = self._universe.bit_count() - width
        if width < 1 or left_out < 0:
            return None
        thresholds = self.families[0].thresholds if len(self.families) == 1 else (self._kept(left_out),)
        search = _Search(self._universe, thresholds, width, self.budget, distances=self.distances, kinds=self._kinds)
        if len(self.families) > 1:
            search = replace(search, spares=self._can_spare)
        return _fittest_found(search, lambda mask: self._can_spare(self._universe & ~mask))

    def _kept(self, count: int) -> Threshold:
        """What every intersection keeps that leaves ``count`` nodes out, by weights for all that families can spare.

        A node left out costs at least what it costs the family that it costs least, and all of them together no more
        than the families can spare. The weights are sought as in ``_weights``.
        """
        spares = [(at, spare) for at, each in enumerate(self._leaving) for spare in each.spares]
        shares = {node: [spare.share(node) for _, spare in spares] for node in self._kinds}
        weights = [1 / len(spares)] * len(spares)
        most, costs = float("-inf"), dict.fromkeys(self._kinds, 0.0)
        for _ in range(_ROUNDS):
            priced = {node: self._cheapest(spares, weights, shares[node]) for node in self._kinds}
            chosen = sorted(self._kinds, key=lambda node: priced[node][0])[:count]
            total = sum([priced[node][0] for node in chosen])
            if total > most:
                most, costs = total, {node: cost for node, (cost, _) in priced.items()}
            if total > 1:
                break
            excess = [
                sum([shares[node][number] for node in chosen if priced[node][1] == at]) - 1
                for number, (at, _) in enumerate(spares)
            ]
            farthest = 2 * max(map(abs, excess)) or 1
            weights = [weight * exp(each / farthest) for weight, each in zip(weights, excess, strict=True)]
            weights = [weight / sum(weights) for weight in weights]
        kept = {node: int(min(cost, 2) * _SHARES) for node, cost in costs.items()}
        return per_node(kept, sum(kept.values()) - int((1 + _ROUNDING) * _SHARES))

    def _cheapest(
        self, spares: Sequence[tuple[int, _Spare]], weights: Sequence[float], shares: Sequence[float]
    ) -> tuple[float, int]:
        """What leaving a node out costs the family that it costs least, and which this is."""
        costs = [0.0] * len(self.families)
        for (at, _), weight, share in zip(spares, weights, shares, strict=True):
            costs[at] += max(weight, _ROUNDING) * share
        cost = min(costs)
        return cost, costs.index(cost)

    def _can_spare(self, rest: NUMAMask) -> bool:
        """Whether the families can divide these nodes among them, each to leave out its own."""
        return self._division(rest) is not None

    def _division(self, rest: NUMAMask) -> _Lost | None:
        """What each family loses where they divide these nodes; None where they cannot.

        Mostly one of them can leave the lowest out besides what it left out without it.
        """
        if rest in self._divisions:
            return self._divisions[rest]
        before = self._division(rest & (rest - 1))
        divided = None
        if before is not None:
            divided = next(self._without(rest & -rest, before), None) or self._divide(self._hardest_first(rest))
        self._divisions[rest] = divided
        return divided

    def _without(self, node: NUMAMask, lost: _Lost) -> Iterator[_Lost]:
        """What the families have lost with one node more, for each that can spare it."""
        for index, family in enumerate(self._leaving):
            more = family.more(lost[index], node)
            if more is not None:
                yield (*lost[:index], more, *lost[index + 1 :])

    def _hardest_first(self, rest: NUMAMask) -> list[NUMAMask]:
        def hardness(node: int) -> float:
            return min(max([spare.share(node) for spare in each.spares]) for each in self._leaving)

        return [1 << node for node in sorted(members(rest), key=hardness, reverse=True)]

    def _divide(self, nodes: list[NUMAMask]) -> _Lost | None:
        """It does not matter by which nodes a family has lost the same."""
        tried: set[tuple[int, _Lost]] = set()

        def divide(position: int, lost: _Lost) -> _Lost | None:
            self.budget.spend()
            if position == len(nodes):
                return lost
            if (position, lost) in tried:
                return None
            tried.add((position, lost))
            further = (divide(position + 1, more) for more in self._without(nodes[position], lost))
            return next(filter(None, further), None)

        return divide(0, tuple(each.nothing for each in self._leaving))


def _counting(family: Family) -> Threshold:
    """The demand for so many NUMA nodes, as a threshold."""
    return Threshold(tuple((1 << node, 1) for node in members(family.universe)), family.least)
