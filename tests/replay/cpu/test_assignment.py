"""Which CPUs are taken, in the order the kubelet takes them."""

from dataclasses import replace

import pytest

from topomend.model.bitmask import format_id_list, mask_of, members, parse_id_list
from topomend.model.machine import Core, Machine, NUMANode
from topomend.model.shapes.shape import parse_shape
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


# The next release: machines, free CPUs and answers of the kubelet's own tests, cpumanager/cpu_assignment_test.go and
# policy_static_test.go of v1.38.0-beta.0 (Apache-2.0)

NEXT = Strategy(bounded=True, own_sizes=True, over_cores=True, whole_caches_first=True, apart=True, whole_groups=True)

FOUR_OF_20 = "sockets:2 numa:2 cores:10 threads:2"
"""NUMA node n has CPUs 10n to 10n+9 and their siblings, 40 higher."""

EIGHT_OF_32 = "sockets:2 numa:4 cores:16 threads:2"
"""NUMA node n has CPUs 16n to 16n+15 and their siblings, 128 higher. Four are on each socket."""


def cores_of(*threads: str, numa_nodes: int = 1) -> Machine:
    """A machine of these cores, as many of them on each NUMA node; a socket for each NUMA node."""
    per_node = len(threads) // numa_nodes
    cores = [Core(parse_id_list(each), number // per_node, number // per_node) for number, each in enumerate(threads)]
    return Machine(tuple(NUMANode(node, 1 << 30) for node in range(numa_nodes)), tuple(cores))


PERFORMANCE_AND_EFFICIENCY = cores_of(
    *(f"{cpu}-{cpu + 1}" for cpu in range(0, 16, 2)), *(str(cpu) for cpu in range(16, 28))
)
"""Eight cores of two threads, then twelve of one."""


def test_a_core_counts_as_free_by_its_own_threads() -> None:
    """Test "allocate 2 cpus from non-uniform topology with 1 cpu reserved"."""
    assert taken(PERFORMANCE_AND_EFFICIENCY, "1-27", 2, NEXT) == "16-17"
    assert taken(PERFORMANCE_AND_EFFICIENCY, "1-27", 2) == "0-1"


def test_free_cores_of_few_threads_are_taken_first() -> None:
    """Test "single socket, 7 HT cores free (1 partially consumed) + 4 ST cores free"."""
    order = [taken(PERFORMANCE_AND_EFFICIENCY, "1-15,24-27", count, NEXT) for count in (1, 4, 6, 8)]
    assert order == ["24", "24-27", "2-3,24-27", "2-5,24-27"]


def test_a_socket_counts_as_free_by_its_own_cpus() -> None:
    """Test "dual socket, non-uniform CPUs per socket, HT, 1 socket free": sockets of 32 and 64 CPUs, 48 on average."""
    chips = [(numa, socket, cpu) for numa, socket, cpus in _MIXED_CHIPS for cpu in cpus]
    cores = tuple(Core(mask_of([cpu, cpu + 48]), socket, numa) for numa, socket, cpu in chips)
    mixed = Machine(tuple(NUMANode(numa, 1 << 30) for numa in range(4)), cores)
    assert taken(mixed, "4-47,52-95", 64, NEXT) == "16-47,64-95"
    half_used = "0-39,48-87"
    assert taken(mixed, half_used, 64, NEXT) == "0-31,48-79"
    assert taken(mixed, half_used, 64) == "16-47,64-95"


_MIXED_CHIPS = ((0, 0, range(8)), (1, 0, range(8, 16)), (2, 1, range(16, 32)), (3, 1, range(32, 48)))
"""NUMA node, socket and the first threads of its cores."""


@pytest.mark.parametrize(
    ("name", "machine", "free", "expected"),
    [
        ("contiguous sibling CPU IDs", cores_of("0-1", "2-3", "4-5", "6-7"), "0-7", "0 2 4 6 1 3 5 7"),
        ("interleaved sibling CPU IDs", "cores:4 threads:2", "0-7", "0 1 2 3 4 5 6 7"),
        (
            "multiple sockets",
            cores_of("0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15", numa_nodes=2),
            "0-15",
            "0 2 4 6 1 3 5 7 8 10 12 14 9 11 13 15",
        ),
        ("partially allocated cores", cores_of("0-1", "2-3", "4-5", "6-7"), "0,2-4,6-7", "0 4 2 6 3 7"),
        ("more than two CPUs per core", cores_of("0-2", "3-5", "6-8"), "0-8", "0 3 6 1 4 7 2 5 8"),
    ],
)
def test_threads_are_spread_over_all_cores_of_a_socket(
    name: str, machine: Machine | str, free: str, expected: str
) -> None:
    """TestCPUAccumulatorFreeCPUsSpreadRoundRobin."""
    acc = assignment._Accumulator(topology(machine), parse_id_list(free), 0)
    assert " ".join(map(str, acc.single_cpus(replace(NEXT, spread=True)))) == expected, name


@pytest.mark.parametrize(
    ("count", "group", "hint", "by_socket", "numa_nodes"),
    [
        (30, 1, 4, False, [0, 1, 2, 3]),
        (30, 1, 0, False, [0, 1]),
        (10, 1, 4, False, [0, 1, 2, 3]),
        (30, 1, 8, False, [0, 1]),
        (30, 1, 1, False, [0, 1]),
        (20, 2, 4, False, [0, 1, 2, 3]),
        (20, 2, 0, False, [0]),
        (40, 1, 4, True, [0, 1, 2, 3]),
    ],
)
def test_cpus_are_spread_over_as_many_numa_nodes_as_the_hint_has(
    *, count: int, group: int, hint: int, by_socket: bool, numa_nodes: list[int]
) -> None:
    """TestTakeByTopologyNUMADistributedWithMinNUMAHint. A hint of more NUMA nodes than there are does not count."""
    machine = topology(FOUR_OF_20)
    cpus = take(machine, machine.cpus, count, replace(NEXT, group=group, by_socket=by_socket, least_nodes=hint))
    assert isinstance(cpus, int)
    assert list(members(machine.numa_nodes_with(cpus))) == numa_nodes


def test_cpus_are_spread_over_the_hint_s_own_numa_nodes() -> None:
    """The same test, "NUMA subset - hint=3 with CPUs only from NUMA 1,2,3 should not use NUMA 0"."""
    machine = topology(FOUR_OF_20)
    cpus = take(machine, parse_id_list("10-39,50-79"), 15, replace(NEXT, group=1, least_nodes=3))
    assert isinstance(cpus, int)
    assert list(members(machine.numa_nodes_with(cpus))) == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "free", "count", "expected"),
    [
        ("fragmented per-NUMA availability", "0-4,10-14,20-24,30-34", 14, "0-3,10-13,20-23,30-31"),
        (
            "partial cores reserved",
            "1-9,11-19,21-29,31-39,40-79",
            70,
            "1-9,11-19,21-29,31-38,41-49,51-59,61-69,71-78",
        ),
        (
            "preexisting partial cores",
            "3-9,13-19,23-29,33-39,40-79",
            62,
            "3-9,13-19,23-29,33-41,43-51,53-61,63-69,73-79",
        ),
    ],
)
def test_a_remainder_goes_where_whole_cores_are_free(name: str, free: str, count: int, expected: str) -> None:
    """TestPolicyWithDistributeCPUsAcrossNUMAAndFullPCPUsOnly. Older kubelets count the single threads as well."""
    assert taken(FOUR_OF_20, free, count, replace(NEXT, group=2)) == expected, name


def test_the_next_release_hands_out_whole_cores_and_then_takes_any_cpus() -> None:
    """The machine on which older kubelets search for ever: five cores are free, and four halves."""
    free = "0-7,9-10,12-13,15-16,18-19,21-22"
    cpus = parse_id_list(taken("sockets:4 cores:3 threads:2", free, 14, replace(NEXT, group=2)))
    assert cpus.bit_count() == 14
    assert not cpus & ~parse_id_list(free)


@pytest.mark.parametrize(
    ("free", "count", "expected"),
    [
        ("0-62,64-126,128-190,192-254", 120, "0-14,16-30,32-46,48-62,128-142,144-158,160-174,176-190"),
        ("0-255", 128, "0-63,128-191"),
    ],
)
def test_the_chosen_combination_stays_as_it_was(free: str, count: int, expected: str) -> None:
    """TestTakeByTopologyNUMADistributed, "distribute 120 CPUs across 4 NUMA nodes within same Socket 0"."""
    assert taken(EIGHT_OF_32, free, count, replace(NEXT, group=1, by_socket=True)) == expected
    overwritten = replace(NEXT, group=1, by_socket=True, apart=False)
    assert taken(EIGHT_OF_32, free, count, overwritten) != expected


def test_whole_caches_are_taken_before_a_part_of_any() -> None:
    """Caches of CPUs 0-3 and 4-5, three on average. Two CPUs fill the second; an older kubelet takes the used first."""
    cores = tuple(Core(1 << cpu, 0, 0, l3_cache) for cpu, l3_cache in enumerate((0, 0, 0, 0, 1, 1)))
    machine = Machine((NUMANode(0, 1 << 30),), cores)
    assert taken(machine, "2-5", 2, Strategy(uncore_cache=True)) == "2-3"
    assert taken(machine, "2-5", 2, replace(NEXT, uncore_cache=True)) == "4-5"
