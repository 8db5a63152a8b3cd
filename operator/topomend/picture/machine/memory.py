"""Who holds how much memory on each NUMA node, by replay of a static Memory Manager.

Of a block over several NUMA nodes only the kubelet's machine state knows how much is where, so there the parts of such
blocks stand together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from topomend.model.machine import NUMANode
from topomend.model.nodes.node_state import NodeState
from topomend.picture.holders import Holder
from topomend.replay import qos
from topomend.replay.admission import machine_state_of
from topomend.replay.container_manager import start
from topomend.replay.memory.machine_state import MachineState


@dataclass(frozen=True)
class MemoryOnNode:
    """One kind of memory on one NUMA node, in bytes.

    ``held`` are the blocks that lie on this NUMA node alone, by holder; ``spanning`` are the parts of wider ones.
    ``managed`` is whether the kubelet's Memory Manager allocates it: otherwise nothing is held or reserved.
    """

    numa_node: int
    resource: str
    total: int
    reserved: int = 0
    held: tuple[tuple[Holder, int], ...] = ()
    spanning: int = 0
    managed: bool = False

    @property
    def free(self) -> int:
        """What is neither held nor reserved."""
        return max(0, self.total - self.reserved - self.spanning - sum(size for _, size in self.held))


def memory_of(state: NodeState, holders: Sequence[Holder]) -> list[MemoryOnNode]:
    """Memory first, then huge pages by size, of each NUMA node that has some; ascending by NUMA node."""
    kubelet = start(state.machine, state.kubelet)
    policy = None if isinstance(kubelet, str) else kubelet.memory
    machine_state = machine_state_of(policy, state) if policy else None
    return [_amounts(node, *kind, machine_state, holders) for node in state.machine.numa_nodes for kind in _kinds(node)]


def _kinds(node: NUMANode) -> Iterator[tuple[str, int]]:
    """The kinds of memory of a NUMA node, with their bytes."""
    pages = [(pool.resource, pool.size * pool.count) for pool in node.hugepages if pool.count]
    regular = node.memory - sum(size for _, size in pages)
    if regular > 0:
        yield qos.MEMORY, regular
    yield from pages


def _amounts(
    node: NUMANode, resource: str, total: int, machine_state: MachineState | None, holders: Sequence[Holder]
) -> MemoryOnNode:
    if machine_state is None:
        return MemoryOnNode(node.id, resource, total)
    allocatable = min(total, machine_state.allocatable(resource).get(node.id, 0))
    free = max(0, machine_state.free(resource).get(node.id, 0))
    held = tuple((holder, size) for holder in holders if (size := _alone(holder, node.id, resource)))
    spanning = max(0, allocatable - free - sum(size for _, size in held))
    return MemoryOnNode(node.id, resource, total, total - allocatable, held, spanning, managed=True)


def _alone(holder: Holder, numa_node: int, resource: str) -> int:
    """What a holder has of a resource on this NUMA node alone."""
    return sum(
        block.size for block in holder.memory if block.resource == resource and block.numa_nodes == 1 << numa_node
    )
