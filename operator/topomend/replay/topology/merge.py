"""Merging the hints of all resources into one, the way the kubelet's HintMerger ends up.

The kubelet walks the product of all lists, (2^n - 1)^resources permutations, and keeps the best. The outcome does not
depend on the order of that walk (policy.go:compare is a ranking), so it is found here without it:

- A merged hint is preferred only if every resource gave the same preferred mask. So take the masks that all resources
  offer and prefer, and of these the fittest.
- Otherwise the merged hint is the fittest intersection of one mask from each list. To find the intersections, count for
  every mask the choices whose intersection contains it, and undo the overlap (Moebius inversion).

Up to ``TABLED_NODES`` NUMA nodes the masks are tabled, beyond that ``wide`` finds them by their rules. Both say so
where the kubelet would walk for more than an hour (``walk_time``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TypeAlias

from topomend.model.bitmask import NUMAMask, lowest, mask_of, members
from topomend.replay.topology.distances import Distances, closest
from topomend.replay.topology.hints import Answer, Family, Hints, Offer, Threshold, width_rank
from topomend.replay.topology.search import masks_by_width, narrowest_of
from topomend.replay.topology.walk_time import check_walk
from topomend.replay.topology.wide import WideMerge

TABLED_NODES = 17
"""The most NUMA nodes for which all masks are tabled: the most on which a kubelet merges two full lists in an hour."""


TieBreak: TypeAlias = Callable[[NUMAMask], int]
"""Chooses one of some NUMA nodes."""


@dataclass(frozen=True, slots=True)
class Hint:
    """An affinity and whether it is preferred; mask None is no affinity (topology_manager.go:TopologyHint)."""

    mask: NUMAMask | None
    preferred: bool


@dataclass(frozen=True)
class NUMAInfo:
    """The machine as the merge sees it: every NUMA node, and distances where option prefer-closest-numa-nodes is on."""

    nodes: NUMAMask
    distances: Distances | None = None


def merge(info: NUMAInfo, offers: Sequence[Offer]) -> Hint:
    """The merged hint of best-effort and restricted (policy.go:HintMerger.Merge)."""
    hints = [offer for offer in offers if isinstance(offer, Hints)]
    certain = Answer.IMPOSSIBLE not in offers
    if not hints:
        return Hint(info.nodes, certain)
    if info.nodes.bit_count() > TABLED_NODES:
        return _merge_wide(info, hints, certain)
    return _merge_tabled(info, hints, certain)


def merge_single(info: NUMAInfo, offers: Sequence[Offer], tie_break: TieBreak = lowest) -> Hint:
    """The merged hint of single-numa-node, which looks at preferred masks of one NUMA node only.

    ``tie_break`` says which of several.
    Source: policy_single_numa_node.go:filterSingleNumaHints, Merge.
    """
    if Answer.IMPOSSIBLE in offers:
        return Hint(None, preferred=False)
    common = info.nodes
    masked = False
    for offer in offers:
        if isinstance(offer, Hints):
            common &= offer.preferred_nodes()
            masked = True
    if not masked:
        return Hint(None, preferred=True)
    if not common:
        return Hint(None, preferred=False)
    mask = 1 << tie_break(common)
    return Hint(None if mask == info.nodes else mask, preferred=True)


def narrowest(hints: Hints, including: NUMAMask = 0) -> NUMAMask | None:
    """The narrowest mask offered that contains ``including``; among equals the smallest. None where there is none."""
    masks = [mask for mask in hints.masks if not including & ~mask]
    for family in hints.families:
        mask = narrowest_of(family, including)
        if mask is not None:
            masks.append(mask)
    return min(masks, key=lambda mask: (mask.bit_count(), mask), default=None)


def least_width(family: Family) -> int | None:
    """How many NUMA nodes the narrowest mask of the family has; None for an empty family."""
    if all(threshold.adds_up for threshold in family.thresholds):
        width = max([family.least, *(_least_nodes(threshold, family.universe) for threshold in family.thresholds)])
        if len(family.thresholds) <= 1:
            return width if width <= family.universe.bit_count() else None
    mask = narrowest(Hints((family,)))
    return None if mask is None else mask.bit_count()


def first_masks(hints: Hints, limit: int) -> list[NUMAMask]:
    """The narrowest masks offered, at most ``limit`` of them, narrowest first."""
    masks = set(hints.masks)
    for family in hints.families:
        masks.update(islice(masks_by_width(family), limit))
    return sorted(masks, key=lambda mask: (mask.bit_count(), mask))[:limit]


def _least_nodes(threshold: Threshold, universe: NUMAMask) -> int:
    """How many of the largest nodes reach the need, each of whose groups is one node; too many where none do."""
    amounts: dict[NUMAMask, int] = {}
    for node, amount in threshold.groups:
        if node & universe:
            amounts[node] = amounts.get(node, 0) + amount
    left = threshold.need
    for count, amount in enumerate(sorted(amounts.values(), reverse=True)):
        if left <= 0:
            return count
        left -= amount
    return len(amounts) if left <= 0 else universe.bit_count() + 1


# Tables: a mask of the machine's NUMA nodes, which may have gaps, becomes an index by counting the nodes in order.
# That keeps both width and order of masks.


def _merge_tabled(info: NUMAInfo, hints: list[Hints], certain: bool) -> Hint:
    ids = tuple(members(info.nodes))
    tables = [_table(hint, ids) for hint in hints]
    check_walk(map(sum, tables))
    if certain:
        preferred = _common_preferred(info, hints, tables, ids)
        if preferred is not None:
            return Hint(preferred, preferred=True)
    order = _by_width(len(ids))
    wanted = max(next(mask for mask in order if table[mask]).bit_count() for table in tables)
    reachable = _intersections(tables)
    by_width: dict[int, list[NUMAMask]] = {}
    for mask in order:
        if mask and reachable[mask]:
            by_width.setdefault(mask.bit_count(), []).append(_expand(mask, ids))
    if not by_width:
        return Hint(info.nodes, preferred=False)
    best = min(by_width, key=lambda width: width_rank(width, wanted))
    return Hint(closest(by_width[best], info.distances), preferred=False)


def _common_preferred(
    info: NUMAInfo, hints: list[Hints], tables: list[list[bool]], ids: tuple[int, ...]
) -> NUMAMask | None:
    best: list[NUMAMask] = []
    for index in _by_width(len(ids)):
        if not all(table[index] for table in tables):
            continue
        mask = _expand(index, ids)
        if best and mask.bit_count() > best[0].bit_count():
            break
        if all(hint.prefers(mask) for hint in hints):
            best.append(mask)
            if info.distances is None:
                break
    return closest(best, info.distances) if best else None


def _intersections(tables: list[list[bool]]) -> list[int]:
    """For every mask, how many choices of one mask from each table intersect in exactly it."""
    counts = [1] * len(tables[0])
    for table in tables:
        supersets = [int(offered) for offered in table]
        _over_halves(supersets, 1)
        counts = [count * more for count, more in zip(counts, supersets, strict=True)]
    _over_halves(counts, -1)
    return counts


def _over_halves(counts: list[int], sign: int) -> None:
    """Add to (or take from) every mask's count those of its supersets, one NUMA node after the other."""
    step = 1
    while step < len(counts):
        for start in range(0, len(counts), 2 * step):
            middle, end = start + step, start + 2 * step
            upper = counts[middle:end]
            lower = counts[start:middle]
            counts[start:middle] = [a + sign * b for a, b in zip(lower, upper, strict=True)]
        step *= 2


def _table(hints: Hints, ids: tuple[int, ...]) -> list[bool]:
    table = [False] * (1 << len(ids))
    for family in hints.families:
        rows = _family_table(family, ids)
        table = [a or b for a, b in zip(table, rows, strict=True)] if any(table) else rows
    for mask in hints.masks:
        table[_compress(mask, ids)] = True
    return table


def _family_table(family: Family, ids: tuple[int, ...]) -> list[bool]:
    outside = _compress(mask_of(ids) & ~family.universe, ids)
    size = 1 << len(ids)
    table = [not mask & outside for mask in range(size)] if outside else [True] * size
    table[0] = False
    if family.least > 1:
        table = [held and mask.bit_count() >= family.least for mask, held in enumerate(table)]
    for threshold in family.thresholds:
        need = threshold.need
        amounts = _amounts(threshold, ids)
        table = [held and amount >= need for held, amount in zip(table, amounts, strict=True)]
    return table


def _amounts(threshold: Threshold, ids: tuple[int, ...]) -> list[int]:
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
    """All masks over so many NUMA nodes but the empty one, narrowest first, equals by value (bitmask.go)."""
    return tuple(sorted(range(1, 1 << nodes), key=lambda mask: (mask.bit_count(), mask)))


def _merge_wide(info: NUMAInfo, hints: list[Hints], certain: bool) -> Hint:
    wide = WideMerge(info.nodes, hints, info.distances)
    preferred = wide.fittest_preferred() if certain else None
    if preferred is not None:
        return Hint(preferred, preferred=True)
    widths = [mask.bit_count() for mask in map(narrowest, hints) if mask is not None]
    mask = wide.fittest_intersection(max(widths))
    return Hint(info.nodes if mask is None else mask, preferred=False)
