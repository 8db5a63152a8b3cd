"""Estimate how long the kubelet makes its hints and walks their permutations, and when that is too long to wait for.

For each resource of a container a manager makes every mask of n NUMA nodes, 2^n - 1 of them, and asks whether it has
enough (topologymanager/bitmask/bitmask.go:IterateBitMasks). The merge visits every permutation, one hint of each
resource's list (policy.go:iterateAllProviderTopologyHints): as many as the product of the lists' lengths. Each estimate
counts that alone, so the kubelet takes at least as long:

    seconds = (2^n - 1) * NANOSECONDS_A_MASK / 1e9
    seconds = product of the lengths * NANOSECONDS_A_PERMUTATION / 1e9

Under policy single-numa-node the merged lists hold single NUMA nodes only. Their walk is short and is not estimated.
"""

from collections.abc import Iterable
from math import isqrt, prod

from topomend.model.bitmask import NUMAMask
from topomend.replay.errors import KUBELET_WOULD_HANG, KubeletBreaks

NANOSECONDS_A_PERMUTATION = 100
"""The least time that a kubelet needs for one permutation.

Measured: 163 to 205 ns (255^3 permutations in 2.7 to 3.4 s, ``make bench``); kubernetes#131738 reports 298 ns (255^4 in
21 minutes). 100 ns leaves room for a machine that is 1.6 times as fast.
"""

NANOSECONDS_A_MASK = 250
"""The least time that a kubelet needs for one mask.

Measured: IterateBitMasks alone takes 312 to 321 ns on 24 and 26 NUMA nodes; with what the Memory Manager does for each
mask, 2,400 to 3,600 ns on 20 and 22 (the oracle of v1.37.2).
"""

PATIENCE_SECONDS = 3600
"""The longest admission that replay does not report as a hang."""

MAX_PERMUTATIONS = PATIENCE_SECONDS * 1_000_000_000 // NANOSECONDS_A_PERMUTATION
"""The permutations that a kubelet may visit within ``PATIENCE_SECONDS``: 3.6e10."""

MAX_LISTED_NODES = (PATIENCE_SECONDS * 1_000_000_000 // NANOSECONDS_A_MASK + 1).bit_length() - 1
"""The most NUMA nodes of which a kubelet makes all masks within ``PATIENCE_SECONDS``: 33."""

MAX_SHORT_LIST = isqrt(MAX_PERMUTATIONS)
"""Two lists that are both longer make more than ``MAX_PERMUTATIONS``."""

_HOUR, _DAY, _YEAR = 3600, 86_400, 31_557_600


def is_too_long(permutations: int) -> bool:
    """Whether the kubelet needs more than ``PATIENCE_SECONDS`` for this number of permutations."""
    return permutations > MAX_PERMUTATIONS


def check_walk(lengths: Iterable[int]) -> None:
    """Raises KubeletBreaks (KubeletWouldHang) if merging lists of at least these lengths takes more than an hour."""
    permutations = prod(lengths)
    if is_too_long(permutations):
        raise KubeletBreaks(
            KUBELET_WOULD_HANG,
            f"the kubelet would compare at least {permutations:.2g} permutations of NUMA hints, "
            f"which takes {_duration(permutations * NANOSECONDS_A_PERMUTATION // 1_000_000_000)} or longer",
        )


def check_list(nodes: NUMAMask) -> None:
    """Raises KubeletBreaks (KubeletWouldHang) if making all masks of these NUMA nodes takes more than an hour."""
    count = nodes.bit_count()
    if count > MAX_LISTED_NODES:
        masks = (1 << count) - 1
        raise KubeletBreaks(
            KUBELET_WOULD_HANG,
            f"the kubelet would make all {masks:.2g} sets of {count} NUMA nodes for a resource, "
            f"which takes {_duration(masks * NANOSECONDS_A_MASK // 1_000_000_000)} or longer",
        )


def _duration(seconds: int) -> str:
    for unit, size in (("years", _YEAR), ("days", _DAY)):
        if seconds >= 2 * size:
            return f"{seconds // size:,} {unit}"
    return f"{seconds / _HOUR:.1f} hours"
