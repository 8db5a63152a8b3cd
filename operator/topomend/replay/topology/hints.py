"""Topology hints: a resource has no preference, is impossible, or fits certain masks of NUMA nodes.

The kubelet lists every mask, up to 2^n of them on n NUMA nodes. Here a resource states a rule instead, so the cost does
not grow with the number of masks. A ``Family`` contains every mask that covers enough of each resource. The few masks
without such a rule are listed. Leaves merging to ``merge``. Source: topologymanager/policy.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from topomend.model.bitmask import NUMAMask, mask_of, members


class Answer(Enum):
    """The two answers without masks. The kubelet writes them as a nil list and as an empty list (policy.go)."""

    NO_PREFERENCE = "no preference"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, slots=True)
class Threshold:
    """A minimum for masks: the groups that a mask touches must add up to at least ``need``.

    Each of ``groups`` is a set of NUMA nodes with an amount, for example a device that belongs to two NUMA nodes.
    """

    groups: tuple[tuple[NUMAMask, int], ...]
    need: int

    @property
    def adds_up(self) -> bool:
        """Whether every group is a single NUMA node, so that a mask's amount is the sum over its NUMA nodes."""
        return all(nodes.bit_count() == 1 for nodes, _ in self.groups)

    def gathered(self, mask: NUMAMask) -> int:
        """The sum of the groups that the mask touches."""
        return sum(amount for nodes, amount in self.groups if nodes & mask)

    def gains(self) -> dict[int, int]:
        """The most that each NUMA node adds to a mask."""
        gains: dict[int, int] = {}
        for nodes, amount in self.groups:
            for node in members(nodes):
                gains[node] = gains.get(node, 0) + amount
        return gains

    def met_by(self, mask: NUMAMask) -> bool:
        """Whether the mask reaches ``need``."""
        return self.gathered(mask) >= self.need


def per_node(amounts: Mapping[int, int], need: int) -> Threshold:
    """A threshold over amounts that each belong to one NUMA node."""
    return Threshold(tuple((1 << node, amount) for node, amount in amounts.items() if amount), need)


def touching(nodes: NUMAMask) -> Threshold:
    """A threshold that a mask meets if it contains at least one of ``nodes``."""
    return Threshold(((nodes, 1),), 1)


@dataclass(frozen=True, slots=True)
class Family:
    """Every mask within ``universe`` of at least ``least`` NUMA nodes that meets all thresholds.

    A family is closed upwards: with a mask it contains every wider mask within ``universe``.
    """

    universe: NUMAMask
    thresholds: tuple[Threshold, ...]
    least: int = 1

    def holds(self, mask: NUMAMask) -> bool:
        """Whether the family contains the mask."""
        return (
            not mask & ~self.universe
            and mask.bit_count() >= self.least
            and all(threshold.met_by(mask) for threshold in self.thresholds)
        )

    def is_empty(self) -> bool:
        """Whether the family contains no mask. If any mask belongs to it, the widest one does."""
        return not self.holds(self.universe)


@dataclass(frozen=True, slots=True)
class SocketRule:
    """Option align-by-socket: a mask that spans ``count`` sockets is preferred whatever its width.

    Source: cpumanager/policy_static.go:isHintSocketAligned.
    """

    numa_nodes_of_sockets: tuple[NUMAMask, ...]
    count: int

    def holds(self, mask: NUMAMask) -> bool:
        """Whether the mask touches exactly as many sockets as the request needs."""
        return sum(1 for nodes in self.numa_nodes_of_sockets if nodes & mask) == self.count


@dataclass(frozen=True, slots=True)
class Hints:
    """The masks that a resource fits: those of ``families`` and those of ``masks``.

    A mask is preferred if it has ``width`` NUMA nodes (None: at any width) or obeys ``sockets``.
    """

    families: tuple[Family, ...] = ()
    masks: tuple[NUMAMask, ...] = ()
    width: int | None = None
    sockets: SocketRule | None = None

    def offers(self, mask: NUMAMask) -> bool:
        """Whether the resource fits the mask."""
        return mask in self.masks or any(family.holds(mask) for family in self.families)

    def prefers(self, mask: NUMAMask) -> bool:
        """Whether the mask is preferred, provided that ``offers`` is true of it."""
        return (
            self.width is None
            or mask.bit_count() == self.width
            or (self.sockets is not None and self.sockets.holds(mask))
        )

    def preferred_nodes(self) -> NUMAMask:
        """The NUMA nodes that are offered and preferred as masks of a single NUMA node."""
        universe = 0
        for family in self.families:
            universe |= family.universe
        for mask in self.masks:
            universe |= mask
        return mask_of(node for node in members(universe) if self.offers(1 << node) and self.prefers(1 << node))


Offer: TypeAlias = Answer | Hints


@dataclass(frozen=True, slots=True)
class ResourceOffer:
    """The request for one resource and the provider's answer, for the merge and for the trace.

    ``requested``, ``free`` and ``capacity`` are in CPUs, bytes or devices. ``free`` has pairs of NUMA node and free
    amount, ``capacity`` pairs of NUMA node and the amount that counts for the preferred width. Where devices belong to
    several NUMA nodes, ``free_sets`` and ``capacity_sets`` count each device once, by its NUMA nodes. ``required`` are
    the NUMA nodes of what init containers left for reuse, ``groups`` those whose memory is pinned together, ``pinned``
    those with pinned memory of their own. ``error`` is the provider's, if it offers no NUMA nodes because of the pod
    itself.
    """

    provider: str
    resource: str
    requested: int
    free: tuple[tuple[int, int], ...]
    offer: Offer
    capacity: tuple[tuple[int, int], ...] = ()
    required: NUMAMask = 0
    groups: tuple[NUMAMask, ...] = ()
    pinned: NUMAMask = 0
    free_sets: tuple[tuple[NUMAMask, int], ...] = ()
    capacity_sets: tuple[tuple[NUMAMask, int], ...] = ()
    error: str = ""


def hints_or(answer: Answer, hints: Hints) -> Offer:
    """``hints``, or ``answer`` if they contain no mask."""
    return hints if hints.masks or any(not family.is_empty() for family in hints.families) else answer


def width_rank(width: int, wanted: int) -> tuple[bool, int]:
    """The rank of a mask that is not preferred, by its number of NUMA nodes; the lowest rank wins.

    ``wanted`` is the kubelet's BestNonPreferredAffinityCount: the largest of the lists' narrowest widths. It ranks
    first. Narrower widths follow, widest first; then wider ones, narrowest first. Masks of one width compare by
    distance and value.

    Source: policy.go:compare, whose pairwise comparison amounts to this ranking. Its cases, where ``current`` is the
    width of the best hint so far:

    - 1, current > wanted: only a fitter candidate replaces it, which is a narrower one.
    - 2, current == wanted: only a fitter candidate of the same width replaces it.
    - 3a, current < wanted: a candidate wider than wanted never replaces it.
    - 3b: a candidate of exactly wanted replaces it.
    - 3ca: a candidate wider than current, but narrower than wanted, replaces it.
    - 3cb: a candidate narrower than current never replaces it.
    - 3cc: a candidate as wide as current replaces it if it is fitter.
    """
    return width > wanted, abs(width - wanted)
