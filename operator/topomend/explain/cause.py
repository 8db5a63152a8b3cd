"""A cause of a refusal: its kind, its container, its resources and its sentence.

Owns the kinds. Leaves finding them to ``refused_merge``, ``manager_error`` and ``explanation``.
"""

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """The causes of a refusal. The values are stable, for scripts."""

    NOT_ENOUGH_FREE = "NotEnoughFree"
    LARGER_THAN_A_NUMA_NODE = "LargerThanANUMANode"
    RESERVED_CPUS = "ReservedCPUs"
    RESERVED_MEMORY = "ReservedMemory"
    MEMORY_GROUP = "MemoryGroup"
    PREFERENCES_DIFFER = "PreferencesDiffer"
    DIFFERENT_NUMA_NODES = "DifferentNUMANodes"
    PREFERRED_BY_NONE = "PreferredByNone"
    INIT_CONTAINERS = "InitContainers"
    POD_SCOPE = "PodScope"
    PART_OF_A_CORE = "PartOfACore"
    NO_FREE_CORES = "NoFreeCores"
    DEVICE_UNHEALTHY = "DeviceUnhealthy"
    DEVICE_NOT_BACK = "DeviceNotBack"
    DEVICE_WITHOUT_NUMA_NODE = "DeviceWithoutNUMANode"
    EMPTY_SHARED_POOL = "EmptySharedPool"
    TOO_MANY_NUMA_NODES = "TooManyNUMANodes"
    KUBELET_WOULD_NOT_START = "KubeletWouldNotStart"
    KUBELET_WOULD_HANG = "KubeletWouldHang"
    KUBELET_WOULD_CRASH = "KubeletWouldCrash"
    MANAGER_ERROR = "ManagerError"
    NOT_ENOUGH_IN_TOTAL = "NotEnoughInTotal"
    NODE_DOES_NOT_MATCH = "NodeDoesNotMatch"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a kubelet refuses a pod.

    ``container`` is empty where the pod is refused as a whole. ``sentence`` says what happened and why, ``remedy`` what
    to do, where that needs no search. ``resources`` are those that the pod is refused for.
    """

    kind: Kind
    container: str
    resources: tuple[str, ...]
    sentence: str
    remedy: str = ""

    @property
    def text(self) -> str:
        """The sentence and the remedy."""
        return f"{self.sentence}; {self.remedy}" if self.remedy else self.sentence
