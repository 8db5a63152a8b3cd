"""Which masks a rule about NUMA nodes stands for, which of them are preferred, and how the others rank."""

from dataclasses import replace

import pytest

from topomend.replay.topology.hints import (
    Answer,
    Family,
    Hints,
    SocketRule,
    Threshold,
    hints_or,
    per_node,
    touching,
    width_rank,
)

FOUR_CPUS_EACH = {0: 4, 1: 4, 2: 4}

SHARED_DEVICE = Threshold(((0b011, 1), (0b100, 1)), 2)
"""Two devices: one that belongs to NUMA nodes 0 and 1, one on NUMA node 2."""


def masks(family: Family) -> list[int]:
    return [mask for mask in range(1, 16) if family.holds(mask)]


def test_a_mask_needs_as_much_as_its_numa_nodes_have_together() -> None:
    assert masks(Family(0b111, (per_node(FOUR_CPUS_EACH, 4),))) == [1, 2, 3, 4, 5, 6, 7]
    assert masks(Family(0b111, (per_node(FOUR_CPUS_EACH, 5),))) == [3, 5, 6, 7]
    assert masks(Family(0b111, (per_node(FOUR_CPUS_EACH, 13),))) == []


def test_a_device_of_two_numa_nodes_counts_once() -> None:
    assert masks(Family(0b111, (SHARED_DEVICE,))) == [0b101, 0b110, 0b111]
    assert SHARED_DEVICE.gathered(0b011) == 1
    assert SHARED_DEVICE.gains() == {0: 1, 1: 1, 2: 1}
    assert (SHARED_DEVICE.adds_up, per_node(FOUR_CPUS_EACH, 1).adds_up) == (False, True)


def test_a_mask_must_meet_every_threshold() -> None:
    family = Family(0b111, (per_node(FOUR_CPUS_EACH, 4), touching(0b110)))
    assert masks(family) == [2, 3, 4, 5, 6, 7]


def test_a_family_has_no_mask_beyond_its_universe_and_none_of_too_few_numa_nodes() -> None:
    assert masks(Family(0b011, (per_node(FOUR_CPUS_EACH, 1),), least=2)) == [3]


def test_a_family_is_empty_where_not_even_all_its_numa_nodes_suffice() -> None:
    assert not Family(0b111, (per_node(FOUR_CPUS_EACH, 12),)).is_empty()
    assert Family(0b111, (per_node(FOUR_CPUS_EACH, 13),)).is_empty()
    assert Family(0b001, (per_node(FOUR_CPUS_EACH, 1),), least=2).is_empty()


def test_hints_without_a_mask_are_the_answer_that_the_manager_gives_then() -> None:
    empty = Family(0b111, (per_node(FOUR_CPUS_EACH, 13),))
    assert hints_or(Answer.IMPOSSIBLE, Hints((empty,))) is Answer.IMPOSSIBLE
    assert hints_or(Answer.NO_PREFERENCE, Hints()) is Answer.NO_PREFERENCE
    listed = Hints((empty,), masks=(0b10,))
    assert hints_or(Answer.IMPOSSIBLE, listed) is listed


def test_masks_are_offered_by_a_family_or_by_name() -> None:
    hints = Hints((Family(0b011, (per_node(FOUR_CPUS_EACH, 8),)),), masks=(0b100,), width=1)
    assert [mask for mask in range(1, 8) if hints.offers(mask)] == [0b011, 0b100]
    assert hints.preferred_nodes() == 0b100
    assert replace(hints, width=2).preferred_nodes() == 0


@pytest.mark.parametrize(
    ("width", "preferred"), [(None, [1, 2, 3, 4, 5, 6, 7]), (1, [1, 2, 4]), (2, [3, 5, 6]), (4, [])]
)
def test_masks_of_one_width_are_preferred_or_of_any(width: int | None, preferred: list[int]) -> None:
    assert [mask for mask in range(1, 8) if Hints(width=width).prefers(mask)] == preferred


def test_a_mask_of_as_many_sockets_as_needed_is_preferred_at_any_width() -> None:
    """Two sockets of two NUMA nodes."""
    hints = Hints(width=1, sockets=SocketRule((0b0011, 0b1100), 1))
    assert [mask for mask in range(1, 16) if hints.prefers(mask)] == [1, 2, 3, 4, 8, 12]


def test_of_masks_that_are_not_preferred_the_wanted_width_ranks_first_then_narrower_then_wider_ones() -> None:
    assert sorted(range(1, 8), key=lambda width: width_rank(width, 3)) == [3, 2, 1, 4, 5, 6, 7]
