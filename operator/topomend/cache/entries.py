"""What the snapshot keeps of pods, and of nodes beside what their agents publish: its entries, as frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from topomend.model.pods.scheduling import WatchedPod
from topomend.model.quantity import MilliQuantity


@dataclass(frozen=True)
class Promise:
    """Places for the pods of a workload that is to be admitted. ``owner`` is the uid of the object whose pods they are.

    ``places``: by pod set, namespace and name of the assumed pods that stand for those that have not come yet.
    ``came``: the uids of the others. ``until`` is when it ends, in seconds.
    """

    owner: str
    places: Mapping[str, tuple[tuple[str, str], ...]]
    until: float
    came: frozenset[str] = frozenset()

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """The places of all pod sets, each by namespace and name."""
        return tuple(key for keys in self.places.values() for key in keys)


@dataclass(frozen=True)
class Refusal:
    """A refused pod. ``first_seen`` is when its refusal was first seen, in seconds, ``version`` its version then."""

    pod: WatchedPod
    version: str
    first_seen: float


@dataclass(frozen=True)
class UnboundPod:
    """A narrowed pod for which the scheduler finds no node, since the time ``since`` in seconds.

    One that has the operator's finalizer counts as well after it was bound or deleted.
    """

    pod: WatchedPod
    since: float


@dataclass(frozen=True)
class ReplayMismatches:
    """The uids of pods in a row that a kubelet refused and replay admits; ``since`` is the time of the last."""

    pods: frozenset[str]
    since: float


@dataclass(frozen=True, slots=True)
class SetAside:
    """A node for which replay took longer than its share: while this is ``active`` it is not asked.

    ``until`` is when that ends, in seconds. ``times`` is how often the node was set aside in a row. At 0 it is still
    asked: it took too long once, which may be the fault of whatever else the thread did meanwhile.
    """

    times: int
    until: float
    active: bool = True


@dataclass(frozen=True, slots=True)
class PodCounted:
    """A pod with a node, as a watch brought it in this ``version``. ``usage`` is what it takes of the node's totals.

    ``ended``: all its containers have for good. ``gone``: it was deleted or started to run, which a watch of pods that
    do not run reports alike. ``entered``: the watch did not show the pod before, so it was new or running.
    """

    uid: str
    version: str
    usage: Mapping[str, MilliQuantity]
    ended: bool = False
    gone: bool = False
    entered: bool = False


@dataclass(frozen=True, slots=True)
class NodeTotals:
    """What the pods on a node take together: the sum of a list of this ``version``, counted on by a watch since.

    ``used`` is None before the first list has come. ``pending`` are the pods in it that the watch may still show, by
    uid: those that do not run yet. While ``lists`` are under way, by their numbers, ``since`` is what the watch has
    brought meanwhile: a list may be older than that.
    """

    version: str = ""
    used: Mapping[str, MilliQuantity] | None = None
    pending: Mapping[str, Mapping[str, MilliQuantity]] = field(default_factory=dict)
    lists: frozenset[int] = frozenset()
    since: tuple[PodCounted, ...] = ()
