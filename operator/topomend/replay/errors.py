"""The kubelet's refusals as values, and the exception for an admission that crashes or hangs the kubelet.

Source of reasons and texts: pkg/kubelet/cm/admission/errors.go, topologymanager/topology_manager.go,
cpumanager/policy_static.go.
"""

from dataclasses import dataclass

from topomend.model.bitmask import NUMAMask, format_id_list

MESSAGE_PREFIX = "Pod was rejected: "
"""The prefix of the message in the pod's status (kubelet.go:rejectPod)."""

TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError"
SMT_ALIGNMENT_ERROR = "SMTAlignmentError"
EMPTY_POD_SHARED_POOL_ERROR = "EmptyPodSharedPoolError"
UNEXPECTED_ADMISSION_ERROR = "UnexpectedAdmissionError"

KUBELET_WOULD_NOT_START = "KubeletWouldNotStart"
"""Topomend's own reason: a kubelet with these settings does not start on this machine."""

KUBELET_WOULD_CRASH = "KubeletWouldCrash"
"""Topomend's own reason: the kubelet panics during the admission."""

KUBELET_WOULD_HANG = "KubeletWouldHang"
"""Topomend's own reason: the admission takes longer than an hour, or never ends (``topology/walk_time``)."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A refusal: the kubelet's reason, and its message without MESSAGE_PREFIX.

    ``error`` is the manager's error within the message; empty if no manager failed.
    """

    reason: str
    message: str
    error: str = ""


class KubeletBreaks(Exception):
    """The admission would crash or hang the kubelet. Rules raise it, and ``admit`` turns it into a verdict.

    ``reason`` is KUBELET_WOULD_CRASH or KUBELET_WOULD_HANG; ``why`` is a sentence for users.
    """

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason
        self.why = why


def check_masks(nodes: NUMAMask) -> None:
    """Raises KubeletBreaks if a NUMA node does not fit the 64 bits of the kubelet's masks.

    For every merge and every hint the kubelet makes a mask of all NUMA nodes. It gets nil, and uses it without a check
    (topologymanager/bitmask/bitmask.go:NewBitMask, IterateBitMasks).
    """
    beyond = nodes >> 64 << 64
    if beyond:
        raise KubeletBreaks(
            KUBELET_WOULD_CRASH, f"NUMA nodes {format_id_list(beyond)} do not fit the kubelet's masks, which end at 63"
        )


def affinity_error() -> Rejection:
    """The policy admits no merged hint (topology_manager.go:TopologyAffinityError)."""
    return Rejection(TOPOLOGY_AFFINITY_ERROR, "Resources cannot be allocated with Topology locality")


def pod_level_affinity_error(failure: str) -> Rejection:
    """The same for a pod with pod-level resources (topology_manager.go:PodLevelTopologyAffinityError)."""
    return Rejection(TOPOLOGY_AFFINITY_ERROR, f"Pod Scope {failure}")


def unexpected(error: str) -> Rejection:
    """A manager's error without a reason of its own (errors.go:GetPodAdmitResult)."""
    return Rejection(UNEXPECTED_ADMISSION_ERROR, f"Allocate failed due to {error}, which is unexpected", error)


def smt_alignment(error: str) -> Rejection:
    """The request cannot be met with whole cores (policy_static.go:SMTAlignmentError)."""
    return Rejection(SMT_ALIGNMENT_ERROR, error, error)


def empty_pod_shared_pool(error: str) -> Rejection:
    """The pod's shared pool would be empty (errors.go:EmptyPodSharedPoolError)."""
    return Rejection(EMPTY_POD_SHARED_POOL_ERROR, error, error)
