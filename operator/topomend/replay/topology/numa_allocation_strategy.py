"""Option numa-allocation-strategy: which of several affinities that fit equally well wins, by how full their nodes are.

The fullest wins with most-allocated, the emptiest with least-allocated. It is a proposal for 1.38 (KEP-6007, "NUMA
Utilization-Aware Topology Manager Policy Options", and the open change of topologymanager/policy.go); no released
kubelet has it. Owns the scores and their comparison. Leaves to ``merge`` which affinities fit equally well: those of
one width, with prefer-closest-numa-nodes of one distance as well. The rules:

- Each resource scores a hint by the share of its NUMA nodes that is allocated, in percent, from 1 to 100. A merged hint
  has the average score of the hints that it consists of, rounded down. A resource without a hint has no score.
- Of two merged hints the one with the better score wins (policy.go:compareHintScores). Equal scores, and hints without
  any score, leave it to the lower-numbered bits, as without the option.

The text leaves open what is counted. Replay counts what is free to be allocated at all: CPUs and memory without what is
reserved for the system, and healthy devices; a device near several NUMA nodes counts for each mask that touches it.
Memory and each size of huge pages score by their own bytes. What init containers left for reuse counts as allocated.

An affinity that is not preferred consists of hints with different NUMA nodes, so its score depends on which of its
permutations the kubelet walks first. Replay walks them as the kubelet does, up to ``MAX_WALK``; beyond that the
lower-numbered bits win. A provider's resources are walked in the order of a Go map, which is random; replay takes their
order by name.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from operator import and_
from typing import NamedTuple, TypeAlias

from topomend.model.bitmask import NUMAMask, members
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.options import InvalidOption, quoted
from topomend.replay.topology.prefer_most_allocated_numa_node import utilization

OPTION = "numa-allocation-strategy"

NONE, MOST_ALLOCATED, LEAST_ALLOCATED = "none", "most-allocated", "least-allocated"

VALUES = (LEAST_ALLOCATED, MOST_ALLOCATED, NONE)

MAX_WALK = 1 << 16
"""The most permutations that replay walks: two resources that fit anywhere on 8 NUMA nodes, three on 5."""

UNSCORED = 0

Score: TypeAlias = Callable[[NUMAMask], int]
"""The score of one resource's hint with this mask."""


class _Scored(NamedTuple):
    """A hint with its score."""

    mask: NUMAMask
    score: int


def read_value(text: str) -> str:
    """The option's value; an empty one is ``none``. Raises InvalidOption (policy_options.go:NewPolicyOptions)."""
    if text and text not in VALUES:
        values = " ".join(map(quoted, VALUES))
        raise InvalidOption(f"bad value for option {quoted(OPTION)}: {quoted(text)} must be one of [{values}]")
    return text or NONE


def score(allocated: int, allocatable: int) -> int:
    """The score of a hint on whose NUMA nodes so much is allocated; UNSCORED where there is nothing to allocate."""
    return max(1, utilization(allocated, allocatable)) if allocatable > 0 else UNSCORED


@dataclass(frozen=True, slots=True)
class Strategy:
    """The option's ``value``, which is not ``none``, during one merge: ``scores`` has one of each list of hints."""

    value: str
    scores: Sequence[Score]
    effort: Effort = UNLIMITED

    def fittest(self, masks: Iterable[NUMAMask]) -> NUMAMask:
        """The winner among masks that every resource offers as they are: at least one, and all fit equally well."""
        ordered = sorted(masks, key=_place_in_walk)
        return self._winner(_Scored(mask, _average([score(mask) for score in self.scores])) for mask in ordered)

    def fittest_of_walk(self, masks: Collection[NUMAMask], lists: Sequence[Collection[NUMAMask]]) -> NUMAMask:
        """The winner among ``masks``, which all fit equally well and are intersections of one mask from each list."""
        if len(masks) == 1 or prod(map(len, lists)) > MAX_WALK:
            return min(masks)
        scored = [
            [_Scored(mask, score(mask)) for mask in sorted(offered, key=_place_in_walk)]
            for offered, score in zip(lists, self.scores, strict=True)
        ]
        merged = ((reduce(and_, [hint.mask for hint in permutation]), permutation) for permutation in product(*scored))
        return self._winner(
            _Scored(mask, _average([hint.score for hint in permutation]))
            for mask, permutation in merged
            if mask in masks
        )

    def _winner(self, hints: Iterable[_Scored]) -> NUMAMask:
        return reduce(self._fitter, hints).mask

    def _fitter(self, current: _Scored, candidate: _Scored) -> _Scored:
        """The better of two hints that fit equally well (policy.go:NewHintMerger, compareHintScores)."""
        self.effort.check()
        if candidate.mask == current.mask:
            return current
        if UNSCORED in {current.score, candidate.score} or current.score == candidate.score:
            return min(current, candidate)
        return (max if self.value == MOST_ALLOCATED else min)(current, candidate, key=lambda hint: hint.score)


def _average(scores: Sequence[int]) -> int:
    """The score of a merged hint (policy.go:aggregateHintScores)."""
    known = [score for score in scores if score != UNSCORED]
    return sum(known) // len(known) if known else UNSCORED


def _place_in_walk(mask: NUMAMask) -> tuple[int, list[int]]:
    """Where the kubelet lists a mask: the narrowest first, equals by their NUMA nodes (bitmask.go:IterateBitMasks)."""
    return mask.bit_count(), list(members(mask))
