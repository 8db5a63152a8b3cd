"""Sets of CPU ids and of NUMA node ids as plain integers, one bit an id, and Linux' cpulist text for them.

The kubelet keeps NUMA masks in 64 bits (pkg/kubelet/cm/topologymanager/bitmask) and CPU sets in maps
(k8s.io/utils/cpuset). Python's integers serve both, have no width limit, and cost tens of nanoseconds a set operation:
``a & b`` is the intersection, ``a & ~b`` the difference, ``a.bit_count()`` the size.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

CPUSet: TypeAlias = int
"""CPU ids as the bits of an integer."""

NUMAMask: TypeAlias = int
"""NUMA node ids as the bits of an integer."""

MAX_ID = 1 << 14
"""Larger ids are invalid. This is twice the most CPUs that Linux can be built for (x86 NR_CPUS is 8192)."""


class InvalidIDList(ValueError):
    """A text that is not a list of ids in the kernel's notation."""


def mask_of(ids: Iterable[int]) -> int:
    """The set that holds exactly ``ids``.

    Raises InvalidIDList for an id that is negative or not below MAX_ID.
    """
    mask = 0
    for number in ids:
        if not 0 <= number < MAX_ID:
            raise InvalidIDList(f"id {number} is outside 0 to {MAX_ID - 1}")
        mask |= 1 << number
    return mask


def members(mask: int) -> Iterator[int]:
    """The ids in ``mask``, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def lowest(mask: int) -> int:
    """The lowest id in ``mask``, which must not be empty."""
    return (mask & -mask).bit_length() - 1


def parse_id_list(text: str) -> int:
    """Read a cpulist such as ``0-3,8,10-11``; empty text is the empty set.

    Raises InvalidIDList, which names the wrong part.
    Source of the format: Documentation/core-api/printk-formats.rst (bitmaps, ``%*pbl``).
    """
    mask = 0
    for part in filter(None, (piece.strip() for piece in text.strip().split(","))):
        first, dash, last = part.partition("-")
        if not first.isascii() or not first.isdigit() or (dash and not (last.isascii() and last.isdigit())):
            raise InvalidIDList(f"{part[:40]!r} is not an id or a range of ids")
        if len(first) > 6 or len(last) > 6:
            raise InvalidIDList(f"{part[:40]!r} is outside 0 to {MAX_ID - 1}")
        low, high = int(first), int(last or first)
        if high < low or high >= MAX_ID:
            raise InvalidIDList(f"{part!r} is not an ascending range within 0 to {MAX_ID - 1}")
        mask |= ((1 << (high - low + 1)) - 1) << low
    return mask


def format_id_list(mask: int) -> str:
    """Write a set as a cpulist, ranges collapsed: ``0-3,8``; the empty set is empty text."""
    parts = []
    while mask:
        first = lowest(mask)
        run = (~(mask >> first) & ((mask >> first) + 1)).bit_length() - 1
        parts.append(str(first) if run == 1 else f"{first}-{first + run - 1}")
        mask &= ~(((1 << run) - 1) << first)
    return ",".join(parts)
