"""The Topology Manager's policies: how hints are merged, and which merged hints are admitted.

Source: pkg/kubelet/cm/topologymanager/policy_{none,best_effort,restricted,single_numa_node}.go.
"""

from collections.abc import Sequence

from topomend.replay.topology.hints import Offer
from topomend.replay.topology.merge import Hint, NUMAInfo, merge, merge_single

NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE = "none", "best-effort", "restricted", "single-numa-node"

POLICIES = (NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE)


def decide(policy: str, info: NUMAInfo, offers: Sequence[Offer]) -> tuple[Hint, bool]:
    """The affinity that a policy other than ``none`` stores, and whether it admits."""
    if policy == SINGLE_NUMA_NODE:
        hint = merge_single(info, offers)
        return hint, hint.preferred
    hint = merge(info, offers)
    return hint, hint.preferred or policy == BEST_EFFORT
