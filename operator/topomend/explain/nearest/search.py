"""The search for the nearest admitted one of all values that one amount can have.

Owns the condition that an amount must meet before a replay is worth its time. Offers shrink and preferred widths grow
with the amount, so whole ranges are skipped by bisection.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from topomend.explain.nearest.merge_unit import Unit, is_offer_of
from topomend.explain.nearest.refused_pod import RefusedPod
from topomend.explain.nearest.tracked_amount import NotLinear, Range, TrackedAmount
from topomend.explain.nearest.varied_amount import VariedAmount
from topomend.model.bitmask import NUMAMask
from topomend.model.pods.pod import Pod
from topomend.replay.cpu import static as cpu_static
from topomend.replay.devices import manager as device_manager
from topomend.replay.memory import static as memory_static
from topomend.replay.topology.hints import Answer, Hints
from topomend.replay.topology.merge import list_lengths
from topomend.replay.topology.policy_names import BEST_EFFORT, RESTRICTED
from topomend.replay.topology.walk_time import is_too_long

_NEVER = 1 << 30
"""More NUMA nodes than any request prefers: the width of a request that no NUMA nodes can hold."""


@dataclass
class Search:
    """The search for one amount.

    ``common`` are the masks that suit everything else, by width; None where the policy admits every mask.
    """

    refused: RefusedPod
    amount: VariedAmount
    unit: Unit
    common: Mapping[int, list[NUMAMask]] | None
    _known: dict[int, tuple[int, bool]] = field(default_factory=dict)

    def first_admitted(self, direction: int, end: int) -> int | None:
        """The first number from the asked amount on in ``direction`` (-1, 1), up to ``end``, that is admitted."""
        k = direction
        while (end - k) * direction >= 0:
            possible = self._next_possible(k, direction, end)
            if possible is None:
                return None
            if self._hangs(possible):
                if direction < 0:  # less is offered on more masks yet
                    return None
                k = self._bisect(possible, end + 1, lambda number: not self._hangs(number))
                continue
            if self._divides_cores(possible):
                k = possible + direction
                continue
            admitted, last = self._replayed(possible, direction)
            if admitted:
                return possible
            k = last + direction
        return None

    def _replayed(self, k: int, direction: int) -> tuple[bool, int]:
        """Whether amount ``k`` is admitted, and the furthest amount in ``direction`` for which the same holds."""
        self.refused.effort.check()
        amount, refused = self.amount, self.refused
        if amount.provider != memory_static.PROVIDER:
            return self._is_admitted(k), k
        seen = Range()
        quantity = TrackedAmount.of(amount.at(k), 1000, seen)
        try:
            admitted = refused.is_admitted_with(amount, quantity)
        except NotLinear:
            return refused.is_admitted_with(amount, amount.at(k) * 1000), k
        if direction < 0:
            last = amount.first if seen.least is None else -((amount.asked - seen.least) // amount.step)
            return admitted, min(k, max(amount.first, last))
        last = amount.last if seen.most is None else (seen.most - amount.asked) // amount.step
        return admitted, max(k, min(amount.last, last))

    def _is_admitted(self, k: int) -> bool:
        """Whether amount ``k`` of CPUs or devices is admitted.

        In scope pod the merge sees what the pod needs of them in all, and the other managers see the affinity alone. So
        what they refuse, they refuse whichever container has so much more or less.
        """
        need = self.unit.need(self._pod(k), self.amount)
        if need in self.unit.refused_needs:
            return False
        admission = self.refused.admission_with(self.amount, self.amount.at(k) * 1000)
        if admission is None or admission.rejection is None:
            return admission is not None
        if need is not None and (admission.failure is None or admission.failure.provider != self.amount.provider):
            self.unit.refused_needs.add(need)
        return False

    def _pod(self, k: int) -> Pod:
        return self.amount.put_into(self.refused.pod, self.amount.at(k) * 1000)

    def _divides_cores(self, k: int) -> bool:
        cpu = self.unit.providers.cpu
        if cpu is None or self.amount.provider != cpu_static.PROVIDER:
            return False
        pod = self._pod(k)
        return cpu.divides_cores(pod, pod.containers[self.amount.position])

    @cached_property
    def _other_lengths(self) -> int:
        """How many permutations the other resources alone make; 0 where no amount can make too many."""
        if self.refused.policy not in {RESTRICTED, BEST_EFFORT}:
            return 0
        offers = self.unit.offers(self.refused.pod)
        numa = self.refused.kubelet.numa
        if not is_too_long(((1 << numa.nodes.bit_count()) - 1) ** len(offers)):
            return 0
        others = [offer.offer for offer in offers if not is_offer_of(offer, self.amount)]
        hints = [offer for offer in others if isinstance(offer, Hints)]
        return prod(list_lengths(numa, hints, self.refused.effort))

    def _hangs(self, k: int) -> bool:
        """Whether the kubelet would merge for too long."""
        if not self._other_lengths:
            return False
        own = [
            offer.offer
            for offer in self.unit.offers(self._pod(k), self.amount.provider)
            if is_offer_of(offer, self.amount)
        ]
        hints = [offer for offer in own if isinstance(offer, Hints)]
        lengths = list_lengths(self.refused.kubelet.numa, hints, self.refused.effort)
        return is_too_long(self._other_lengths * prod(lengths))

    def _next_possible(self, k: int, direction: int, end: int) -> int | None:
        """The first number from ``k`` on that meets the necessary condition.

        The numbers fall into ranges of one preferred width, which grows with the amount. Within a range less is
        possible wherever more is.
        """
        while (end - k) * direction >= 0:
            width, possible = self._condition(k)
            if possible:
                return k
            if direction > 0:
                if width == _NEVER:
                    return None
                k = self._first_of_width(k, end + 1, min(other for other in self._widths if other > width))
                continue
            if width not in self._widths:
                narrower = max((other for other in self._widths if other < width), default=0)
                k = self._first_of_width(end, k, narrower + 1) - 1
                continue
            least = self._first_of_width(end, k, width)
            if self._condition(least)[1]:
                return self._bisect(least, k, lambda number: not self._condition(number)[1]) - 1
            k = least - 1
        return None

    @cached_property
    def _widths(self) -> frozenset[int]:
        """The preferred widths with which an amount could be merged, and ``_NEVER``."""
        numa, cpu = self.refused.kubelet.numa, self.unit.providers.cpu
        by_socket = self.amount.provider == cpu_static.PROVIDER and cpu is not None and cpu.aligns_by_socket
        every = self.common is None or by_socket
        return frozenset({*(range(numa.nodes.bit_count() + 1) if every else self.common or ()), _NEVER})

    def _first_of_width(self, low: int, high: int, width: int) -> int:
        """The first number that prefers at least so many NUMA nodes."""
        return self._bisect(low, high, lambda number: self._condition(number)[0] >= width)

    @staticmethod
    def _bisect(low: int, high: int, holds: Callable[[int], bool]) -> int:
        """The first number from ``low`` on, ``high`` at most, for which ``holds``; it holds for all after the first."""
        while low < high:
            middle = (low + high) // 2
            if holds(middle):
                high = middle
            else:
                low = middle + 1
        return low

    def _condition(self, k: int) -> tuple[int, bool]:
        """The width that amount ``k`` prefers, and whether the unit could be merged and given its resources then."""
        known = self._known.get(k)
        if known is None:
            known = self._known[k] = self._worked_out(k)
        return known

    def _worked_out(self, k: int) -> tuple[int, bool]:
        amount, refused, pod = self.amount, self.refused, self._pod(k)
        if not self._has_enough(pod):
            return _NEVER, False
        offers = self.unit.offers(pod, amount.provider)
        own = next((offer.offer for offer in offers if is_offer_of(offer, amount)), None)
        if own is None:
            return _NEVER, True
        if own is Answer.IMPOSSIBLE:
            return _NEVER, self.common is None
        if own is Answer.NO_PREFERENCE:
            is_memory = amount.provider == memory_static.PROVIDER
            return _NEVER, not (is_memory and refused.by_container and self.unit.memory_is_sure)
        return self._of_hints(own)

    def _of_hints(self, own: Hints) -> tuple[int, bool]:
        if self.common is None:
            return 0, True
        width = own.width or 0
        if own.sockets is None and own.width is not None:
            masks = self.common.get(width, [])
        else:
            masks = [mask for masks in self.common.values() for mask in masks]
        return width, any(own.prefers(mask) and own.offers(mask) for mask in masks)

    def _has_enough(self, pod: Pod) -> bool:
        """Whether enough is free in all for the pod, and for the container; its memory is left to its hints."""
        if pod.resources is not None:
            return True
        if self.refused.fresh.managers()[self.amount.provider].lacks(pod):
            return False
        container, providers = pod.containers[self.amount.position], self.unit.providers
        if self.amount.provider == device_manager.PROVIDER:
            return providers.devices.has_enough(container)
        return (
            self.amount.provider != cpu_static.PROVIDER
            or providers.cpu is None
            or providers.cpu.has_enough(pod, container)
        )
