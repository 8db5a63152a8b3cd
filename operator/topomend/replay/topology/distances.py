"""Distances between NUMA nodes, and the closest of several masks.

The kubelet reads distances only with option prefer-closest-numa-nodes. Source: topologymanager/numa_info.go.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from topomend.model.bitmask import NUMAMask, members
from topomend.replay.effort import Effort
from topomend.replay.errors import KUBELET_WOULD_CRASH, KubeletBreaks

Distances: TypeAlias = Mapping[int, tuple[int, ...]]
"""The row of each NUMA node. The kubelet indexes a row by NUMA id (numa_info.go:CalculateAverageFor)."""


def fittest(masks: Iterable[NUMAMask], distances: Distances | None, effort: Effort) -> NUMAMask | None:
    """The narrowest of ``masks``; among equals the closest, then the smallest. None if ``masks`` is empty."""
    candidates = set(masks)
    if not candidates:
        return None
    width = min(mask.bit_count() for mask in candidates)
    return closest({mask for mask in candidates if mask.bit_count() == width}, distances, effort)


def closest(masks: Collection[NUMAMask], distances: Distances | None, effort: Effort) -> NUMAMask:
    """The closest of ``masks``, all of one width and at least one; among equals the smallest.

    Source: policy.go:CompareNUMAAffinityMasks. With several masks it raises KubeletBreaks as ``total_distance`` does.
    """
    return min(equally_close(masks, distances, effort))


def equally_close(masks: Collection[NUMAMask], distances: Distances | None, effort: Effort) -> Collection[NUMAMask]:
    """The closest of ``masks``, as ``closest`` does, but all of them."""
    if len(masks) == 1 or distances is None:
        return masks
    totals = {mask: total_distance(mask, distances, effort) for mask in masks}
    least = min(totals.values())
    return [mask for mask, total in totals.items() if total == least]


def total_distance(mask: NUMAMask, distances: Distances, effort: Effort) -> int:
    """The sum of distances over all ordered pairs of a mask (numa_info.go:CalculateAverageFor).

    The kubelet compares averages. Masks of one width have equally many pairs, so comparing sums has the same outcome.

    Raises KubeletBreaks if a NUMA id lies past the end of a row, which the kubelet reads without a check.
    """
    effort.check()
    nodes = list(members(mask))
    try:
        return sum(distances[node][other] for node in nodes for other in nodes)
    except IndexError:
        raise KubeletBreaks(
            KUBELET_WOULD_CRASH,
            "prefer-closest-numa-nodes reads past the end of a distance list where NUMA ids have gaps",
        ) from None


def has_gaps(distances: Distances) -> bool:
    """Whether a NUMA id lies past the end of a row."""
    return any(node >= len(row) for node in distances for row in distances.values())


def interchangeable_classes(nodes: Sequence[int], distances: Distances) -> list[int]:
    """The class number of each of ``nodes``: nodes of one class can replace each other in any mask.

    Two nodes are interchangeable if their distances to themselves are equal, and the round trips to every third node.
    The relation is transitive, so comparing with one node of each class is enough.
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
