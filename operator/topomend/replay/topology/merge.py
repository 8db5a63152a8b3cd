"""Merge the hints of all resources into one, with the outcome of the kubelet's HintMerger (policy.go).

The kubelet walks the product of all lists, up to (2^n - 1)^resources permutations, and keeps the best. policy.go:
compare is a ranking, so the outcome does not depend on the order of the walk. Two cases replace it:

- Case preferred: a merged hint is preferred only if every list contains the same mask and prefers it. The outcome is
  the narrowest such mask.
- Case not preferred: the outcome is the best intersection of one mask from each list, by ``hints.width_rank``. The
  intersections are counted by inclusion and exclusion (Moebius inversion over supersets).

Among masks of one width the closest wins with prefer-closest-numa-nodes, then the smallest, unless option
numa-allocation-strategy decides.

Up to ``TABLED_NODES`` NUMA nodes a list is a table of all masks. Beyond that ``wide`` works on the rules of the hints.
Both raise KubeletBreaks if the kubelet's walk would take more than an hour (``walk_time``).
"""

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import islice
from math import comb
from operator import add, and_, sub
from typing import TypeAlias

from topomend.model.bitmask import NUMAMask, mask_of, members
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.topology.distances import Distances, equally_close
from topomend.replay.topology.hints import Answer, Family, Hints, Offer, Threshold, width_rank
from topomend.replay.topology.numa_allocation_strategy import Strategy
from topomend.replay.topology.search import masks_by_width, narrowest_of, preferred_of_width
from topomend.replay.topology.walk_time import check_walk
from topomend.replay.topology.wide import WideMerge, poorest_width

TABLED_NODES = 17
"""The most NUMA nodes for which all masks are tabled: the most on which a kubelet merges two full lists in an hour."""

LISTED_NODES = 8
"""Up to so many NUMA nodes a table of all masks finds the first ones faster than a search."""


TieBreak: TypeAlias = Callable[[Sequence[NUMAMask]], NUMAMask]
"""Chooses one of several masks of a single NUMA node, which are ascending."""


@dataclass(frozen=True, slots=True)
class Hint:
    """An affinity, and whether it is preferred. ``mask`` None is no affinity (topology_manager.go:TopologyHint)."""

    mask: NUMAMask | None
    preferred: bool


@dataclass(frozen=True)
class NUMAInfo:
    """The machine's NUMA nodes; ``distances`` is None unless option prefer-closest-numa-nodes is on.

    With ``preferred_first`` the kubelet walks all permutations only where no merged hint is preferred: it first looks
    among preferred hints of one mask, which takes no time to speak of (1.38, policy.go:mergePreferred).
    """

    nodes: NUMAMask
    distances: Distances | None = None
    preferred_first: bool = False


def merge(
    info: NUMAInfo,
    offers: Sequence[Offer],
    strategy: Strategy | None = None,
    *,
    preferred_only: bool = False,
    effort: Effort = UNLIMITED,
) -> Hint:
    """The merged hint of policies best-effort and restricted (policy.go:HintMerger.Merge).

    ``strategy`` decides between masks that fit equally well. On more than TABLED_NODES NUMA nodes it does so only where
    masks of single NUMA nodes are preferred.
    With ``preferred_only`` the mask of a hint that is not preferred is not worked out: all NUMA nodes stand for it.
    Raises KubeletBreaks if the kubelet would walk for more than an hour.
    """
    hints = [offer for offer in offers if isinstance(offer, Hints)]
    # An impossible resource counts as one hint for all NUMA nodes that is not preferred, so no merged hint is preferred
    # (filterProvidersHints). A resource without preference counts as the same hint, but preferred.
    certain = Answer.IMPOSSIBLE not in offers
    # Case: no resource names a mask. One hint for all NUMA nodes stands for each, and so for all of them.
    if not hints:
        return Hint(info.nodes, certain)
    if info.nodes.bit_count() > TABLED_NODES:
        return _merge_wide(info, hints, certain, strategy, effort)
    return _merge_tabled(info, hints, certain, strategy, preferred_only=preferred_only, effort=effort)


def merge_single(info: NUMAInfo, offers: Sequence[Offer], tie_break: TieBreak = min) -> Hint:
    """The merged hint of policy single-numa-node, which considers preferred masks of a single NUMA node only.

    ``tie_break`` chooses among NUMA nodes that all resources prefer.
    Source: policy_single_numa_node.go:filterSingleNumaHints, Merge.
    """
    # Case: a resource is impossible. Its hint has no affinity and is not preferred.
    if Answer.IMPOSSIBLE in offers:
        return Hint(None, preferred=False)
    common = info.nodes
    masked = False
    for offer in offers:
        if isinstance(offer, Hints):
            common &= offer.preferred_nodes()
            masked = True
    # Case: no resource has a preference.
    if not masked:
        return Hint(None, preferred=True)
    # Case: the resources have no NUMA node in common.
    if not common:
        return Hint(None, preferred=False)
    # Case: an affinity to all NUMA nodes of the machine is no affinity.
    mask = tie_break([1 << node for node in members(common)])
    return Hint(None if mask == info.nodes else mask, preferred=True)


def narrowest(hints: Hints, including: NUMAMask = 0, effort: Effort = UNLIMITED) -> NUMAMask | None:
    """The narrowest offered mask that contains ``including``; among equals the smallest. None if there is none."""
    masks = [mask for mask in hints.masks if not including & ~mask]
    for family in hints.families:
        mask = narrowest_of(family, effort, including)
        if mask is not None:
            masks.append(mask)
    return min(masks, key=lambda mask: (mask.bit_count(), mask), default=None)


def least_width(family: Family, effort: Effort = UNLIMITED) -> int | None:
    """The number of NUMA nodes of the family's narrowest mask; None for an empty family."""
    if all(threshold.adds_up for threshold in family.thresholds):
        width = max([family.least, *(_least_nodes(threshold, family.universe) for threshold in family.thresholds)])
        if len(family.thresholds) <= 1:
            return width if width <= family.universe.bit_count() else None
    mask = narrowest(Hints((family,)), effort=effort)
    return None if mask is None else mask.bit_count()


def first_masks(info: NUMAInfo, hints: Hints, limit: int, effort: Effort = UNLIMITED) -> list[NUMAMask]:
    """The narrowest offered masks, at most ``limit``, narrowest first."""
    if info.nodes.bit_count() <= LISTED_NODES:
        return list(islice(_offered(hints, tuple(members(info.nodes)), effort), limit))
    masks = set(hints.masks)
    for family in hints.families:
        masks.update(islice(masks_by_width(family, effort), limit))
    return sorted(masks, key=lambda mask: (mask.bit_count(), mask))[:limit]


@dataclass(frozen=True, slots=True)
class Preferred:
    """The masks that a resource offers and prefers: all masks of one NUMA node, and the narrowest wider ones.

    ``widths`` are those of every such mask, listed or not. ``anywhere`` is whether any NUMA nodes will do, as many as
    the resource prefers; it may be false where that is so.
    """

    masks: tuple[NUMAMask, ...] = ()
    widths: tuple[int, ...] = ()
    anywhere: bool = False


def preferred_masks(info: NUMAInfo, hints: Hints, limit: int, widest: int, effort: Effort = UNLIMITED) -> Preferred:
    """What a resource prefers of masks of up to ``widest`` NUMA nodes; at most ``limit`` wider ones are listed."""
    masks: list[NUMAMask] = []
    widths = []
    for width in _preferable_widths(hints, min(widest, info.nodes.bit_count())):
        room = limit - len(masks)
        found = _preferred_nodes(hints) if width == 1 else preferred_of_width(hints, width, max(1, room), effort)
        if found:
            masks += found if width == 1 or room > 0 else ()
            widths.append(width)
    anywhere = hints.sockets is None and len(widths) == 1 and _offers_all(info, hints, masks, widths[0])
    return Preferred(tuple(masks), tuple(widths), anywhere)


def _preferred_nodes(hints: Hints) -> list[NUMAMask]:
    return [1 << node for node in members(hints.preferred_nodes())]


def _preferable_widths(hints: Hints, widest: int) -> Iterable[int]:
    """The widths up to ``widest`` of which masks may be preferred."""
    if hints.width is None or hints.sockets is not None:
        return range(1, widest + 1)
    return (hints.width,) if hints.width <= widest else ()


def _offers_all(info: NUMAInfo, hints: Hints, masks: Sequence[NUMAMask], width: int) -> bool:
    """Whether every mask of this width is offered, as far as single rules tell; ``masks`` are some that are."""
    nodes = info.nodes.bit_count()
    return len(masks) == comb(nodes, width) or any(
        family.universe == info.nodes
        and family.least <= width
        and all(poorest_width(threshold, info.nodes) <= width for threshold in family.thresholds)
        for family in hints.families
    )


def every_preferred_mask(info: NUMAInfo, hints: Hints, effort: Effort = UNLIMITED) -> set[NUMAMask]:
    """All masks that are offered and preferred, on machines of at most ``TABLED_NODES`` NUMA nodes."""
    return set(filter(hints.prefers, _offered(hints, tuple(members(info.nodes)), effort)))


def list_lengths(info: NUMAInfo, hints: Sequence[Hints], effort: Effort) -> list[int]:
    """How many masks each resource offers, on machines of at most ``TABLED_NODES`` NUMA nodes."""
    ids = tuple(members(info.nodes))
    return [sum(_table(hint, ids, effort)) for hint in hints]


def _least_nodes(threshold: Threshold, universe: NUMAMask) -> int:
    """The fewest NUMA nodes that meet a threshold of single-node groups; more than ``universe`` has if none do."""
    amounts: dict[NUMAMask, int] = {}
    for node, amount in threshold.groups:
        if node & universe:
            amounts[node] = amounts.get(node, 0) + amount
    lacking = threshold.need
    for count, amount in enumerate(sorted(amounts.values(), reverse=True)):
        if lacking <= 0:
            return count
        lacking -= amount
    return len(amounts) if lacking <= 0 else universe.bit_count() + 1


# Tables. The index of a mask numbers the machine's NUMA nodes without gaps. That keeps the width and order of masks.


def _merge_tabled(  # noqa: PLR0913  what a merge depends on
    info: NUMAInfo,
    hints: list[Hints],
    certain: bool,
    strategy: Strategy | None,
    *,
    preferred_only: bool,
    effort: Effort,
) -> Hint:
    ids = tuple(members(info.nodes))
    tables = [_table(hint, ids, effort) for hint in hints]
    lengths = [sum(table) for table in tables]
    if not info.preferred_first:
        check_walk(lengths)
    # Case preferred: every list has the same mask and prefers it. Any such hint beats all that are not preferred.
    if certain:
        preferred = _common_preferred(info, hints, tables, ids, effort=effort, first=strategy is None)
        if preferred:
            return Hint(strategy.fittest(preferred) if strategy else min(preferred), preferred=True)
    check_walk(lengths)
    # Case not preferred: no mask is worked out where only the answer counts, for restricted refuses it whatever it is.
    if preferred_only:
        return Hint(info.nodes, preferred=False)
    # The wanted width is the largest of the lists' narrowest ones (width_rank).
    order = _by_width(len(ids))
    best_width = max(next(mask for mask in order if table[mask]).bit_count() for table in tables)
    reachable = _intersections(tables, effort)
    by_width: dict[int, list[NUMAMask]] = {}
    for mask in order:
        if mask and reachable[mask]:
            by_width.setdefault(mask.bit_count(), []).append(_expand(mask, ids))
    # Case: no masks have a NUMA node in common. All NUMA nodes stand for a walk without any hint.
    if not by_width:
        return Hint(info.nodes, preferred=False)
    # Case: some have. The width that comes closest to the best one wins, then the mask that fits best.
    best = min(by_width, key=lambda width: width_rank(width, best_width))
    fittest = equally_close(by_width[best], info.distances, effort)
    if strategy is None:
        return Hint(min(fittest), preferred=False)
    offered = [[_expand(mask, ids) for mask in order if table[mask]] for table in tables]
    return Hint(strategy.fittest_of_walk(fittest, offered), preferred=False)


def _common_preferred(  # noqa: PLR0913  what a merge depends on
    info: NUMAInfo, hints: list[Hints], tables: list[list[bool]], ids: tuple[int, ...], *, effort: Effort, first: bool
) -> Collection[NUMAMask]:
    """The masks that every resource offers and prefers and that fit equally well, ascending.

    Of masks that no distances tell apart the ``first`` alone, if that is enough.
    """
    best: list[NUMAMask] = []
    common = list(map(all, zip(*tables, strict=True)))
    for index in _by_width(len(ids)):
        if not common[index]:
            continue
        effort.check()
        mask = _expand(index, ids)
        if best and mask.bit_count() > best[0].bit_count():
            break
        if all(hint.prefers(mask) for hint in hints):
            best.append(mask)
            if first and info.distances is None:
                break
    return equally_close(best, info.distances, effort) if best else best


def _intersections(tables: list[list[bool]], effort: Effort) -> Sequence[int]:
    """For every mask, the number of choices of one mask from each table whose intersection is exactly this mask.

    No number exceeds that of all choices, which ``check_walk`` bounds, so 64 bits hold each.
    """
    counts: Sequence[int] = [1] * len(tables[0])
    for table in tables:
        supersets = _over_halves(table, add, effort)
        counts = [count * more for count, more in zip(counts, supersets, strict=True)]
    return _over_halves(counts, sub, effort)


def _over_halves(counts: Sequence[int], put: Callable[[int, int], int], effort: Effort) -> Sequence[int]:
    """Add the counts of its supersets to every mask's count, or subtract them; one NUMA node after the other.

    One integer holds all counts, 64 bits each, so that each NUMA node takes one addition. No count becomes negative:
    half way, counts are exact in the NUMA nodes that were subtracted and include supersets in the others.
    """
    size = len(counts)
    form = struct.Struct(f"<{size}Q")
    packed = int.from_bytes(form.pack(*counts), "little")
    step = 1
    while step < size:
        effort.check()
        upper = int.from_bytes((bytes(8 * step) + b"\xff" * (8 * step)) * (size // (2 * step)), "little")
        packed = put(packed, (packed & upper) >> (64 * step))
        step *= 2
    return form.unpack(packed.to_bytes(8 * size, "little"))


def _offered(hints: Hints, ids: tuple[int, ...], effort: Effort) -> Iterator[NUMAMask]:
    """The masks offered, narrowest first."""
    table = _table(hints, ids, effort)
    return (_expand(index, ids) for index in _by_width(len(ids)) if table[index])


def _table(hints: Hints, ids: tuple[int, ...], effort: Effort) -> list[bool]:
    table = [False] * (1 << len(ids))
    for family in hints.families:
        rows = _family_table(family, ids, effort)
        table = [a or b for a, b in zip(table, rows, strict=True)] if any(table) else rows
    for mask in hints.masks:
        table[_compress(mask, ids)] = True
    return table


def _family_table(family: Family, ids: tuple[int, ...], effort: Effort) -> list[bool]:
    outside = _compress(mask_of(ids) & ~family.universe, ids)
    size = 1 << len(ids)
    table = [not mask & outside for mask in range(size)] if outside else [True] * size
    table[0] = False
    if family.least > 1:
        table = [offered and mask.bit_count() >= family.least for mask, offered in enumerate(table)]
    for threshold in family.thresholds:
        effort.check()
        need = threshold.need
        amounts = _amounts(threshold, ids, effort)
        table = [offered and amount >= need for offered, amount in zip(table, amounts, strict=True)]
    return table


def _amounts(threshold: Threshold, ids: tuple[int, ...], effort: Effort) -> list[int]:
    alone: dict[int, int] = {}
    shared: list[tuple[NUMAMask, int]] = []
    for nodes, amount in threshold.groups:
        if nodes.bit_count() == 1:
            alone[nodes] = alone.get(nodes, 0) + amount
        else:
            shared.append((_compress(nodes, ids), amount))
    table = [0]
    for node in ids:
        amount = alone.get(1 << node, 0)
        table += [total + amount for total in table] if amount else table
    for nodes, amount in shared:
        effort.check()
        table = [total + amount if mask & nodes else total for mask, total in enumerate(table)]
    return table


def _compress(mask: NUMAMask, ids: tuple[int, ...]) -> int:
    if not ids or ids[-1] == len(ids) - 1:
        return mask & ((1 << len(ids)) - 1)
    return sum(1 << position for position, node in enumerate(ids) if mask >> node & 1)


def _expand(index: int, ids: tuple[int, ...]) -> NUMAMask:
    if not ids or ids[-1] == len(ids) - 1:
        return index
    return mask_of(ids[position] for position in members(index))


@lru_cache(maxsize=16)
def _by_width(nodes: int) -> tuple[int, ...]:
    """All masks over ``nodes`` NUMA nodes but the empty one, narrowest first, equals by value (bitmask.go)."""
    return tuple(sorted(range(1, 1 << nodes), key=lambda mask: (mask.bit_count(), mask)))


def _alone(info: NUMAInfo, hints: list[Hints], effort: Effort) -> Collection[NUMAMask]:
    """The single NUMA nodes that every resource prefers and that are equally close."""
    common = reduce(and_, [hint.preferred_nodes() for hint in hints])
    return equally_close([1 << node for node in members(common)], info.distances, effort) if common else ()


def _merge_wide(info: NUMAInfo, hints: list[Hints], certain: bool, strategy: Strategy | None, effort: Effort) -> Hint:
    # Case preferred on one NUMA node, which no kubelet of ``preferred_first`` walks for.
    if info.preferred_first and certain and (alone := _alone(info, hints, effort)):
        return Hint(strategy.fittest(alone) if strategy else min(alone), preferred=True)
    wide = WideMerge(info.nodes, hints, info.distances, effort)
    # Case preferred, as with tables.
    preferred = wide.fittest_preferred() if certain else None
    if preferred is not None:
        if strategy and preferred.bit_count() == 1:
            preferred = strategy.fittest(_alone(info, hints, effort))
        return Hint(preferred, preferred=True)
    # Case not preferred, as with tables.
    masks = [narrowest(hint, effort=effort) for hint in hints]
    widths = [mask.bit_count() for mask in masks if mask is not None]
    mask = wide.fittest_intersection(max(widths))
    return Hint(info.nodes if mask is None else mask, preferred=False)
