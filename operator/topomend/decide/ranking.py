"""Which of the nodes that admit a pod is best: where it leaves the smallest hole, so that big holes stay whole."""

from functools import reduce
from operator import or_

from topomend.model.bitmask import NUMAMask, members
from topomend.model.machine import Machine
from topomend.model.node_state import NodeState, allocations
from topomend.model.verdict import Verdict

Rank = tuple[int, int, int, int, str]


def rank(after: NodeState, verdict: Verdict) -> Rank:
    """A sort key, best first: ``after`` is the node's state once it holds the pod of ``verdict``.

    Aligned placements first, then those on fewer NUMA nodes, then by the CPUs left free on the NUMA nodes that the
    pod took and by those left on the whole node.
    """
    taken = touched(verdict)
    free = free_cpus(after)
    left_there = sum(free[node] for node in members(taken or after.machine.numa_mask) if node in free)
    aligned = all(container.preferred for container in verdict.containers)
    return (0 if aligned else 1, taken.bit_count(), left_there, sum(free.values()), after.name)


def touched(verdict: Verdict) -> NUMAMask:
    """The NUMA nodes that the pod's containers are aligned to; empty where none is."""
    return reduce(or_, (container.affinity or 0 for container in verdict.containers), 0)


def free_cpus(state: NodeState) -> dict[int, int]:
    """The CPUs of each NUMA node that nobody holds exclusively and that are not reserved."""
    held = reduce(or_, (container.cpus for container in allocations(state.pods)), state.kubelet.reserved_cpus or 0)
    machine: Machine = state.machine
    return {node: (cpus & ~held).bit_count() for node, cpus in machine.cpus_of_numa_node.items()}
