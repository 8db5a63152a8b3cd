"""Amounts, NUMA nodes and masks of a merge's trace in words."""

from collections.abc import Iterable, Sequence

from topomend.model.bitmask import NUMAMask, members
from topomend.model.quantity import format_bytes
from topomend.model.verdict import ResourceTrace
from topomend.replay import qos

MAX_NAMED = 8
"""Of so many NUMA nodes or masks a sentence names each; of more those with the most free."""


def amount_text(trace: ResourceTrace, number: int) -> str:
    """An amount of the resource: ``1Gi`` for memory, ``3`` for others."""
    return format_bytes(number) if qos.is_memory(trace.resource) else str(number)


def numa_text(mask: NUMAMask) -> str:
    """``NUMA 0,1`` for the mask of these NUMA nodes."""
    return "NUMA " + ",".join(map(str, members(mask)))


def free_text(trace: ResourceTrace) -> str:
    """The free amount on each NUMA node."""
    return by_node_text(trace, trace.free)


def by_node_text(trace: ResourceTrace, by_node: Iterable[tuple[int, int]]) -> str:
    """``2 on NUMA 0, 3 on NUMA 1``; of many NUMA nodes those with the most."""
    amounts = list(by_node)
    if len(amounts) > MAX_NAMED:
        amounts = sorted(sorted(amounts, key=lambda pair: -pair[1])[:MAX_NAMED])
    named = ", ".join(f"{amount_text(trace, amount)} on NUMA {node}" for node, amount in amounts)
    return named or "none"


def masks_text(masks: Sequence[NUMAMask]) -> str:
    """``NUMA 0,1`` for single NUMA nodes, ``NUMA 0+1 or 2+3`` for pairs."""
    if all(mask.bit_count() == 1 for mask in masks):
        together = 0
        for mask in masks:
            together |= mask
        return numa_text(together)
    named = [" + ".join(map(str, members(mask))).replace(" ", "") for mask in masks[:MAX_NAMED]]
    return "NUMA " + " or ".join(named) + (" or others" if len(masks) > MAX_NAMED else "")
