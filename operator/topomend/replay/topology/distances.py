"""How close NUMA nodes are to each other, and which of several masks is the closest.

Only option prefer-closest-numa-nodes makes the kubelet look at distances.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from topomend.model.bitmask import NUMAMask, members
from topomend.replay.errors import KUBELET_WOULD_CRASH, KubeletBreaks

Distances: TypeAlias = Mapping[int, tuple[int, ...]]
"""For each NUMA node its row, which the kubelet indexes by NUMA id (numa_info.go:CalculateAverageFor)."""


def fittest(masks: Iterable[NUMAMask], distances: Distances | None) -> NUMAMask | None:
    """The narrowest of ``masks``; among equals the closest, then the smallest. None where there is no mask."""
    candidates = set(masks)
    if not candidates:
        return None
    width = min(mask.bit_count() for mask in candidates)
    return closest({mask for mask in candidates if mask.bit_count() == width}, distances)


def closest(masks: Collection[NUMAMask], distances: Distances | None) -> NUMAMask:
    """The closest of ``masks``, all of one width and at least one; among equals the smallest.

    Source: policy.go:CompareNUMAAffinityMasks. Raises KubeletBreaks as ``total_distance`` does, if there are several.
    """
    if len(masks) == 1 or distances is None:
        return min(masks)
    return min(masks, key=lambda mask: (total_distance(mask, distances), mask))


def total_distance(mask: NUMAMask, distances: Distances) -> int:
    """The sum of distances over all ordered pairs of a mask (numa_info.go:CalculateAverageFor).

    The kubelet compares averages. Masks of one width have as many pairs, so their sums compare alike.

    Raises KubeletBreaks where a NUMA id lies past the end of a list, which the kubelet reads without a check.
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


def interchangeable_classes(nodes: Sequence[int], distances: Distances) -> list[int]:
    """A class number for each of ``nodes``: nodes of one class can replace each other in any mask.

    Two nodes are interchangeable if they are as far from themselves and from every third node, there and back. The
    relation is transitive, so one node of each class is enough to compare with.
    """
    representatives: list[int] = []
    classes = []
    for node in nodes:
        for number, representative in enumerate(representatives):
            if _are_interchangeable(node, representative, nodes, distances):
                classes.append(number)
                break
        else:
            classes.append(len(representatives))
            representatives.append(node)
    return classes


def _are_interchangeable(one: int, other: int, nodes: Sequence[int], distances: Distances) -> bool:
    return distances[one][one] == distances[other][other] and all(
        distances[one][third] + distances[third][one] == distances[other][third] + distances[third][other]
        for third in nodes
        if third not in {one, other}
    )
