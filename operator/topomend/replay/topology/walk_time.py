"""Estimate how long the kubelet walks the permutations of its hints, and when that is too long to wait for.

The kubelet's merge visits every permutation, one hint of each resource's list
(policy.go:iterateAllProviderTopologyHints). Their number is the product of the lists' lengths, and a list holds up to
2^n - 1 masks on n NUMA nodes. The estimate counts this walk alone, so the kubelet takes at least as long:

    seconds = product of the lengths * NANOSECONDS_A_PERMUTATION / 1e9

Under policy single-numa-node lists hold single NUMA nodes only. Their walk is short and is not estimated.
"""

from collections.abc import Iterable
from math import isqrt, prod

from topomend.replay.errors import KUBELET_WOULD_HANG, KubeletBreaks

NANOSECONDS_A_PERMUTATION = 100
"""The least time that a kubelet needs for one permutation.

Measured: 163 to 205 ns (255^3 permutations in 2.7 to 3.4 s, ``make bench``); kubernetes#131738 reports 298 ns (255^4 in
21 minutes). 100 ns leaves room for a machine that is 1.6 times as fast.
"""

PATIENCE_SECONDS = 3600
"""The longest admission that replay does not report as a hang."""

MAX_PERMUTATIONS = PATIENCE_SECONDS * 1_000_000_000 // NANOSECONDS_A_PERMUTATION
"""The permutations that a kubelet may visit within ``PATIENCE_SECONDS``: 3.6e10."""

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


def _duration(seconds: int) -> str:
    for unit, size in (("years", _YEAR), ("days", _DAY)):
        if seconds >= 2 * size:
            return f"{seconds // size:,} {unit}"
    return f"{seconds / _HOUR:.1f} hours"
