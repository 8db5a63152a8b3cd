"""How close NUMA nodes are to each other, and which of several masks is the fittest by it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import mul
from typing import TypeAlias

from topomend.model.bitmask import NUMAMask, mask_of, members
from topomend.replay.errors import KUBELET_WOULD_CRASH, KubeletBreaks

Distances: TypeAlias = Mapping[int, tuple[int, ...]]
"""For each NUMA node its row, which the kubelet indexes by NUMA id (numa_info.go:CalculateAverageFor)."""

Twins: TypeAlias = tuple[int, ...]
"""NUMA nodes that can stand for each other: how close a mask is does not depend on which of them it holds."""

Spread: TypeAlias = tuple[int, ...]
"""How many NUMA nodes of each class of twins a mask holds."""


def fittest(masks: Iterable[NUMAMask], distances: Distances | None) -> NUMAMask | None:
    """The narrowest, of these the closest, of these the smallest."""
    several = set(masks)
    width = min((mask.bit_count() for mask in several), default=0)
    return closest({mask for mask in several if mask.bit_count() == width}, distances) if several else None


def closest(masks: Collection[NUMAMask], distances: Distances | None) -> NUMAMask:
    """The closest of ``masks``, all of one width and at least one, of these the smallest.

    Source: policy.go:CompareNUMAAffinityMasks. Raises KubeletBreaks as ``total_distance`` does, of several masks alone.
    """
    if len(masks) == 1 or distances is None:
        return min(masks)
    return min(masks, key=lambda mask: (total_distance(mask, distances), mask))


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


def classes_of_twins(nodes: Sequence[int], distances: Distances) -> list[Twins]:
    """The NUMA nodes by what they are as far from as each other: from every third one there and back, and from itself.

    Of three nodes, two pairs of which can stand for each other, so can the third pair: one of each class is compared.
    """
    if has_gaps(distances):
        return [(node,) for node in nodes]
    classes: list[list[int]] = []
    for node in nodes:
        found = next((each for each in classes if _are_twins(node, each[0], nodes, distances)), None)
        if found is None:
            classes.append([node])
        else:
            found.append(node)
    return [tuple(each) for each in classes]


def _are_twins(one: int, other: int, nodes: Sequence[int], distances: Distances) -> bool:
    return distances[one][one] == distances[other][other] and all(
        distances[one][third] + distances[third][one] == distances[other][third] + distances[third][other]
        for third in nodes
        if third not in {one, other}
    )


def count_of_spreads(classes: Iterable[Twins], width: int) -> int:
    """In how many ways ``width`` NUMA nodes can be spread over classes of twins."""
    ways = [1] + [0] * width
    for twins in classes:
        ways = [sum(ways[max(0, wide - len(twins)) : wide + 1]) for wide in range(width + 1)]
    return ways[width]


def spreads(classes: Sequence[Twins], width: int, distances: Distances) -> list[tuple[int, Spread]]:
    """The ways to spread ``width`` NUMA nodes over classes of twins, with their total distances, the closest first."""
    found: list[tuple[int, Spread]] = [(0, ())]
    room = sum(map(len, classes))
    for number, twins in enumerate(classes):
        room -= len(twins)
        node = twins[0]
        between = [distances[node][other[0]] + distances[other[0]][node] for other in classes[:number]]
        inside = [total_distance(mask_of(twins[:count]), distances) for count in range(len(twins) + 1)]
        wider = []
        for total, spread in found:
            left = width - sum(spread)
            apart = sum(map(mul, spread, between))
            for count in range(max(0, left - room), min(left, len(twins)) + 1):
                wider.append((total + count * apart + inside[count], (*spread, count)))
        found = wider
    return sorted(found)
