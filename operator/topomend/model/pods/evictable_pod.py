"""A running pod as one that may be evicted for a better place, with what it says about that."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from topomend.model.pods.scheduling import WatchedPod


@dataclass(frozen=True, slots=True)
class EvictablePod:
    """``owner``: the workload that the user wrote, as ``Kind/name``; empty without one.

    ``forbidden``: the annotation that forbids its eviction. ``local_storage``: a volume that ends with it.
    ``grace_seconds``: within which it ends. ``labels`` are those by which budgets select it.
    """

    pod: WatchedPod
    owner: str = ""
    forbidden: str = ""
    local_storage: str = ""
    grace_seconds: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
