"""Option prefer-most-allocated-numa-node: which of several NUMA nodes that fit equally well gets the pod.

Under single-numa-node the fullest one gets it, which leaves the free resources of the others in one piece. Other
policies ignore the option. It is a proposal (KEP "Prefer most allocated NUMA node"): replay follows its text, and no
released kubelet has it.
"""

from collections.abc import Iterable, Mapping, Sequence

OPTION = "prefer-most-allocated-numa-node"

_MOST = 100


def utilization(assigned: int, allocatable: int) -> int:
    """The utilization of a NUMA node in percent, 0 to 100, rounded down as the scheduler does.

    Source: pkg/scheduler/framework/plugins/noderesources/most_allocated.go:mostRequestedScore, which the KEP names.
    """
    return min(assigned, allocatable) * _MOST // allocatable if allocatable > 0 else 0


def most_allocated(nodes: Iterable[int], signals: Sequence[Mapping[int, int]]) -> int:
    """The most allocated of ``nodes``, which are ascending and at least one.

    Each of ``signals`` maps NUMA nodes to their utilization in percent. Signals may contradict each other, so the
    pairwise comparison is no ranking, and the order counts: each node is compared with the best one so far, in the
    order of the kubelet's merger.
    """
    winner, *others = nodes
    for node in others:
        if _beats(node, winner, signals):
            winner = node
    return winner


def _beats(node: int, winner: int, signals: Sequence[Mapping[int, int]]) -> bool:
    """Whether a signal prefers ``node`` and no signal prefers ``winner``. Otherwise the lower id wins (Narrowest)."""
    differences = [signal.get(node, 0) - signal.get(winner, 0) for signal in signals]
    return any(difference > 0 for difference in differences) and all(difference >= 0 for difference in differences)
