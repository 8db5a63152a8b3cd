"""The kubelet's refusals as values, and the exception for an admission that crashes or hangs the kubelet.

Source of reasons and texts: pkg/kubelet/cm/admission/errors.go, topologymanager/topology_manager.go,
cpumanager/policy_static.go.
"""

from dataclasses import dataclass

from topomend.model.bitmask import NUMAMask, format_id_list

MESSAGE_PREFIX = "Pod was rejected: "
"""What kubelet.go:rejectPod puts before the message in the pod's status."""

TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError"
SMT_ALIGNMENT_ERROR = "SMTAlignmentError"
EMPTY_POD_SHARED_POOL_ERROR = "EmptyPodSharedPoolError"
UNEXPECTED_ADMISSION_ERROR = "UnexpectedAdmissionError"

KUBELET_WOULD_NOT_START = "KubeletWouldNotStart"
"""Not the kubelet's: with these settings on this machine there is no kubelet to answer."""

KUBELET_WOULD_CRASH = "KubeletWouldCrash"
"""Not the kubelet's: the admission ends in a panic."""

KUBELET_WOULD_HANG = "KubeletWouldHang"
"""Not the kubelet's: the admission does not end, or not within an hour (``topology/walk_time``)."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A refusal: the kubelet's reason, and its message without the prefix.

    ``error`` is the text of the manager's error inside the message, where a manager refused.
    """

    reason: str
    message: str
    error: str = ""


class KubeletBreaks(Exception):
    """The admission would crash or hang the kubelet. Rules raise it, and ``admit`` turns it into a verdict.

    ``reason`` is KUBELET_WOULD_CRASH or KUBELET_WOULD_HANG.
    """

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason
        self.why = why


def check_masks(nodes: NUMAMask) -> None:
    """Raises KubeletBreaks where a NUMA node does not fit the 64 bits of the kubelet's masks.

    It makes a mask of them for every merge and every hint, gets none, and uses it (topologymanager/bitmask/bitmask.go:
    NewBitMask, IterateBitMasks).
    """
    beyond = nodes >> 64 << 64
    if beyond:
        raise KubeletBreaks(
            KUBELET_WOULD_CRASH, f"NUMA nodes {format_id_list(beyond)} do not fit the kubelet's masks, which end at 63"
        )


def affinity_error() -> Rejection:
    """No hint that the policy admits (topology_manager.go:TopologyAffinityError)."""
    return Rejection(TOPOLOGY_AFFINITY_ERROR, "Resources cannot be allocated with Topology locality")


def pod_level_affinity_error(what: str) -> Rejection:
    """The same for a pod with pod-level resources (topology_manager.go:PodLevelTopologyAffinityError)."""
    return Rejection(TOPOLOGY_AFFINITY_ERROR, f"Pod Scope {what}")


def unexpected(error: str) -> Rejection:
    """A manager's error that has no reason of its own (errors.go:GetPodAdmitResult)."""
    return Rejection(UNEXPECTED_ADMISSION_ERROR, f"Allocate failed due to {error}, which is unexpected", error)


def smt_alignment(error: str) -> Rejection:
    """Whole cores were asked for and cannot be given (policy_static.go:SMTAlignmentError)."""
    return Rejection(SMT_ALIGNMENT_ERROR, error, error)


def empty_pod_shared_pool(error: str) -> Rejection:
    """Nothing would be left for the containers that share (errors.go:EmptyPodSharedPoolError)."""
    return Rejection(EMPTY_POD_SHARED_POOL_ERROR, error, error)
