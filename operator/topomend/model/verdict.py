"""What an admission decided, and the trace from which anyone can be told why."""

from dataclasses import dataclass

from topomend.model.bitmask import CPUSet, NUMAMask
from topomend.model.node_state import MemoryBlock


@dataclass(frozen=True, slots=True)
class DevicePlacement:
    """How many devices of a resource a container gets, and on which NUMA nodes those stand."""

    resource: str
    count: int
    numa_nodes: NUMAMask


@dataclass(frozen=True, slots=True)
class ContainerPlacement:
    """What one container was given. ``affinity`` None is no affinity; ``cpus`` empty is the shared pool."""

    name: str
    init: bool
    affinity: NUMAMask | None
    preferred: bool
    cpus: CPUSet = 0
    memory: tuple[MemoryBlock, ...] = ()
    devices: tuple[DevicePlacement, ...] = ()


class Preference:
    """How a resource answered the Topology Manager, where the kubelet's own code leaves it to nil against empty."""

    NONE = "no preference"
    IMPOSSIBLE = "impossible"
    HINTS = "hints"


@dataclass(frozen=True, slots=True)
class ResourceTrace:
    """One resource in one merge: ``requested`` and the free amount of each NUMA node, in CPUs, bytes or devices.

    ``fits`` are the masks it offered, narrowest first (at most 16 of them), each with whether it was preferred;
    ``preference`` says how to read an empty list.
    """

    provider: str
    resource: str
    requested: int
    free: tuple[tuple[int, int], ...]
    preference: str
    fits: tuple[tuple[NUMAMask, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class MergeTrace:
    """One merge of hints: for one container, or for the whole pod where ``container`` is empty."""

    container: str
    resources: tuple[ResourceTrace, ...]
    affinity: NUMAMask | None
    preferred: bool
    admitted: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """The allocation that failed after its merge had succeeded: which container, which manager, its own words."""

    container: str
    provider: str
    error: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The kubelet's answer. ``reason`` and ``message`` are its own strings, empty when admitted.

    ``message`` carries the prefix ``Pod was rejected: `` as the pod's status shows it. ``unmodelled`` names what replay
    does not know about this node, in which case the verdict is a best effort and must be shown as one.
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
