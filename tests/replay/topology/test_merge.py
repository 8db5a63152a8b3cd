"""The merge without the walk over all permutations gives what that walk gives.

A failing random test shows its seed in its name; TOPOMEND_SEED runs it again.
"""

import random
from collections.abc import Sequence
from itertools import combinations, product
from operator import floordiv, mod

import pytest
from tests.seeds import SEED
from verify.oracle.merging import Merging

from topomend.model.bitmask import mask_of, members
from topomend.replay.effort import UNLIMITED
from topomend.replay.topology.distances import total_distance
from topomend.replay.topology.hints import Answer, Family, Hints, Offer, SocketRule, Threshold, hints_or, per_node
from topomend.replay.topology.merge import (
    Hint,
    NUMAInfo,
    every_preferred_mask,
    first_masks,
    least_width,
    merge,
    merge_single,
    narrowest,
    preferred_masks,
)

Listed = list[tuple[int | None, bool]]


def listed(offer: Offer, nodes: int) -> Listed:
    """The list of hints as the kubelet writes it (policy.go:filterProvidersHints)."""
    if not isinstance(offer, Hints):
        return [(None, offer is Answer.NO_PREFERENCE)]
    ids = list(members(nodes))
    masks = [mask_of(chosen) for size in range(1, len(ids) + 1) for chosen in combinations(ids, size)]
    return [(mask, offer.prefers(mask)) for mask in masks if offer.offers(mask)]


def better(info: NUMAInfo, wanted: int, current: Hint, candidate: Hint) -> Hint:
    """One step of the kubelet's walk (policy.go:compare)."""
    if current.preferred != candidate.preferred:
        return candidate if candidate.preferred else current
    assert current.mask is not None
    assert candidate.mask is not None
    now, then = current.mask.bit_count(), candidate.mask.bit_count()
    if not current.preferred and now <= wanted:
        if now == wanted and then != wanted:
            return current
        if now < wanted and then > wanted:
            return current
        if now < wanted and then != now:
            return candidate if then > now else current

    def fit(mask: int) -> tuple[int, int, int]:
        return mask.bit_count(), total_distance(mask, info.distances, UNLIMITED) if info.distances else 0, mask

    return min(current, candidate, key=lambda hint: fit(hint.mask or 0))


def walked(info: NUMAInfo, lists: Sequence[Listed]) -> Hint:
    """The merge over all permutations (policy.go:HintMerger.Merge)."""
    narrow = [
        min(masks, key=lambda mask: (mask.bit_count(), mask)).bit_count()
        for masks in ([mask for mask, _ in hints if mask is not None] for hints in lists)
        if masks
    ]
    wanted = max(narrow, default=0)
    best: Hint | None = None
    for permutation in product(*lists):
        masks = [mask for mask, _ in permutation if mask is not None]
        common = info.nodes
        for mask in masks:
            common &= mask
        hint = Hint(common, all(preferred for _, preferred in permutation) and len(set(masks)) <= 1)
        if common:
            best = hint if best is None else better(info, wanted, best, hint)
    return best or Hint(info.nodes, preferred=False)


def walked_single(info: NUMAInfo, lists: Sequence[Listed]) -> Hint:
    """The merge of single-numa-node over all permutations (policy_single_numa_node.go:Merge)."""
    filtered: list[Listed] = [
        [(mask, preferred) for mask, preferred in hints if preferred and (mask is None or mask.bit_count() == 1)]
        for hints in lists
    ]
    best = walked(info, filtered)
    return Hint(None, best.preferred) if best.mask == info.nodes else best


class Cases:
    """Random machines and answers, small enough to walk."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def info(self, most: int) -> NUMAInfo:
        pick = self.random
        count = pick.randint(1, most)
        ids = list(range(count)) if pick.random() < 0.7 else sorted(pick.sample(range(12), count))
        distances = None
        if pick.random() < 0.4:
            socket = pick.choice((0, 0, 2, 3, 4))
            place = pick.choice((floordiv, mod))
            rows = {
                one: {
                    two: (12 if place(one, socket) == place(two, socket) else 32)
                    if socket
                    else pick.choice((11, 12, 20))
                    for two in range(12)
                }
                for one in range(12)
            }
            lopsided = pick.random() < 0.3
            distances = {
                one: tuple(
                    10 if one == two else rows[one][two] if lopsided else rows[min(one, two)][max(one, two)]
                    for two in range(12)
                )
                for one in ids
            }
        return NUMAInfo(mask_of(ids), distances)

    def offer(self, nodes: int) -> Offer:
        pick = self.random
        if pick.random() < 0.12:
            return Answer.NO_PREFERENCE
        if pick.random() < 0.05:
            return Answer.IMPOSSIBLE
        ids = list(members(nodes))
        universe = mask_of(pick.sample(ids, pick.randint(1, len(ids)))) if pick.random() < 0.3 else nodes
        thresholds = [self.threshold(universe) for _ in range(pick.choice((1, 1, 1, 2)))]
        families = (Family(universe, tuple(thresholds), pick.choice((1, 1, 2))),) if pick.random() < 0.9 else ()
        masks = tuple(mask_of(pick.sample(ids, pick.randint(1, len(ids)))) for _ in range(pick.choice((0, 0, 1, 3))))
        sockets = SocketRule((universe & 0b10101, universe & 0b101010), pick.randint(1, 2))
        width = pick.choice((None, 1, 1, 2, 2, 3))
        return hints_or(Answer.IMPOSSIBLE, Hints(families, masks, width, sockets if pick.random() < 0.15 else None))

    def threshold(self, universe: int) -> Threshold:
        pick = self.random
        amounts = {node: pick.choice((0, 1, 1, 2, 2, 2, 3)) for node in members(universe)}
        alone = per_node(amounts, pick.randint(1, 5))
        if pick.random() < 0.7:
            return alone
        ids = list(members(universe))
        shared = tuple((mask_of(pick.sample(ids, min(2, len(ids)))), pick.randint(1, 2)) for _ in range(2))
        return Threshold(alone.groups + shared, alone.need)


@pytest.mark.parametrize("seed", [SEED])
@pytest.mark.parametrize("merging", Merging, ids=lambda merging: merging.value)
def test_the_merge_is_what_walking_all_permutations_gives(merging: Merging, seed: int) -> None:
    cases = Cases(seed)
    for _ in range(1500):
        info = cases.info(4)
        offers = [cases.offer(info.nodes) for _ in range(cases.random.randint(0, 3))]
        lists = [listed(offer, info.nodes) for offer in offers]
        with merging.used():
            assert merge(info, offers) == walked(info, lists), (info, offers)
        assert merge_single(info, offers) == walked_single(info, lists), (info, offers)


@pytest.mark.parametrize("seed", [SEED])
def test_tables_and_searches_agree_where_walking_takes_too_long(seed: int) -> None:
    cases = Cases(seed + 1)
    for _ in range(400):
        info = cases.info(7)
        offers = [cases.offer(info.nodes) for _ in range(cases.random.randint(1, 4))]
        tabled = merge(info, offers)
        with Merging.SEARCHED.used():
            assert merge(info, offers) == tabled, (info, offers)


@pytest.mark.parametrize("seed", [SEED])
def test_narrowest_first_and_preferred_masks_are_those_of_the_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = Cases(seed + 2)
    for _ in range(1000):
        info = cases.info(6)
        offer = cases.offer(info.nodes)
        if not isinstance(offer, Hints):
            continue
        masks = sorted(
            (mask for mask, _ in listed(offer, info.nodes) if mask), key=lambda mask: (mask.bit_count(), mask)
        )
        assert first_masks(info, offer, 5) == masks[:5]
        preferred = [mask for mask in masks if offer.prefers(mask)]
        single = [mask for mask in preferred if mask.bit_count() == 1]
        known = preferred_masks(info, offer, 5, widest=info.nodes.bit_count())
        assert known.masks == tuple(single + preferred[len(single) : max(5, len(single))]), (info, offer)
        assert known.widths == tuple(sorted({mask.bit_count() for mask in preferred})), (info, offer)
        some = set(map(mask_of, combinations(members(info.nodes), min(known.widths, default=0))))
        assert not known.anywhere or some == set(preferred), (info, offer)
        assert preferred_masks(info, offer, 5, widest=1).masks == tuple(single), (info, offer)
        assert every_preferred_mask(info, offer) == set(preferred)
        monkeypatch.setattr("topomend.replay.topology.merge.LISTED_NODES", 0)
        assert first_masks(info, offer, 5) == masks[:5]
        monkeypatch.undo()
        including = cases.random.randrange(1 << 12) & info.nodes
        wider = [mask for mask in masks if not including & ~mask]
        assert narrowest(offer, including) == (wider[0] if wider else None)
        for family in offer.families:
            family_masks = [mask for mask in masks if family.holds(mask)]
            assert least_width(family) == (family_masks[0].bit_count() if family_masks else None)


def hints(*masks: tuple[int, bool]) -> Hints:
    """Hints as plain data, all preferred ones of one width."""
    width = next((mask.bit_count() for mask, preferred in masks if preferred), 0)
    made = Hints(masks=tuple(mask for mask, _ in masks), width=width)
    assert all(made.prefers(mask) == preferred for mask, preferred in masks)
    return made


TWO, THREE, FOUR = NUMAInfo(0b11), NUMAInfo(0b111), NUMAInfo(0b1111)

FAR_PAIR = [[10 if one == two else 250 if {one, two} == {0, 1} else 11 for two in range(5)] for one in range(5)]
"""Distances under which NUMA nodes 0 and 1 are farther from each other than any three others taken together."""

EVEN = per_node(dict.fromkeys(range(4), 1), 2)
"""What any two NUMA nodes hold."""

KNOWN = [
    ("the same preferred mask stays preferred", TWO, [hints((1, True)), hints((1, True))], (1, True)),
    ("two preferred masks that differ are not preferred", TWO, [hints((3, True)), hints((1, True))], (1, False)),
    ("an impossible resource leaves the others' mask", TWO, [hints((2, True)), Answer.IMPOSSIBLE], (2, False)),
    ("a resource without preference changes nothing", TWO, [hints((2, True)), Answer.NO_PREFERENCE], (2, True)),
    ("no preference at all is every node, preferred", TWO, [Answer.NO_PREFERENCE], (3, True)),
    ("nothing asked is every node, preferred", TWO, [], (3, True)),
    ("no common node is every node, not preferred", TWO, [hints((1, True)), hints((2, True))], (3, False)),
    ("the middle pair is smaller than the outer one", FOUR, [hints((0b1001, True), (0b0110, True))], (0b0110, True)),
    (
        "a non-preferred mask as wide as the widest need wins",
        THREE,
        [hints((0b011, True), (0b111, False)), hints((1, True), (2, True), (3, False), (7, False))],
        (0b011, False),
    ),
    (
        "narrower than the widest need wins over wider, however far",
        NUMAInfo(0b111111),
        [hints((0b000111, False), (0b111100, False)), hints((0b000001, False), (0b111100, False))],
        (0b000001, False),
    ),
    (
        "a narrower mask wins over a closer one",
        NUMAInfo(0b11111, {node: tuple(FAR_PAIR[node]) for node in range(5)}),
        [Hints(masks=(0b00011, 0b11100))],
        (0b00011, True),
    ),
    (
        "distances count both ways",
        NUMAInfo(0b111, {0: (10, 20, 12), 1: (20, 10, 40), 2: (20, 40, 10)}),
        [Hints((Family(0b111, (EVEN,)),), width=1)],
        (0b101, False),
    ),
    (
        "distances that differ there and back count both ways",
        NUMAInfo(0b111, {0: (10, 20, 30), 1: (20, 10, 40), 2: (4, 40, 10)}),
        [Hints((Family(0b111, (EVEN,)),), width=1)],
        (0b101, False),
    ),
    (
        "alike NUMA nodes of two sockets do not stand for each other",
        FOUR,
        [Hints((Family(0b1111, (EVEN,)),), width=3, sockets=SocketRule((0b0011, 0b1100), 2))],
        (0b0101, True),
    ),
    (
        "a NUMA node of two sockets touches both",
        FOUR,
        [Hints((Family(0b1111, (EVEN,)),), width=1, sockets=SocketRule((0b0001, 0b0001, 0b1110), 2))],
        (0b0011, False),
    ),
    (
        "of masks that are as close the smallest wins, of whatever socket",
        NUMAInfo(0b1111, {0: (10, 32, 12, 32), 1: (32, 10, 32, 12), 2: (12, 32, 10, 32), 3: (32, 12, 32, 10)}),
        [Hints((Family(0b1111, (per_node({1: 1, 2: 1}, 1),)),), width=1)],
        (0b0010, True),
    ),
    (
        "a device of two NUMA nodes counts once, on whichever side of an intersection",
        NUMAInfo(0b11111),
        [
            Hints((Family(0b11111, (Threshold(((0b10001, 1), (0b01000, 1)), 2),)),), width=1),
            Hints(masks=(0b10000, 0b01111), width=5),
        ],
        (0b01001, False),
    ),
    (
        "of the sockets' masks the closest wins",
        NUMAInfo(0b1111, {0: (10, 32, 20, 32), 1: (32, 10, 32, 12), 2: (20, 32, 10, 32), 3: (32, 12, 32, 10)}),
        [Hints((Family(0b1111, (EVEN,)),), width=1, sockets=SocketRule((0b0001, 0b0010, 0b0100, 0b1000), 2))],
        (0b1010, True),
    ),
]


@pytest.mark.parametrize(("info", "offers", "expected"), [case[1:] for case in KNOWN], ids=[case[0] for case in KNOWN])
@pytest.mark.parametrize("merging", Merging, ids=lambda merging: merging.value)
def test_known_merges(merging: Merging, info: NUMAInfo, offers: list[Offer], expected: tuple[int, bool]) -> None:
    with merging.used():
        assert merge(info, offers) == Hint(*expected)
    assert walked(info, [listed(offer, info.nodes) for offer in offers]) == Hint(*expected)


KNOWN_SINGLE = [
    ("the lowest common node", TWO, [hints((1, True), (2, True))], (1, True)),
    ("only masks of one node count", TWO, [hints((3, True))], (None, False)),
    ("an impossible resource", TWO, [hints((1, True)), Answer.IMPOSSIBLE], (None, False)),
    ("no preference at all", TWO, [Answer.NO_PREFERENCE], (None, True)),
    ("the only node of the machine", NUMAInfo(1), [hints((1, True))], (None, True)),
]


@pytest.mark.parametrize(
    ("info", "offers", "expected"), [case[1:] for case in KNOWN_SINGLE], ids=[case[0] for case in KNOWN_SINGLE]
)
def test_known_merges_of_single_numa_node(
    info: NUMAInfo, offers: list[Offer], expected: tuple[int | None, bool]
) -> None:
    assert merge_single(info, offers) == Hint(*expected)


def test_of_equal_widths_the_closest_nodes_win() -> None:
    distances = {0: (10, 21, 12, 21), 1: (21, 10, 21, 12), 2: (12, 21, 10, 21), 3: (21, 12, 21, 10)}
    pairs = hints(*((mask_of(pair), True) for pair in combinations(range(4), 2)))
    assert merge(NUMAInfo(0b1111), [pairs]) == Hint(0b0011, preferred=True)
    assert merge(NUMAInfo(0b1111, distances), [pairs]) == Hint(0b0101, preferred=True)
