"""Corrected reservations are to the byte what is kept, on NUMA nodes that have it, and near to the given ones."""

from random import Random

import pytest
from tests.seeds import SEED

from topomend.model.nodes.kubelet import MemoryReservation
from topomend.model.shapes.shape import parse_shape
from topomend.replay.memory.reservation import corrected

MEBIBYTE = 1 << 20
MACHINE = parse_shape("numa:2 cores:4 memory:4Gi,2Gi cpuless:8Gi hugepages-2Mi:256").machine()


def memory(*sizes: tuple[int, int]) -> tuple[MemoryReservation, ...]:
    return tuple(MemoryReservation(numa_node, "memory", size) for numa_node, size in sizes)


def test_what_is_right_stays() -> None:
    given = memory((0, 60 * MEBIBYTE), (1, 40 * MEBIBYTE))
    assert corrected(100 * MEBIBYTE, given, MACHINE) == given


def test_the_numa_node_that_reserves_most_takes_the_difference() -> None:
    given = memory((0, 10 * MEBIBYTE), (1, 80 * MEBIBYTE))
    assert corrected(100 * MEBIBYTE + 1, given, MACHINE) == memory((0, 10 * MEBIBYTE), (1, 90 * MEBIBYTE + 1))


def test_huge_pages_unknown_numa_nodes_and_doubles_are_put_right() -> None:
    given = (*memory((0, 40), (0, 60), (7, 5)), MemoryReservation(1, "hugepages-2Mi", 2 * MEBIBYTE))
    assert corrected(100, given, MACHINE) == memory((0, 100))


def test_without_reservations_each_numa_node_with_cpus_has_the_same_share_of_its_memory() -> None:
    assert corrected(100 * MEBIBYTE, (), MACHINE) == memory((0, 70 * MEBIBYTE), (1, 30 * MEBIBYTE))


@pytest.mark.parametrize("kept", [0, -1, 6 << 30], ids=["nothing", "less", "more than the CPUs' NUMA nodes have"])
def test_what_cannot_be_reserved_is_not(kept: int) -> None:
    assert corrected(kept, (), MACHINE) == ()


@pytest.mark.parametrize("lacking", [0, 1, MEBIBYTE + 1])
def test_nearly_all_that_the_machine_has_can_be_reserved(lacking: int) -> None:
    found = corrected((5 << 30) - lacking, (), MACHINE)
    assert sum(each.size for each in found) == (5 << 30) - lacking


def test_random_corrections_add_up_and_have_room() -> None:
    random = Random(f"{SEED} reservations")
    room = {0: 3584 * MEBIBYTE, 1: 1536 * MEBIBYTE, 2: 8 << 30}
    for _ in range(500):
        kept = random.randint(1, 5 << 30)
        given = memory(*((random.randint(0, 4), random.randint(0, 4 << 30)) for _ in range(random.randint(0, 4))))
        found = corrected(kept, given, MACHINE)
        assert sum(each.size for each in found) == kept, (SEED, kept, given)
        assert all(0 < each.size <= room[each.numa_node] for each in found), (SEED, kept, given)
        assert corrected(kept, found, MACHINE) == found, (SEED, kept, given)
