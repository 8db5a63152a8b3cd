"""Which of the nodes that admit a pod is best: where it leaves the smallest hole, so that big holes stay whole."""

from functools import reduce
from operator import or_

from topomend.model.bitmask import NUMAMask, members
from topomend.model.node_state import NodeState, free_cpus
from topomend.model.verdict import Verdict
from topomend.replay.fast_path.admission import FastPlacement

Score = tuple[int, int, int, int, str]


def score(after: NodeState, verdict: Verdict) -> Score:
    """A sort key, best first: ``after`` is the node's state once it holds the pod of ``verdict``.

    Aligned placements first, then those on fewer NUMA nodes, then by the CPUs left free on the NUMA nodes that the
    pod took and by those left on the whole node.
    """
    preferred = all(container.preferred for container in verdict.containers)
    return score_of(after, FastPlacement(touched(verdict), preferred, 0))


def score_of(state: NodeState, standing: FastPlacement) -> Score:
    """The same of a pod that is to stand there: the CPUs that it takes are still free in ``state``."""
    taken, free = standing.numa_nodes, free_cpus(state)
    left_there = sum([free[node] for node in members(taken or state.machine.numa_mask) if node in free])
    aligned = 0 if standing.preferred else 1
    cpus = standing.cpus
    return aligned, taken.bit_count(), left_there - cpus, sum(free.values()) - cpus, state.name


def touched(verdict: Verdict) -> NUMAMask:
    """The NUMA nodes that the pod's containers are aligned to; empty where none is."""
    return reduce(or_, (container.affinity or 0 for container in verdict.containers), 0)
