"""The Memory Manager's machine state: reserved and free memory of each NUMA node, and the groups of NUMA nodes.

Owns how blocks change the state. Leaves which NUMA nodes a block comes from to ``static``. Source:
pkg/kubelet/cm/memorymanager/state, and the functions of policy_static.go that change it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from topomend.model.bitmask import NUMAMask, members
from topomend.model.nodes.node_state import MemoryBlock, NUMANodeMemory
from topomend.replay.errors import KUBELET_WOULD_CRASH, KubeletBreaks


@dataclass
class _NUMANodeState:
    """One NUMA node (memorymanager/state:NUMANodeState). Amounts are in bytes, by resource.

    ``assignments`` counts the blocks that use the NUMA node. ``cells`` is its group, the NUMA node alone outside of
    any.
    """

    node: int
    free: dict[str, int]
    assignments: int = 0
    cells: NUMAMask = 0
    reserved: dict[str, int] = field(default_factory=dict)

    def give(self, resource: str, size: int) -> int:
        """Reserve up to ``size`` bytes. Returns the bytes that were not free."""
        given = min(size, max(0, self.free.get(resource, 0)))
        self._move(resource, given)
        return size - given

    def take_back(self, resource: str, size: int) -> int:
        """Free up to ``size`` reserved bytes. Returns the bytes that were not reserved here."""
        returned = min(size, self.reserved.get(resource, 0))
        self._move(resource, -returned)
        return size - returned

    def _move(self, resource: str, size: int) -> None:
        if size:
            self.reserved[resource] = self.reserved.get(resource, 0) + size
            self.free[resource] -= size


def _missing(resource: str, node: int) -> KubeletBreaks:
    return KubeletBreaks(
        KUBELET_WOULD_CRASH, f"NUMA node {node} has no {resource}; the Memory Manager reads it without a check"
    )


class MachineState:
    """The state of every NUMA node (memorymanager/state:NUMANodeMap).

    ``allocatable`` maps NUMA nodes to bytes by resource: what the Memory Manager can allocate on the empty machine.
    """

    def __init__(self, allocatable: Mapping[int, Mapping[str, int]]) -> None:
        self._allocatable = allocatable
        self.nodes = {
            node: _NUMANodeState(node, dict(amounts), cells=1 << node) for node, amounts in sorted(allocatable.items())
        }

    def copy(self) -> "MachineState":
        """The same state; what changes one of the two leaves the other as it is."""
        copied = MachineState({})
        copied._allocatable = self._allocatable
        copied.nodes = {
            number: replace(node, free=dict(node.free), reserved=dict(node.reserved))
            for number, node in self.nodes.items()
        }
        return copied

    def load(self, nodes: Iterable[NUMANodeMemory]) -> None:
        """Restore the state that the kubelet saved. NUMA nodes and resources that the machine lacks are skipped."""
        for published in nodes:
            node = self.nodes.get(published.numa_node)
            if node is None:
                continue
            node.assignments, node.cells = published.assignments, published.cells or 1 << published.numa_node
            for resource, size in published.reserved.items():
                if resource in node.free:
                    node.reserved[resource] = size
                    node.free[resource] -= size

    def saved(self) -> tuple[NUMANodeMemory, ...]:
        """The state as ``NodeState.memory`` carries it."""
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
        """Reserve one block of ``size`` bytes over ``mask``, the lowest NUMA node first (updateMachineState)."""
        for number in members(mask):
            node = self.nodes.get(number)
            if node is None:
                continue
            node.assignments += 1
            node.cells = mask
            if size:
                size = node.give(resource, size)

    def release(self, block: MemoryBlock) -> None:
        """Free one block (releaseMemory)."""
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
        """The free bytes of each NUMA node. Raises KubeletBreaks if a NUMA node does not have the resource."""
        return {number: self._amount(node.free, resource, number) for number, node in self.nodes.items()}

    def free_within(self, mask: NUMAMask, resource: str) -> int:
        """The free bytes of all NUMA nodes of ``mask``. Raises KubeletBreaks if one does not have the resource."""
        return sum(
            self._amount(self.nodes[number].free, resource, number) for number in members(mask) if number in self.nodes
        )

    def allocatable(self, resource: str) -> dict[int, int]:
        """The allocatable bytes of each NUMA node, free or not."""
        return {number: amounts.get(resource, 0) for number, amounts in self._allocatable.items()}

    def suits(self, mask: NUMAMask, *, single: bool) -> bool:
        """Whether the existing groups allow a block over ``mask``.

        A NUMA node of a group takes no single-node block. A NUMA node with blocks joins no other group. ``single`` also
        checks masks of one NUMA node, which calculateHints does and isAffinityViolatingNUMAAllocations does not.
        """
        if mask.bit_count() == 1:
            return not single or self.nodes[mask.bit_length() - 1].cells.bit_count() <= 1
        return all(
            not node.assignments or (node.cells.bit_count() > 1 and node.cells == mask) for node in self._within(mask)
        )

    def untouched(self) -> NUMAMask:
        """The NUMA nodes without a block. Only these can form a new group."""
        return sum(1 << number for number, node in self.nodes.items() if not node.assignments)

    def groups(self) -> set[NUMAMask]:
        """The groups of several NUMA nodes that have blocks."""
        return {node.cells for node in self.nodes.values() if node.assignments and node.cells.bit_count() > 1}

    def pinned_alone(self) -> NUMAMask:
        """The NUMA nodes with blocks of their own, which join no group."""
        return sum(
            1 << number for number, node in self.nodes.items() if node.assignments and node.cells.bit_count() < 2
        )

    def _within(self, mask: NUMAMask) -> Iterator[_NUMANodeState]:
        return (self.nodes[number] for number in members(mask) if number in self.nodes)

    @staticmethod
    def _amount(amounts: Mapping[str, int], resource: str, node: int) -> int:
        if resource not in amounts:
            raise _missing(resource, node)
        return amounts[resource]
