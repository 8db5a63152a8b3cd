"""Memory by NUMA node: what is held, reserved and free is what replay of the Memory Manager counts."""

from dataclasses import replace

from tests.builders import node_state, pod, pod_allocation

from topomend.model.nodes.node_state import MemoryBlock, NodeState
from topomend.picture.holders import holders_of
from topomend.picture.machine.memory import MemoryOnNode, memory_of

GI = 1 << 30


def memory(state: NodeState) -> list[MemoryOnNode]:
    return memory_of(state, holders_of(state))


def pinned(
    *containers: str, policy: str = "single-numa-node", shape: str = "sockets:2 cores:4 memory:8Gi"
) -> NodeState:
    pods = [pod(f"p{number}", text) for number, text in enumerate(containers)]
    return node_state(shape, policy, pods=pods, memory_manager="Static", reserved_memory="1Gi,1Gi")


def test_a_block_on_one_numa_node_is_held_there_and_the_rest_is_reserved_or_free() -> None:
    first, second = memory(pinned("cpu=1 memory=3Gi"))
    assert [(holder.name, size) for holder, size in first.held] == [("ns/p0 c0", 3 * GI)]
    assert (first.total, first.reserved, first.free, first.spanning) == (8 * GI, GI, 4 * GI, 0)
    assert (second.held, second.free) == ((), 7 * GI)


def test_a_block_over_several_numa_nodes_is_in_parts_that_no_holder_has_alone() -> None:
    first, second = memory(pinned("cpu=1 memory=10Gi", policy="best-effort"))
    assert (first.held, second.held) == ((), ())
    assert first.spanning + second.spanning == 10 * GI
    assert first.free + second.free == 4 * GI


def test_huge_pages_are_a_kind_of_their_own_and_no_part_of_the_memory() -> None:
    shape = "sockets:2 cores:4 memory:8Gi hugepages-1Gi:2"
    regular, huge, *_ = memory(pinned("cpu=1 memory=1Gi hugepages-1Gi=1Gi", shape=shape))
    assert (regular.resource, regular.total, regular.free) == ("memory", 6 * GI, 4 * GI)
    assert (huge.resource, huge.total, huge.free) == ("hugepages-1Gi", 2 * GI, GI)


def test_without_a_static_memory_manager_nothing_is_held() -> None:
    first, _ = memory(node_state(pods=[pod("p", "cpu=1 memory=3Gi")]))
    assert (first.managed, first.held, first.reserved, first.free) == (False, (), 0, 8 * GI)


def test_more_blocks_than_there_is_memory_leave_nothing_free() -> None:
    state = pinned()
    blocks = [pod_allocation(name, memory=[MemoryBlock("memory", 1, 6 * GI)]) for name in ("x", "y")]
    first, _ = memory(replace(state, pods=tuple(blocks)))
    assert (len(first.held), first.free) == (2, 0)


def test_a_kubelet_that_would_not_start_allocates_nothing() -> None:
    broken = node_state(memory_manager="Static", reserved_memory="0")
    assert not any(each.managed for each in memory(broken))
