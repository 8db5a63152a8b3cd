"""How blocks of memory change the state of NUMA nodes, and which groups of NUMA nodes that leaves possible."""

import pytest

from topomend.model.nodes.node_state import MemoryBlock, NUMANodeMemory
from topomend.replay.errors import KUBELET_WOULD_CRASH, KubeletBreaks
from topomend.replay.memory.machine_state import MachineState

BOTH = 0b11


@pytest.fixture
def state() -> MachineState:
    """Three NUMA nodes of 10 bytes; the first two have huge pages too."""
    huge = {"memory": 10, "hugepages-2Mi": 4}
    return MachineState({0: huge, 1: huge, 2: {"memory": 10}})


def reserved(state: MachineState) -> list[dict[str, int]]:
    return [dict(node.reserved) for node in state.saved()]


def test_a_block_of_two_numa_nodes_fills_the_lowest_first(state: MachineState) -> None:
    state.reserve(BOTH, "memory", 13)
    assert reserved(state) == [{"memory": 10}, {"memory": 3}, {}]
    assert state.free("memory") == {0: 0, 1: 7, 2: 10}
    assert state.free_within(BOTH, "memory") == 7


def test_a_block_counts_on_a_numa_node_that_gives_it_nothing(state: MachineState) -> None:
    state.reserve(BOTH, "memory", 2)
    assert [node.assignments for node in state.saved()] == [1, 1, 0]
    assert state.untouched() == 0b100


def test_a_released_block_is_taken_back_from_the_lowest_first(state: MachineState) -> None:
    """So what two blocks of a group took is not always given back where it came from, but all of it is in the end."""
    state.reserve(BOTH, "memory", 8)
    state.reserve(BOTH, "memory", 5)
    state.release(MemoryBlock("memory", BOTH, 5))
    assert reserved(state) == [{"memory": 5}, {"memory": 3}, {}]
    state.release(MemoryBlock("memory", BOTH, 8))
    assert reserved(state) == [{}, {}, {}]


def test_a_group_ends_with_its_last_block(state: MachineState) -> None:
    state.reserve(BOTH, "memory", 8)
    state.reserve(BOTH, "memory", 5)
    state.release(MemoryBlock("memory", BOTH, 5))
    assert state.groups() == {BOTH}
    state.release(MemoryBlock("memory", BOTH, 8))
    assert state.groups() == set()
    assert state.suits(0b01, single=True)


@pytest.mark.parametrize(
    ("mask", "suits"),
    [(0b001, False), (0b100, True), (BOTH, True), (0b110, False), (0b101, False)],
    ids=["one of the group", "one beside it", "the group", "one of it and another", "another one of it and another"],
)
def test_a_group_takes_blocks_of_the_whole_group_alone(mask: int, suits: bool, state: MachineState) -> None:
    state.reserve(BOTH, "memory", 1)
    assert state.suits(mask, single=True) is suits


def test_a_numa_node_with_blocks_of_its_own_joins_no_group(state: MachineState) -> None:
    state.reserve(0b001, "memory", 1)
    assert state.suits(0b001, single=True)
    assert not state.suits(BOTH, single=True)
    assert state.suits(0b110, single=True)
    assert state.groups() == set()


def test_the_last_check_of_an_allocation_lets_a_single_numa_node_of_a_group_pass(state: MachineState) -> None:
    """isAffinityViolatingNUMAAllocations does not look at masks of one NUMA node."""
    state.reserve(BOTH, "memory", 1)
    assert state.suits(0b001, single=False)


@pytest.mark.parametrize("mask", [0b100, 0b111])
def test_a_resource_that_a_numa_node_lacks_crashes_who_reads_it(mask: int, state: MachineState) -> None:
    with pytest.raises(KubeletBreaks, match="NUMA node 2 has no hugepages-2Mi") as broken:
        state.free_within(mask, "hugepages-2Mi")
    assert broken.value.reason == KUBELET_WOULD_CRASH
    with pytest.raises(KubeletBreaks):
        state.free("hugepages-2Mi")
    assert state.allocatable("hugepages-2Mi") == {0: 4, 1: 4, 2: 0}


def test_a_saved_state_is_the_same_once_it_is_loaded(state: MachineState) -> None:
    state.reserve(BOTH, "memory", 13)
    state.reserve(0b100, "memory", 2)
    again = MachineState({node: {"memory": 10, "hugepages-2Mi": 4} for node in range(3)})
    again.load(state.saved())
    assert again.saved() == state.saved()
    assert again.free("memory") == {0: 0, 1: 7, 2: 8}
    assert again.groups() == {BOTH}


def test_what_the_machine_lacks_is_skipped_where_a_state_is_loaded(state: MachineState) -> None:
    state.load([NUMANodeMemory(7, 1, 1 << 7, {"memory": 1}), NUMANodeMemory(0, 1, 1, {"hugepages-1Gi": 5})])
    assert [node.numa_node for node in state.saved()] == [0, 1, 2]
    assert reserved(state) == [{}, {}, {}]
