"""NUMA nodes as a tree of their distances: sockets, boards and so on, whatever the firmware calls near.

Where the distances make a tree (an ultrametric), how close a mask is follows from how many of its nodes stand in each
subtree, and the closest choice of so many nodes from what is left is found subtree by subtree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, combinations

from topomend.model.bitmask import NUMAMask, members

Pairs = Mapping[int, Mapping[int, int]]
"""The distance of two NUMA nodes there and back."""


@dataclass(slots=True, eq=False)
class _Branch:
    """A subtree: NUMA nodes nearer to each other than to the rest by ``nearness``, there and back.

    ``leaves`` are those in no smaller one; ``known`` are its answers by what is chosen and what is left within it.
    """

    nodes: NUMAMask
    leaves: NUMAMask
    nearness: int
    branches: list["_Branch"]
    known: dict[tuple[NUMAMask, NUMAMask], list[float]] = field(default_factory=dict)


class DistanceTree:
    """The tree, and what each NUMA node is worth besides being close."""

    def __init__(self, root: _Branch, farthest: int, worth: Mapping[int, float]) -> None:
        self._root, self._farthest, self._worth = root, farthest, worth

    def priced(self, worth: Mapping[int, float]) -> "DistanceTree":
        """The same tree where a chosen NUMA node makes up for so much distance."""
        return DistanceTree(_copied(self._root), self._farthest, worth)

    def least(self, mask: NUMAMask, left: NUMAMask, wanted: int) -> float:
        """The least that the distances between all pairs of a mask come to, there and back, less the worth of the
        nodes added, once ``wanted`` nodes of ``left`` are added to it; there must be as many."""
        count = mask.bit_count() + wanted
        return self._farthest * _pairs(count) - self._most(self._root, mask, left)[wanted]

    def _most(self, branch: _Branch, mask: NUMAMask, left: NUMAMask) -> list[float]:
        """For no, one, two and so on nodes added: the most that nearness and worth come to within a branch."""
        key = mask & branch.nodes, left & branch.nodes
        known = branch.known.get(key)
        if known is None:
            worth = sorted([self._worth.get(node, 0) for node in members(left & branch.leaves)], reverse=True)
            sums = list(accumulate(worth, initial=0.0))
            for each in branch.branches:
                sums = _best_of_both(sums, self._most(each, mask, left))
            chosen, nearness = key[0].bit_count(), branch.nearness
            known = [most + nearness * _pairs(chosen + added) for added, most in enumerate(sums)]
            branch.known[key] = known
        return known


def distance_tree(nodes: Sequence[int], pairs: Pairs) -> DistanceTree | None:
    """The tree of at least two NUMA nodes by their distances there and back; None where these make none."""
    farthest = max(pairs[one][other] for one, other in combinations(nodes, 2))
    root = _branch(list(nodes), farthest, pairs)
    return None if root is None else DistanceTree(root, farthest, {})


def _branch(nodes: list[int], around: int, pairs: Pairs) -> _Branch | None:
    """The subtree of some nodes, which are ``around`` apart from others."""
    farthest = max(pairs[one][other] for one, other in combinations(nodes, 2))
    parts: list[list[int]] = []
    rest = nodes
    while rest:
        near = [node for node in rest if node == rest[0] or pairs[rest[0]][node] < farthest]
        parts.append(near)
        rest = [node for node in rest if node not in near]
    for one, other in combinations(parts, 2):
        if any(pairs[node][far] != farthest for node in one for far in other):
            return None
    if any(pairs[node][near] >= farthest for part in parts for node, near in combinations(part, 2)):
        return None
    branches = []
    for part in parts:
        if len(part) > 1:
            branch = _branch(part, farthest, pairs)
            if branch is None:
                return None
            branches.append(branch)
    leaves = sum(1 << part[0] for part in parts if len(part) == 1)
    return _Branch(sum(1 << node for node in nodes), leaves, around - farthest, branches)


def _copied(branch: _Branch) -> _Branch:
    return _Branch(branch.nodes, branch.leaves, branch.nearness, [_copied(each) for each in branch.branches])


def _best_of_both(one: list[float], other: list[float]) -> list[float]:
    """For each count the best sum of so many taken from two lists together."""
    if len(one) > len(other):
        one, other = other, one
    best = [float("-inf")] * (len(one) + len(other) - 1)
    for taken, first in enumerate(one):
        end = taken + len(other)
        best[taken:end] = map(max, best[taken:end], [first + second for second in other])
    return best


def _pairs(count: int) -> int:
    return count * (count - 1) // 2
