"""What a resource answers the Topology Manager: no preference, impossible, or the masks it fits.

The kubelet lists every mask, 2^n of them on n NUMA nodes. Here a resource says which rule its masks obey, so that a
machine with many NUMA nodes costs no more than its rules: a ``Family`` holds every mask that gathers enough of
everything, and the few masks that obey no such rule are named one by one. How hints merge is left to ``merge``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from topomend.model.bitmask import NUMAMask, mask_of, members


class Answer(Enum):
    """The two answers without masks, which the kubelet writes as a nil and as an empty list (policy.go)."""

    NO_PREFERENCE = "no preference"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, slots=True)
class Threshold:
    """A mask needs ``need`` of something; each group gives its amount to the masks that touch its NUMA nodes."""

    groups: tuple[tuple[NUMAMask, int], ...]
    need: int

    @property
    def adds_up(self) -> bool:
        """Whether each amount stands on one NUMA node, so that a mask gathers what its nodes do."""
        return all(nodes.bit_count() == 1 for nodes, _ in self.groups)

    def gathered(self, mask: NUMAMask) -> int:
        """What the mask gathers."""
        return sum(amount for nodes, amount in self.groups if nodes & mask)

    def gains(self) -> dict[int, int]:
        """The most that each NUMA node adds to a mask."""
        gains: dict[int, int] = {}
        for nodes, amount in self.groups:
            for node in members(nodes):
                gains[node] = gains.get(node, 0) + amount
        return gains

    def met_by(self, mask: NUMAMask) -> bool:
        """Whether the mask gathers enough."""
        return self.gathered(mask) >= self.need


def per_node(amounts: Mapping[int, int], need: int) -> Threshold:
    """A threshold over amounts that each stand on one NUMA node."""
    return Threshold(tuple((1 << node, amount) for node, amount in amounts.items() if amount), need)


def touching(nodes: NUMAMask) -> Threshold:
    """The demand that a mask holds one of ``nodes``."""
    return Threshold(((nodes, 1),), 1)


@dataclass(frozen=True, slots=True)
class Family:
    """Every mask within ``universe`` of at least ``least`` NUMA nodes that meets all thresholds.

    With a mask every wider one within the universe belongs to it too.
    """

    universe: NUMAMask
    thresholds: tuple[Threshold, ...]
    least: int = 1

    def holds(self, mask: NUMAMask) -> bool:
        """Whether the mask is one of the family."""
        return (
            not mask & ~self.universe
            and mask.bit_count() >= self.least
            and all(threshold.met_by(mask) for threshold in self.thresholds)
        )

    def is_empty(self) -> bool:
        """Whether no mask belongs: the widest one would."""
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
    """The masks a resource fits: those of ``families`` and those of ``masks``.

    A mask is preferred when it has ``width`` NUMA nodes (None: always), or obeys ``sockets``.
    """

    families: tuple[Family, ...] = ()
    masks: tuple[NUMAMask, ...] = ()
    width: int | None = None
    sockets: SocketRule | None = None

    def offers(self, mask: NUMAMask) -> bool:
        """Whether the resource fits the mask."""
        return mask in self.masks or any(family.holds(mask) for family in self.families)

    def prefers(self, mask: NUMAMask) -> bool:
        """Whether a mask that is offered is preferred."""
        return (
            self.width is None
            or mask.bit_count() == self.width
            or (self.sockets is not None and self.sockets.holds(mask))
        )

    def preferred_nodes(self) -> NUMAMask:
        """The NUMA nodes that are offered and preferred each on its own."""
        universe = 0
        for family in self.families:
            universe |= family.universe
        for mask in self.masks:
            universe |= mask
        return mask_of(node for node in members(universe) if self.offers(1 << node) and self.prefers(1 << node))


Offer: TypeAlias = Answer | Hints


@dataclass(frozen=True, slots=True)
class ResourceOffer:
    """One resource's answer and what it was asked, for the merge and for the trace.

    ``requested`` and ``free`` are in CPUs, bytes or devices; ``free`` maps NUMA nodes to what is left on each.
    """

    provider: str
    resource: str
    requested: int
    free: tuple[tuple[int, int], ...]
    offer: Offer


def hints_or(answer: Answer, hints: Hints) -> Offer:
    """``hints``, or ``answer`` where they hold no mask at all."""
    return hints if hints.masks or any(not family.is_empty() for family in hints.families) else answer


def width_rank(width: int, wanted: int) -> tuple[bool, int]:
    """How a mask that is not preferred ranks by its number of NUMA nodes, lowest first.

    ``wanted`` is the kubelet's BestNonPreferredAffinityCount: the widest of the lists' narrowest masks. It ranks first,
    then narrower widths, widest first, then wider ones, narrowest first. Masks of one width compare by fitness.

    Source: policy.go:compare, which walks towards that order. Its cases, for a hint with ``current`` NUMA nodes:

    - 1, current > wanted: only a fitter candidate replaces it, which is a narrower one.
    - 2, current == wanted: only a fitter candidate of the same width replaces it.
    - 3a, current < wanted: a candidate wider than wanted never replaces it.
    - 3b: a candidate of exactly wanted replaces it.
    - 3ca: a candidate wider than current, but narrower than wanted, replaces it.
    - 3cb: a candidate narrower than current never replaces it.
    - 3cc: a candidate as wide as current replaces it if it is fitter.
    """
    return width > wanted, abs(width - wanted)
