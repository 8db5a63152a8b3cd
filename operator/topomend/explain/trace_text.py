"""Amounts, NUMA nodes and masks of a merge's trace in words."""

from collections.abc import Iterable, Sequence

from topomend.model.bitmask import NUMAMask, format_id_list, members
from topomend.model.quantity import format_bytes
from topomend.model.verdict import ResourceTrace
from topomend.replay import qos

MAX_NAMED = 8
"""Of so many NUMA nodes or masks a sentence names each; more are put together, and the end of a list is said."""


def amount_text(trace: ResourceTrace, number: int) -> str:
    """An amount of the resource: ``1Gi`` for memory, ``3`` for others."""
    return format_bytes(number) if qos.is_memory(trace.resource) else str(number)


def numa_text(mask: NUMAMask) -> str:
    """``NUMA 0,1`` for the mask of these NUMA nodes; ``NUMA 0-15`` for many."""
    if mask.bit_count() > MAX_NAMED:
        return f"NUMA {format_id_list(mask)}"
    return "NUMA " + ",".join(map(str, members(mask)))


def free_text(trace: ResourceTrace) -> str:
    """The free amount on each NUMA node; of devices that belong to several NUMA nodes by those."""
    return by_set_text(trace, trace.free_sets) if trace.free_sets else by_node_text(trace, trace.free)


def by_node_text(trace: ResourceTrace, by_node: Iterable[tuple[int, int]]) -> str:
    """``2 on NUMA 0, 3 on NUMA 1``; many NUMA nodes by amount: ``8 on each of NUMA 1-8, 7 on NUMA 0``."""
    amounts = list(by_node)
    if len(amounts) > MAX_NAMED:
        return _by_amount_text(trace, amounts)
    named = ", ".join(f"{amount_text(trace, amount)} on NUMA {node}" for node, amount in amounts)
    return named or "none"


def _by_amount_text(trace: ResourceTrace, amounts: Sequence[tuple[int, int]]) -> str:
    """The largest amounts with the NUMA nodes that have them, and how many NUMA nodes have less."""
    nodes: dict[int, NUMAMask] = {}
    for node, amount in amounts:
        nodes[amount] = nodes.get(amount, 0) | 1 << node
    largest = sorted(nodes, reverse=True)
    named = [
        f"{amount_text(trace, amount)} on {'each of ' if nodes[amount].bit_count() > 1 else ''}"
        f"NUMA {format_id_list(nodes[amount])}"
        for amount in largest[:MAX_NAMED]
    ]
    left = sum(nodes[amount].bit_count() for amount in largest[MAX_NAMED:])
    return ", ".join([*named, f"less on {left} more"] if left else named)


def by_set_text(trace: ResourceTrace, by_set: Sequence[tuple[NUMAMask, int]]) -> str:
    """``2 on NUMA 0, 1 on NUMA 0+1``, for devices of which each belongs to these NUMA nodes together."""
    named = [f"{amount_text(trace, amount)} on NUMA {_together(mask)}" for mask, amount in by_set[:MAX_NAMED]]
    left = sum(amount for _, amount in by_set[MAX_NAMED:])
    return ", ".join([*named, f"{left} on others"] if left else named) or "none"


def masks_text(masks: Sequence[NUMAMask], widths: Sequence[int]) -> str:
    """``NUMA 0,1`` for single NUMA nodes, ``NUMA 0+1 or 2+3`` for pairs.

    ``masks`` begin with all single NUMA nodes; ``widths`` are those of all masks, also of those that are not listed.
    """
    if all(mask.bit_count() == 1 for mask in masks):
        together = 0
        for mask in masks:
            together |= mask
        return numa_text(together) + (" or several together" if any(width > 1 for width in widths) else "")
    named = [_together(mask) for mask in masks[:MAX_NAMED]]
    return "NUMA " + " or ".join(named) + (" or others" if len(masks) > MAX_NAMED else "")


def _together(mask: NUMAMask) -> str:
    return "+".join(map(str, members(mask)))
