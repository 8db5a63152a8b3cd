"""The book that the Memory Manager keeps of each NUMA node's memory: what is reserved and free, and which form groups.

Whom it gives memory, and of which NUMA nodes, is decided beside it. Source: pkg/kubelet/cm/memorymanager/state, and
what policy_static.go does to it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from topomend.model.bitmask import NUMAMask, members
from topomend.model.node_state import MemoryBlock, NUMANodeMemory
from topomend.replay.errors import KUBELET_WOULD_CRASH, KubeletBreaks


@dataclass
class _NUMANodeState:
    """One NUMA node: how many blocks touch it, the group it belongs to, what is reserved and free of each resource."""

    node: int
    free: dict[str, int]
    assignments: int = 0
    cells: NUMAMask = 0
    reserved: dict[str, int] = field(default_factory=dict)

    def give(self, resource: str, size: int) -> int:
        """Reserve up to ``size``; what the node could not give is returned."""
        given = min(size, max(0, self.free.get(resource, 0)))
        self._move(resource, given)
        return size - given

    def take_back(self, resource: str, size: int) -> int:
        """Free up to ``size`` of what is reserved; what the node had not reserved is returned."""
        returned = min(size, self.reserved.get(resource, 0))
        self._move(resource, -returned)
        return size - returned

    def _move(self, resource: str, size: int) -> None:
        if size:
            self.reserved[resource] = self.reserved.get(resource, 0) + size
            self.free[resource] -= size


def _missing(resource: str, node: int) -> KubeletBreaks:
    return KubeletBreaks(
        KUBELET_WOULD_CRASH, f"NUMA node {node} has no {resource}; the Memory Manager reads it without asking"
    )


class Book:
    """The machine's memory by NUMA node (memorymanager/state:NUMANodeMap), of what each can give at most: in bytes, by
    resource."""

    def __init__(self, allocatable: Mapping[int, Mapping[str, int]]) -> None:
        self._allocatable = allocatable
        self.nodes = {
            node: _NUMANodeState(node, dict(amounts), cells=1 << node) for node, amounts in sorted(allocatable.items())
        }

    def load(self, pages: Iterable[NUMANodeMemory]) -> None:
        """Take over the book that the kubelet keeps; nodes and resources it does not have are skipped."""
        for page in pages:
            node = self.nodes.get(page.numa_node)
            if node is None:
                continue
            node.assignments, node.cells = page.assignments, page.cells or 1 << page.numa_node
            for resource, size in page.reserved.items():
                if resource in node.free:
                    node.reserved[resource] = size
                    node.free[resource] -= size

    def saved(self) -> tuple[NUMANodeMemory, ...]:
        """The book as a node's state carries it."""
        return tuple(
            NUMANodeMemory(
                number,
                node.assignments,
                node.cells,
                {resource: size for resource, size in sorted(node.reserved.items()) if size},
            )
            for number, node in self.nodes.items()
        )

    def reserve(self, mask: NUMAMask, resource: str, size: int) -> None:
        """Enter one block: the lowest NUMA node is filled first (updateMachineState)."""
        for number in members(mask):
            node = self.nodes.get(number)
            if node is None:
                continue
            node.assignments += 1
            node.cells = mask
            if size:
                size = node.give(resource, size)

    def release(self, block: MemoryBlock) -> None:
        """Strike one block out (releaseMemory)."""
        size = block.size
        for number in members(block.numa_nodes):
            node = self.nodes.get(number)
            if node is None:
                continue
            node.assignments = max(0, node.assignments - 1)
            if node.assignments == 0:
                node.cells = 1 << number
            if size:
                size = node.take_back(block.resource, size)

    def free(self, resource: str) -> dict[int, int]:
        """What is free on each NUMA node. Raises KubeletBreaks where a node does not know the resource."""
        return {number: self._amount(node.free, resource, number) for number, node in self.nodes.items()}

    def free_within(self, mask: NUMAMask, resource: str) -> int:
        """What is free over a mask. Raises KubeletBreaks where one of its nodes does not know the resource."""
        return sum(
            self._amount(self.nodes[number].free, resource, number) for number in members(mask) if number in self.nodes
        )

    def allocatable(self, resource: str) -> dict[int, int]:
        """What each NUMA node could give if nothing were taken."""
        return {number: amounts.get(resource, 0) for number, amounts in self._allocatable.items()}

    def suits(self, mask: NUMAMask, *, single: bool) -> bool:
        """Whether groups allow an allocation over the mask; a single node is only asked about where ``single`` is set.

        A node of a group takes no block of its own, and a node with blocks joins no other group (calculateHints,
        isAffinityViolatingNUMAAllocations).
        """
        if mask.bit_count() == 1:
            return not single or self.nodes[mask.bit_length() - 1].cells.bit_count() <= 1
        return all(
            not node.assignments or (node.cells.bit_count() > 1 and node.cells == mask) for node in self._within(mask)
        )

    def untouched(self) -> NUMAMask:
        """The NUMA nodes without any block: these may form new groups."""
        return sum(1 << number for number, node in self.nodes.items() if not node.assignments)

    def groups(self) -> set[NUMAMask]:
        """The groups of more than one NUMA node that hold blocks."""
        return {node.cells for node in self.nodes.values() if node.assignments and node.cells.bit_count() > 1}

    def _within(self, mask: NUMAMask) -> Iterator[_NUMANodeState]:
        return (self.nodes[number] for number in members(mask) if number in self.nodes)

    @staticmethod
    def _amount(amounts: Mapping[str, int], resource: str, node: int) -> int:
        if resource not in amounts:
            raise _missing(resource, node)
        return amounts[resource]
