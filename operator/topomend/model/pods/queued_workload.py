"""A workload in a Kueue queue, as far as it decides whether all its pods fit: its pod sets, and what Kueue says of it.

Field names are those of kueue.x-k8s.io/v1beta2. Leaves what the states of a check mean to ``reconcile/kueue``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from topomend.model.pods.scheduling import Toleration, WatchedPod

READY, RETRY, PENDING = "Ready", "Retry", "Pending"
"""The states of an admission check that are read or written here."""


@dataclass(frozen=True)
class PodSet:
    """``count`` pods of one template. ``pod`` stands for each: its name and uid are those of the workload's first one.

    ``flavors``: the names of the ResourceFlavors that Kueue has assigned, whose nodes the pods may use.
    ``spread_by_kueue``: Kueue itself chooses a topology domain for each pod.
    """

    name: str
    count: int
    pod: WatchedPod
    flavors: tuple[str, ...] = ()
    spread_by_kueue: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """An admission check of a workload: its ``state``, and how often in a row it said Retry before.

    ``selectors`` and ``tolerations`` are by pod set: what the check adds to the pods.
    """

    name: str
    state: str
    message: str = ""
    retries: int = 0
    selectors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tolerations: Mapping[str, tuple[Toleration, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class QueuedWorkload:
    """A Workload. ``owner`` is the uid of the object whose pods it is about, such as a Job's.

    ``reserved``: it has quota. ``admitted``: its pods may be created. ``over``: it has finished, is inactive or is
    being deleted. ``evicted``: why Kueue takes its quota back, or did so last; empty where it does not.
    ``requeue_at``: until when Kueue keeps it out of its queue, as it writes it; empty where it does not.
    """

    namespace: str
    name: str
    uid: str
    version: str
    pod_sets: tuple[PodSet, ...]
    checks: Mapping[str, Check]
    owner: str = ""
    creation_time: str = ""
    priority: int = 0
    reserved: bool = False
    admitted: bool = False
    over: bool = False
    evicted: str = ""
    requeue_at: str = ""

    @property
    def order(self) -> tuple[int, str, str, str]:
        """The sort key of turns: priority before age, as in Kueue's queues."""
        return -self.priority, self.creation_time, self.namespace, self.name

    @property
    def pods(self) -> int:
        """How many pods it has in all."""
        return sum(pod_set.count for pod_set in self.pod_sets)


@dataclass(frozen=True)
class Flavor:
    """A ResourceFlavor: labels that its nodes have, and tolerations that its pods get."""

    labels: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
