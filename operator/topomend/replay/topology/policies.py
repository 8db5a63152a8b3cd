"""The Topology Manager's policies: how each merges hints, and which merged hints it admits.

Source: pkg/kubelet/cm/topologymanager/policy_{none,best_effort,restricted,single_numa_node}.go.
"""

from collections.abc import Sequence

from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.topology.hints import Offer
from topomend.replay.topology.merge import Hint, NUMAInfo, TieBreak, merge, merge_single
from topomend.replay.topology.numa_allocation_strategy import Strategy
from topomend.replay.topology.policy_names import BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE


def decide(  # noqa: PLR0913  what a merge depends on
    policy: str,
    info: NUMAInfo,
    offers: Sequence[Offer],
    tie_break: TieBreak | Strategy = min,
    *,
    traced: bool = True,
    effort: Effort = UNLIMITED,
) -> tuple[Hint, bool]:
    """The affinity that a policy other than ``none`` stores, and whether it admits the request.

    ``tie_break`` chooses among affinities that fit equally well, under single-numa-node alone unless it is a Strategy.
    The affinity of a refusal only matters where it is ``traced``.
    Raises KubeletBreaks if the merge would crash or hang the kubelet.
    """
    strategy = tie_break if isinstance(tie_break, Strategy) else None
    # single-numa-node admits a preferred hint of one NUMA node, or of none.
    if policy == SINGLE_NUMA_NODE:
        hint = merge_single(info, offers, tie_break.fittest if isinstance(tie_break, Strategy) else tie_break)
        return hint, hint.preferred
    # restricted admits a preferred hint, best-effort any hint.
    hint = merge(info, offers, strategy, preferred_only=policy == RESTRICTED and not traced, effort=effort)
    return hint, hint.preferred or policy == BEST_EFFORT
