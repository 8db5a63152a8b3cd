"""The order of the nodes that admit a pod: the best is the one that leaves most room for aligned pods to come."""

from functools import reduce
from operator import or_

from topomend.model.bitmask import NUMAMask, members
from topomend.model.nodes.node_state import NodeState, free_cpus
from topomend.model.verdict import Verdict
from topomend.replay.fast_path.admission import FastPlacement

Score = tuple[int, int, int, int, str]
"""A sort key, best first: not preferred (1), NUMA nodes taken, CPUs left on them, CPUs left on the node, its name."""

NO_SCORE: Score = (0, 0, 0, 0, "")


def score(after: NodeState, verdict: Verdict) -> Score:
    """The score of a node whose state is ``after`` once it holds the pod of ``verdict``.

    Preferred (aligned) placements come first, then those on fewer NUMA nodes, then those that leave the fewest CPUs
    free on the NUMA nodes that the pod takes, then on the whole node.
    """
    preferred = all(container.preferred for container in verdict.containers)
    return score_of(after, FastPlacement(numa_nodes_of(verdict), preferred, 0))


def score_of(state: NodeState, placement: FastPlacement) -> Score:
    """The same score before the pod is there: its CPUs are still free in ``state``."""
    taken, free = placement.numa_nodes, free_cpus(state)
    left_on_taken = sum([free[node] for node in members(taken or state.machine.numa_mask) if node in free])
    not_preferred = 0 if placement.preferred else 1
    cpus = placement.cpus
    return not_preferred, taken.bit_count(), left_on_taken - cpus, sum(free.values()) - cpus, state.name


def numa_nodes_of(verdict: Verdict) -> NUMAMask:
    """The NUMA nodes that the pod's containers are aligned to; empty where none is."""
    return reduce(or_, (container.affinity or 0 for container in verdict.containers), 0)
