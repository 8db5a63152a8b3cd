"""The merge alone agrees with the kubelet's own on hints that no provider of today would give."""

from random import Random
from typing import Any

import pytest
from tests.seeds import SEED
from verify.oracle.build import oracle_binary
from verify.oracle.kubelet_oracle import KubeletOracle
from verify.oracle.merging import Merging

from topomend.model.bitmask import mask_of, members
from topomend.replay.topology import merge
from topomend.replay.topology.hints import Answer, Hints, Offer
from topomend.replay.topology.policies import decide

MERGES = 3000


@pytest.mark.timeout(1200)  # the first one to run may have to compile the oracle
@pytest.mark.parametrize("merging", Merging, ids=lambda merging: merging.value)
def test_any_lists_of_hints_merge_as_in_the_kubelet(merging: Merging) -> None:
    random = Random(SEED)
    with KubeletOracle(oracle_binary()) as oracle, merging.used():
        for _ in range(MERGES):
            given = _merge(random)
            assert _merged(given) == oracle.ask({"merge": given})["merged"], given


def _merge(random: Random) -> dict[str, Any]:
    nodes = random.randint(1, 5)
    distances = [[10 if a == b else random.choice((12, 20, 32)) for b in range(nodes)] for a in range(nodes)]
    lists = [_hints(random, nodes) for _ in range(random.randint(1, 3))]
    return {
        "numaNodes": [{"id": node, "distances": distances[node]} for node in range(nodes)],
        "policy": random.choice(("best-effort", "restricted", "single-numa-node")),
        "options": random.choice(({}, {"prefer-closest-numa-nodes": "true"})),
        "providers": [{f"example.com/{index}": hints} for index, hints in enumerate(lists)],
    }


def _hints(random: Random, nodes: int) -> list[dict[str, Any]] | None:
    if random.randrange(8) == 0:
        return random.choice((None, []))
    masks = random.sample(range(1, 1 << nodes), random.randint(1, min(8, (1 << nodes) - 1)))
    width = random.randint(1, nodes)
    return [{"affinity": list(members(mask)), "preferred": mask.bit_count() == width} for mask in masks]


def _merged(given: dict[str, Any]) -> dict[str, Any]:
    closest = bool(given["options"]) and given["policy"] != "single-numa-node"
    distances = {node["id"]: tuple(node["distances"]) for node in given["numaNodes"]} if closest else None
    info = merge.NUMAInfo(mask_of(node["id"] for node in given["numaNodes"]), distances)
    offers = [_offer(hints) for provider in given["providers"] for hints in provider.values()]
    best, admit = decide(given["policy"], info, offers)
    return {
        "affinity": None if best.mask is None else list(members(best.mask)),
        "preferred": best.preferred,
        "admit": admit,
    }


def _offer(hints: list[dict[str, Any]] | None) -> Offer:
    if hints is None:
        return Answer.NO_PREFERENCE
    if not hints:
        return Answer.IMPOSSIBLE
    preferred = [len(hint["affinity"]) for hint in hints if hint["preferred"]]
    return Hints(masks=tuple(mask_of(hint["affinity"]) for hint in hints), width=preferred[0] if preferred else 0)
