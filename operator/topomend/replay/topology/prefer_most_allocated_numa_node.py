"""Option prefer-most-allocated-numa-node: which of several NUMA nodes that fit equally well takes the pod.

Under single-numa-node the fullest one, so that the holes on the others stay whole; other policies ignore the option.
It is a proposal (KEP "Prefer most allocated NUMA node"): replay follows its text, no released kubelet has it.
"""

from collections.abc import Iterable, Mapping, Sequence

OPTION = "prefer-most-allocated-numa-node"

REMARK = f"released kubelets up to 1.36 refuse to start with option {OPTION}, which was replayed as its KEP tells it"

_MOST = 100


def utilization(assigned: int, allocatable: int) -> int:
    """How full a NUMA node is, 0 to 100, in whole steps as the scheduler counts them.

    Source: pkg/scheduler/framework/plugins/noderesources/most_allocated.go:mostRequestedScore, which the KEP names.
    """
    return min(assigned, allocatable) * _MOST // allocatable if allocatable > 0 else 0


def most_allocated(nodes: Iterable[int], signals: Sequence[Mapping[int, int]]) -> int:
    """The NUMA node that wins of ``nodes``, ascending and at least one; each signal maps nodes to their utilization.

    Each node is compared with the winner so far, in the order in which the kubelet's merger meets them: where signals
    contradict each other no pairwise comparison makes a ranking.
    """
    winner, *others = nodes
    for node in others:
        if _beats(node, winner, signals):
            winner = node
    return winner


def _beats(node: int, winner: int, signals: Sequence[Mapping[int, int]]) -> bool:
    """Whether a signal prefers ``node`` and none the winner; otherwise the lower id stays (Narrowest)."""
    differences = [signal.get(node, 0) - signal.get(winner, 0) for signal in signals]
    return any(difference > 0 for difference in differences) and all(difference >= 0 for difference in differences)
