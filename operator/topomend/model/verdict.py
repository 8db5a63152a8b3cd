"""The kubelet's answer to a pod, and the trace that explains it."""

from dataclasses import dataclass
from enum import Enum

from topomend.model.bitmask import CPUSet, NUMAMask
from topomend.model.nodes.node_state import MemoryBlock


@dataclass(frozen=True, slots=True)
class DevicePlacement:
    """How many devices of a resource a container gets, and the NUMA nodes of these devices."""

    resource: str
    count: int
    numa_nodes: NUMAMask


@dataclass(frozen=True, slots=True)
class ContainerPlacement:
    """The allocation of one container. ``affinity`` None is no affinity; ``cpus`` 0 is the shared pool."""

    name: str
    init: bool
    affinity: NUMAMask | None
    preferred: bool
    cpus: CPUSet = 0
    memory: tuple[MemoryBlock, ...] = ()
    devices: tuple[DevicePlacement, ...] = ()


class Preference(Enum):
    """How a resource answered the Topology Manager. The kubelet's code writes a nil list, an empty list, or hints."""

    NONE = "no preference"
    IMPOSSIBLE = "impossible"
    HINTS = "hints"


@dataclass(frozen=True, slots=True)
class ResourceTrace:
    """One resource in one merge: ``requested`` and the free amount of each NUMA node, in CPUs, bytes or devices.

    ``fits`` are the masks it offered, narrowest first (at most 16 of them), each with whether it was preferred;
    ``preference`` says how to read an empty list. ``capacity`` is what each NUMA node would have if nothing were taken,
    in the kubelet's count: reserved CPUs and unhealthy devices are part of it, reserved memory is not.

    Every mask holds ``required``, the NUMA nodes where init containers left CPUs or devices. ``groups`` are the NUMA
    nodes whose memory is pinned together, ``pinned`` those that hold pinned memory of their own. Where devices belong
    to several NUMA nodes, ``free_sets`` and ``capacity_sets`` count each device once, by its NUMA nodes. ``error`` is
    the manager's, if it offers no NUMA nodes because of the pod itself.

    Only a refused merge has the rest: ``width`` is how many NUMA nodes the request prefers, None where it has no such
    wish. ``preferred`` are the masks that are offered and preferred and that the policy could admit: all masks of one
    NUMA node, and at most 16 with the wider ones. ``preferred_widths`` are the widths of all such masks, listed or not.
    ``anywhere`` is whether any NUMA nodes will do, as many as are preferred.
    """

    provider: str
    resource: str
    requested: int
    free: tuple[tuple[int, int], ...]
    preference: Preference
    fits: tuple[tuple[NUMAMask, bool], ...] = ()
    capacity: tuple[tuple[int, int], ...] = ()
    width: int | None = None
    preferred: tuple[NUMAMask, ...] = ()
    preferred_widths: tuple[int, ...] = ()
    anywhere: bool = False
    required: NUMAMask = 0
    groups: tuple[NUMAMask, ...] = ()
    pinned: NUMAMask = 0
    free_sets: tuple[tuple[NUMAMask, int], ...] = ()
    capacity_sets: tuple[tuple[NUMAMask, int], ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class MergeTrace:
    """One merge of hints: for one container, or for the whole pod where ``container`` is empty.

    ``policy`` is the Topology Manager's.
    """

    container: str
    resources: tuple[ResourceTrace, ...]
    affinity: NUMAMask | None
    preferred: bool
    admitted: bool
    policy: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """An allocation that failed after a successful merge: the container, the manager, and the manager's error."""

    container: str
    provider: str
    error: str


@dataclass(frozen=True, slots=True)
class Shortage:
    """A resource of which too little is left in total: CPUs in thousandths, all else in whole units.

    Source: pkg/kubelet/lifecycle/predicate.go:InsufficientResourceError.
    """

    resource: str
    requested: int
    used: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The kubelet's answer. ``reason`` and ``message`` are the kubelet's strings, empty if it admits the pod.

    ``message`` has the prefix ``Pod was rejected: ``, as in the pod's status. ``unmodelled`` names the facts about the
    node that replay does not know. If there are any, the verdict is a best effort and must be shown as one.
    ``shortages`` are the totals that a pod does not fit which its managers have admitted.
    """

    namespace: str
    name: str
    admitted: bool
    reason: str = ""
    message: str = ""
    containers: tuple[ContainerPlacement, ...] = ()
    merges: tuple[MergeTrace, ...] = ()
    failure: Failure | None = None
    unmodelled: tuple[str, ...] = ()
    shortages: tuple[Shortage, ...] = ()
