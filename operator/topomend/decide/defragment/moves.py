"""Moves: which pods may be moved, within what limits, and what each move brings.

Owns the data. Leaves which moves are best to ``search``.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from topomend.cache.snapshot import PodKey
from topomend.decide.budgets import Budget
from topomend.decide.pools.typical_pods import TypicalPod
from topomend.model.bitmask import NUMAMask
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import Placement


@dataclass(frozen=True, slots=True)
class Movable:
    """A pod that may be moved. ``owner``: its controller as ``Kind/name``."""

    pod: Pod
    placement: Placement
    node: str
    owner: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod for which topomend chooses a node as soon as one admits it.

    ``certain``: replay and totals alone say which one.
    """

    pod: Pod
    placement: Placement = field(default_factory=Placement)
    priority: int = 0
    certain: bool = True


@dataclass(frozen=True)
class Pods:
    """The pods of a cluster. ``waiting`` are in the order of the queue.

    ``unsettled``: the nodes on which pods start or end, so that their states are about to be others. No pod is moved
    from or to one. ``ending``: the namespaces and names of those that are expected to end by themselves: topomend may
    keep their places for pods that wait, and has no younger one go there.
    """

    movable: Sequence[Movable]
    waiting: Sequence[Waiting] = ()
    budgets: Sequence[Budget] = ()
    unsettled: Collection[str] = ()
    ending: Collection[PodKey] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """At most so many ``moves``, none of which has the pool's number fall by less than ``threshold``.

    That is a share of one node: of a pool of 100 nodes a threshold of 0.1 is 0.001 of the number.
    """

    moves: int
    threshold: float


@dataclass(frozen=True, slots=True)
class Place:
    """A node, and the NUMA nodes of what a pod holds there exclusively; 0 for memory alone."""

    node: str
    numa_nodes: NUMAMask


@dataclass(frozen=True, slots=True)
class Then:
    """A pod that waited, and runs in the room that a move has made."""

    pod: Pod
    place: Place


@dataclass(frozen=True)
class Move:
    """One move. ``before`` and ``after`` are the numbers of the ``pool``, without the pods that ``then`` run.

    ``cordoned``: the nodes to cordon meanwhile. ``others``: those that kube-scheduler may choose instead of the target,
    where the gain is no less than the threshold either.
    """

    pod: Movable
    pool: str
    origin: Place
    target: Place
    before: float
    after: float
    cordoned: tuple[str, ...]
    others: tuple[str, ...] = ()
    then: tuple[Then, ...] = ()


@dataclass(frozen=True)
class DefragmentedPool:
    """The number of a pool ``before`` the first move and ``after`` the last; None where nothing of use is free.

    ``typical``: the kinds of typical pods, with how many nodes admit each before and after.
    """

    name: str
    size: int
    nodes: tuple[str, ...]
    before: float | None
    after: float | None
    typical: tuple[tuple[TypicalPod, int, int], ...]


@dataclass(frozen=True)
class Defragmented:
    """The moves in their order. Of ``movable`` pods so many were ``asked`` about.

    ``unproven``: how many further moves might bring enough, by the node that the scheduler chooses.
    """

    moves: tuple[Move, ...]
    pools: tuple[DefragmentedPool, ...]
    movable: int
    asked: int
    unproven: int
