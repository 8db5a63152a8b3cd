"""Masks that are the intersection of one mask from each of several families, where they are too many to be tabled."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp

from topomend.model.bitmask import NUMAMask, members
from topomend.replay.topology.closest_so_far import ROUNDING
from topomend.replay.topology.distances import Distances
from topomend.replay.topology.fittest import fittest_found
from topomend.replay.topology.hints import Family, Threshold, per_node
from topomend.replay.topology.search import ROUNDS, Budget, Search, signatures

_SHARES = 1 << 40
"""What shares of what can be spared are multiplied by to become whole numbers."""


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
class IntersectionSearch:
    """Masks that are an intersection of one mask from each of ``families``.

    A mask is one if every other node can be left out by one of the families, none of which then lacks anything.
    """

    nodes: NUMAMask
    families: Sequence[Family]
    distances: Distances | None
    budget: Budget

    def __post_init__(self) -> None:
        universe = self.nodes
        for family in self.families:
            universe &= family.universe
        self._universe = universe
        self._leaving = [_Leaving.of(family, universe) for family in self.families]
        every = [threshold for family in self.families for threshold in (*family.thresholds, _counting(family))]
        nodes = list(members(universe))
        self._divisions: dict[NUMAMask, _Lost | None] = {0: tuple(each.nothing for each in self._leaving)}
        self._kinds: dict[int, object] = dict(zip(nodes, signatures(nodes, every, None), strict=True))

    def of_width(self, width: int) -> NUMAMask | None:
        """The fittest one of so many NUMA nodes."""
        excluded_nodes = self._universe.bit_count() - width
        if width < 1 or excluded_nodes < 0:
            return None
        thresholds = self.families[0].thresholds if len(self.families) == 1 else (self._kept(excluded_nodes),)
        search = Search(self._universe, thresholds, width, self.budget, distances=self.distances, kinds=self._kinds)
        if len(self.families) > 1:
            search = replace(search, spares=self._can_spare)
        return fittest_found(search, lambda mask: self._can_spare(self._universe & ~mask))

    def _kept(self, count: int) -> Threshold:
        """What every intersection keeps that leaves ``count`` nodes out, by weights for all that families can spare.

        A node left out costs at least what it costs the family that it costs least, and all of them together no more
        than the families can spare. The weights are sought as in ``_weights``.
        """
        spares = [(at, spare) for at, each in enumerate(self._leaving) for spare in each.spares]
        shares = {node: [spare.share(node) for _, spare in spares] for node in self._kinds}
        weights = [1 / len(spares)] * len(spares)
        most, costs = float("-inf"), dict.fromkeys(self._kinds, 0.0)
        for _ in range(ROUNDS):
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
        return per_node(kept, sum(kept.values()) - int((1 + ROUNDING) * _SHARES))

    def _cheapest(
        self, spares: Sequence[tuple[int, _Spare]], weights: Sequence[float], shares: Sequence[float]
    ) -> tuple[float, int]:
        """What leaving a node out costs the family that it costs least, and which this is."""
        costs = [0.0] * len(self.families)
        for (at, _), weight, share in zip(spares, weights, shares, strict=True):
            costs[at] += max(weight, ROUNDING) * share
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
