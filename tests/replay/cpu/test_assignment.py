"""Which CPUs are taken, in the order the kubelet takes them."""

import pytest

from topomend.model.bitmask import format_id_list, mask_of, parse_id_list
from topomend.model.machine import Core, Machine, NUMANode
from topomend.model.shape import parse_shape
from topomend.replay.cpu import assignment
from topomend.replay.cpu.assignment import AssignmentError, Strategy, take
from topomend.replay.cpu.topology import CPUTopology, discover
from topomend.replay.errors import KubeletBreaks


def topology(machine: Machine | str) -> CPUTopology:
    topology = discover(parse_shape(machine).machine() if isinstance(machine, str) else machine)
    assert isinstance(topology, CPUTopology)
    return topology


def taken(machine: Machine | str, free: str, count: int, strategy: Strategy | None = None) -> str:
    cpus = take(topology(machine), parse_id_list(free), count, strategy or Strategy())
    return cpus.text if isinstance(cpus, AssignmentError) else format_id_list(cpus)


SMT = "sockets:2 cores:4 threads:2"
"""Cores 0,8 to 3,11 on socket 0, 4,12 to 7,15 on socket 1."""

FOUR = "sockets:2 numa:2 cores:2"
"""NUMA nodes 0-1 and 2-3 on socket 0, 4-5 and 6-7 on socket 1."""


@pytest.mark.parametrize(
    ("name", "machine", "free", "count", "expected"),
    [
        ("nothing is wanted", SMT, "0-15", 0, ""),
        ("more than is free", SMT, "0-3", 5, "not enough cpus available to satisfy request: requested=5, available=4"),
        ("a whole socket before anything else", SMT, "1-3,8-15", 8, "1-3,8-12"),
        ("a whole socket that is free", SMT, "1-15", 8, "4-7,12-15"),
        ("whole cores of the socket used most", SMT, "1-15", 4, "1-2,9-10"),
        ("the odd CPU from the core used most", SMT, "0-2,4-15", 1, "11"),
        ("whole cores first, then a thread", SMT, "1-15", 3, "1,8-9"),
        ("a free NUMA node inside a socket", FOUR, "1-7", 2, "2-3"),
        ("the NUMA node used most", FOUR, "1-7", 1, "1"),
        ("a whole socket and a NUMA node", FOUR, "0-7", 6, "0-5"),
    ],
)
def test_packed(name: str, machine: str, free: str, count: int, expected: str) -> None:
    assert taken(machine, free, count) == expected, name


def test_a_core_counts_as_free_by_the_average_of_the_machine() -> None:
    """One core of two threads and three of one average one thread: the half-used core is taken whole, busy CPU too."""
    cores = (Core(mask_of([0, 1]), 0, 0), *(Core(1 << cpu, 0, 0) for cpu in (2, 3, 4)))
    machine = Machine((NUMANode(0, 1 << 30),), cores)
    assert topology(machine).cpus_per_core == 1
    assert taken(machine, "1,4", 2) == "0-1"


def test_spread_takes_one_thread_of_each_core() -> None:
    assert taken(SMT, "0-15", 4, Strategy(spread=True)) == "0-3"
    assert taken(SMT, "0-15", 4) == "0-1,8-9"


L3 = "cores:8 threads:2 l3:2"
"""Caches of cores 0-3 with 8-11, and 4-7 with 12-15."""


@pytest.mark.parametrize(
    ("name", "free", "count", "expected"),
    [
        ("a whole cache", "1-15", 8, "4-7,12-15"),
        ("the first cache that holds it", "0-15", 6, "0-2,8-10"),
        ("an odd number drops the last thread", "0-15", 3, "0-1,8"),
        ("a half-used core spoils a cache", "0,2-15", 6, "4-6,12-14"),
        ("whole caches and the rest from another", "0-15", 10, "0-4,8-12"),
    ],
)
def test_uncore_caches(name: str, free: str, count: int, expected: str) -> None:
    assert taken(L3, free, count, Strategy(uncore_cache=True)) == expected, name


def spread_over_numa(group: int = 1) -> Strategy:
    return Strategy(group=group)


@pytest.mark.parametrize(
    ("name", "machine", "free", "count", "group", "expected"),
    [
        ("one NUMA node where it suffices", "sockets:2 cores:4", "0-7", 4, 1, "0-3"),
        ("evenly where it does not", "sockets:2 cores:4", "0-7", 6, 1, "0-2,4-6"),
        ("the remainder to the first", "sockets:2 cores:4", "0-7", 5, 1, "0-2,4-5"),
        ("packed where it cannot be even", "sockets:2 cores:4", "0-4", 5, 1, "0-4"),
        ("whole cores", SMT, "0-15", 12, 2, "0-2,4-6,8-10,12-14"),
        ("packed where cores do not divide it", SMT, "0-15", 9, 2, "0-4,8-11"),
    ],
)
def test_distributed(*, name: str, machine: str, free: str, count: int, group: int, expected: str) -> None:
    assert taken(machine, free, count, spread_over_numa(group)) == expected, name


def test_the_chosen_combination_is_overwritten_by_a_later_one() -> None:
    """Four of five or more NUMA nodes: the kubelet keeps a slice whose last entry later combinations write."""
    assert taken("sockets:8 cores:4", "1-31", 16, spread_over_numa()) == "4-15,28-31"


def test_a_search_over_too_many_numa_nodes_is_said_to_hang() -> None:
    with pytest.raises(KubeletBreaks, match="combinations"):
        taken("sockets:32 cores:4", "0-127", 66, spread_over_numa())


def test_a_remainder_that_groups_cannot_use_up_is_said_to_hang() -> None:
    """Six CPUs are left over for two NUMA nodes of three free ones each: in pairs these give four, and then nothing."""
    with pytest.raises(KubeletBreaks, match="for ever"):
        taken("sockets:4 cores:3 threads:2", "0-7,9-10,12-13,15-16,18-19,21-22", 14, spread_over_numa(2))


@pytest.mark.parametrize(
    ("number", "rounded"), [(1 / 16, 0.063), (3 / 16, 0.188), (5 / 16, 0.313), (13 / 16, 0.813), (0.0624, 0.062)]
)
def test_halves_round_away_from_zero_as_in_go(number: float, rounded: float) -> None:
    """Means over 16 NUMA nodes end in halves of a thousandth. Python's ``round`` would take the even neighbour."""
    assert assignment._round(number) == rounded


def test_the_deviation_of_16_numa_nodes_is_that_of_go() -> None:
    assert assignment._standard_deviation([1] + [0] * 15) == 0.242
    assert assignment._standard_deviation([5] + [0] * 15) == 1.21
