"""The Topology Manager's policies: how hints are merged, and which merged hints are admitted.

Source: pkg/kubelet/cm/topologymanager/policy_{none,best_effort,restricted,single_numa_node}.go.
"""

from collections.abc import Sequence

from topomend.model.bitmask import lowest
from topomend.replay.topology.hints import Offer
from topomend.replay.topology.merge import Hint, NUMAInfo, TieBreak, merge, merge_single

NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE = "none", "best-effort", "restricted", "single-numa-node"

POLICIES = (NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE)


def decide(policy: str, info: NUMAInfo, offers: Sequence[Offer], tie_break: TieBreak = lowest) -> tuple[Hint, bool]:
    """The affinity that a policy other than ``none`` stores, and whether it admits.

    ``tie_break`` chooses among NUMA nodes that fit single-numa-node equally well; other policies do not ask it.
    """
    if policy == SINGLE_NUMA_NODE:
        hint = merge_single(info, offers, tie_break)
        return hint, hint.preferred
    hint = merge(info, offers)
    return hint, hint.preferred or policy == BEST_EFFORT
