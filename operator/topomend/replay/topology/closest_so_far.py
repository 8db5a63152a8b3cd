"""What a search for the closest of many masks knows: the best so far, and what a branch can still come to."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, combinations
from math import gcd

from topomend.model.bitmask import NUMAMask
from topomend.replay.topology.distances import Distances, total_distance

ROUNDING = 1e-6
"""More than what sums of distances and weights, as floating-point numbers, are off by."""

_PRICES = 8
"""At how many prices distances and amounts are weighed."""


class ClosestSoFar:
    """The least total distance found so far, and whether a branch of the search can still beat it.

    ``nodes`` are those of the search, in its order.
    """

    def __init__(self, nodes: Sequence[int], distances: Distances) -> None:
        self._distances = distances
        self._nodes = nodes
        self._pairs = {one: {other: distances[one][other] + distances[other][one] for other in nodes} for one in nodes}
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
        own = sorted({self._distances[node][node] for node in self._nodes})
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
        best = self._bound(0, 0, wanted, 1.0)
        scale = float(max(map(max, map(dict.values, self._pairs.values())))) * wanted
        for step in range(-2, _PRICES - 2):
            worth, price = self._worth, self._price
            self._price = scale * 2**-step
            self._worth = {node: self._price * share for node, share in shares.items()}
            bound = self._bound(0, 0, wanted, 1.0)
            if bound > best:
                best = bound
            else:
                self._worth, self._price = worth, price

    def may_improve(self, position: int, mask: NUMAMask, wanted: int, lacking: float) -> bool:
        """Whether adding so many of the nodes from a position on can come to less than the best, by a step at least.

        ``lacking`` is the share of the weighed threshold that is.
        """
        if self._best is None or wanted == 0:
            return True
        return self._bound(position, mask, wanted, lacking) <= self._best - self._step + ROUNDING

    def _bound(self, position: int, mask: NUMAMask, wanted: int, lacking: float) -> float:
        """What the total distance comes to at least.

        Each node adds at least its distances to the mask, and half of those to as many of its nearest as are added of
        the nodes that are left.
        """
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
