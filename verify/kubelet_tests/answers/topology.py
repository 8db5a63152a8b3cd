"""Answers for pkg/kubelet/cm/topologymanager: how a policy merges the hints of all providers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from verify.kubelet_tests.answers.objects import read_hint, written_hint

from topomend.model.bitmask import NUMAMask, mask_of
from topomend.replay.gates import Gates
from topomend.replay.topology.hints import Answer, Hints, Offer
from topomend.replay.topology.merge import Hint, NUMAInfo
from topomend.replay.topology.policies import decide


@dataclass(frozen=True, slots=True)
class ListedHints(Hints):
    """The masks that a test lists, with those that it prefers: no manager has such a rule."""

    preferred: frozenset[NUMAMask] = frozenset()

    def prefers(self, mask: NUMAMask) -> bool:
        return mask in self.preferred


def merge(arguments: dict[str, Any], _: Gates) -> dict[str, Any]:
    """A policy's merged hint and whether it admits it (Merge)."""
    info, closest = arguments["info"], arguments["options"]["PreferClosestNUMA"]
    distances = {int(node): tuple(row) for node, row in info["NUMADistances"].items()} if closest else None
    offers = [offer for provider in arguments["providers"] for offer in _offers(provider)]
    hint, admitted = decide(arguments["policy"], NUMAInfo(mask_of(info["Nodes"]), distances), offers)
    return {"hint": written_hint(hint), "admitted": admitted}


def _offers(provider: dict[str, Any]) -> Iterator[Offer]:
    """The offers of one provider; one without resources has no preference (filterProvidersHints)."""
    if not provider:
        yield Answer.NO_PREFERENCE
    for hints in provider.values():
        yield Answer.NO_PREFERENCE if hints is None else _offer([read_hint(hint) for hint in hints])


def _offer(hints: list[Hint]) -> Offer:
    if not hints:
        return Answer.IMPOSSIBLE
    if all(hint.mask is None for hint in hints):
        return Answer.NO_PREFERENCE if any(hint.preferred for hint in hints) else Answer.IMPOSSIBLE
    masks = [hint.mask for hint in hints if hint.mask is not None]
    if len(set(masks)) < len(hints):
        raise ValueError("replay knows no list with a mask twice, or with and without an affinity")
    return ListedHints(masks=tuple(masks), preferred=frozenset(hint.mask or 0 for hint in hints if hint.preferred))


ANSWERERS = {f"{policy}.Merge": merge for policy in ("bestEffortPolicy", "restrictedPolicy", "singleNumaNodePolicy")}
