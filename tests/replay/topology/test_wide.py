"""Merges on machines of too many NUMA nodes for tables: answered wherever the kubelet answers within an hour."""

from dataclasses import replace
from math import comb

import pytest
from tests.builders import node_state, pod

from topomend.model.bitmask import mask_of
from topomend.model.nodes.node_state import Device
from topomend.replay.admission import admit
from topomend.replay.errors import KUBELET_WOULD_HANG, KubeletBreaks
from topomend.replay.topology import search
from topomend.replay.topology.hints import Family, Hints, SocketRule, per_node
from topomend.replay.topology.merge import Hint, NUMAInfo, merge, merge_single
from topomend.replay.topology.walk_time import MAX_PERMUTATIONS, NANOSECONDS_A_PERMUTATION, PATIENCE_SECONDS


def any_nodes(nodes: int, width: int) -> Hints:
    """Every mask of at least ``width`` of so many NUMA nodes; those with ``width`` are preferred."""
    return Hints((Family((1 << nodes) - 1, (per_node(dict.fromkeys(range(nodes), 1), width),)),), width=width)


def length(nodes: int, width: int) -> int:
    """How many hints ``any_nodes`` stands for."""
    return sum(comb(nodes, count) for count in range(width, nodes + 1))


@pytest.mark.parametrize("nodes", [8, 12, 16, 17, 18, 24, pytest.param(40, marks=pytest.mark.night)])
@pytest.mark.parametrize("lists", [2, 3, 4])
def test_replay_answers_where_the_kubelet_does_within_an_hour_and_nowhere_else(nodes: int, lists: int) -> None:
    answered = 0
    for width in range(1, nodes + 1):
        offers = [any_nodes(nodes, width)] * lists
        if length(nodes, width) ** lists * NANOSECONDS_A_PERMUTATION <= PATIENCE_SECONDS * 10**9:
            answered += 1
            assert merge(NUMAInfo((1 << nodes) - 1), offers) == Hint((1 << width) - 1, preferred=True)
        else:
            with pytest.raises(KubeletBreaks, match=r"would compare at least .* permutations") as broken:
                merge(NUMAInfo((1 << nodes) - 1), offers)
            assert broken.value.reason == KUBELET_WOULD_HANG
    assert answered > 0
    assert (answered == nodes) == (length(nodes, 1) ** lists <= MAX_PERMUTATIONS)


def test_the_estimate_names_the_permutations_and_the_time() -> None:
    with pytest.raises(KubeletBreaks) as broken:
        merge(NUMAInfo((1 << 18) - 1), [any_nodes(18, 1)] * 2)
    assert broken.value.why == (
        "the kubelet would compare at least 6.9e+10 permutations of NUMA hints, which takes 1.9 hours or longer"
    )
    with pytest.raises(KubeletBreaks, match=r"4\.4e\+12 permutations .* 5 days or longer"):
        merge(NUMAInfo((1 << 14) - 1), [any_nodes(14, 1)] * 3)


def test_one_resource_has_its_answer_on_as_many_numa_nodes_as_the_kubelet_walks_in_an_hour() -> None:
    distances = {
        one: tuple(10 if one == two else 12 if one % 2 == two % 2 else 32 for two in range(35)) for one in range(35)
    }
    info = NUMAInfo((1 << 35) - 1, distances)
    assert merge(info, [any_nodes(35, 16)]) == Hint(mask_of(range(0, 32, 2)), preferred=True)
    with pytest.raises(KubeletBreaks):
        merge(NUMAInfo((1 << 36) - 1), [any_nodes(36, 1)])


def test_single_numa_node_has_its_answer_on_any_number_of_numa_nodes() -> None:
    assert merge_single(NUMAInfo((1 << 64) - 1), [any_nodes(64, 1)] * 4) == Hint(1, preferred=True)


def test_lists_are_short_where_only_the_richest_numa_nodes_have_enough() -> None:
    amounts = {node: 100 if node < 2 else 1 for node in range(18)}
    rich = Hints((Family((1 << 18) - 1, (per_node(amounts, 200),)),), width=2)
    assert merge(NUMAInfo((1 << 18) - 1), [rich, rich]) == Hint(0b11, preferred=True)


def test_a_short_list_beside_a_long_one_is_merged_on_wide_machines() -> None:
    few = Hints((Family(0b1111, (per_node(dict.fromkeys(range(4), 1), 2),)),), width=2)
    info = NUMAInfo((1 << 24) - 1)
    assert merge(info, [few, any_nodes(24, 2)]) == Hint(0b11, preferred=True)
    assert merge(info, [few, any_nodes(24, 3)]) == Hint(0b111, preferred=False)
    assert merge(info, [few, any_nodes(24, 23)]) == Hint(0b1111, preferred=False)


def test_a_mask_that_spans_so_many_sockets_is_found_at_once_where_few_of_its_width_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "MAX_STEPS", 5000)
    sockets = tuple(0b1111 << 4 * socket for socket in range(5))
    every = Family((1 << 20) - 1, (per_node(dict.fromkeys(range(20), 7), 56),))
    for count, expected in ((2, 0xFF), (5, None)):
        offer = Hints((every,), width=1, sockets=SocketRule(sockets, count))
        merged = merge(NUMAInfo((1 << 20) - 1), [offer])
        assert merged.preferred
        assert merged.mask is not None
        assert merged.mask.bit_count() == 8
        assert sum(1 for nodes in sockets if nodes & merged.mask) == count
        assert expected in (None, merged.mask)


@pytest.mark.parametrize("nodes", [12, 17, 18, 24])
def test_a_kubelet_that_looks_among_preferred_hints_first_answers_at_once(nodes: int) -> None:
    """As 1.38.0-beta.0, whose packages admit such a pod on 12 NUMA nodes in 0.2 s, and walk where none is preferred."""
    before, info = NUMAInfo((1 << nodes) - 1), NUMAInfo((1 << nodes) - 1, preferred_first=True)
    offers = [any_nodes(nodes, 1)] * 3
    with pytest.raises(KubeletBreaks):
        merge(before, offers)
    assert merge(info, offers) == Hint(1, preferred=True)
    with pytest.raises(KubeletBreaks):
        merge(info, [*offers[1:], any_nodes(nodes, 2)])


@pytest.mark.parametrize("version", ["v1.36.3", "v1.37.2", "v1.38.0-beta.0", "v1.38.0"])
def test_the_next_release_looks_among_preferred_hints_first(version: str) -> None:
    state = node_state("numa:12 cores:2", policy="restricted", options="max-allowable-numa-nodes=12", version=version)
    devices = tuple(Device(f"v.com/{name}", f"{name}{node}", (node,)) for name in "ab" for node in range(12))
    asking = pod("p", "cpu=2 memory=1Mi v.com/a=1 v.com/b=1")
    verdict, _ = admit(replace(state, devices=devices), asking)
    assert (verdict.reason == KUBELET_WOULD_HANG) == (version < "v1.38")
