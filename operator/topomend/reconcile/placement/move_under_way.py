"""The one move that is under way: where its next pod goes, and what is held for it until then.

The target is held by a stand-in: an assumed pod of which no API server knows, under a name that no pod can have. It
counts on the target, in its state and in its totals, until the next pod is assumed in its place. A pod that its
controller makes before the eviction is not the next one: the place is held against it too, and the eviction is not
asked for. Pods of a ReplicaSet that come later are alike, and the first one counts. Owns who the next pod is, and which
nodes it is kept from. Leaves when a move begins and ends to ``defragment.campaign``.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace

from topomend.decide.defragment.movable import STATEFUL_SET
from topomend.decide.defragment.moves import Move
from topomend.decide.diagnosis.feasibility import NO_EXCLUDED_NODES, ExcludedNodes
from topomend.decide.diagnosis.node_status import vacated
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import WatchedPod


@dataclass(frozen=True)
class UnderWay:
    """``pod`` is the evicted one. ``comes_by``: when its next one is given up that has not come, in seconds.

    ``next_pod``: the next one's name and uid, once a worker has met it gated; ``runs_by``: when that is given up.
    ``steered``: whether it is kept from the nodes of the move. ``evicting``: whether the eviction was asked for;
    ``scaled``: whether a worker has met a new pod of the controller before that.
    """

    move: Move
    pod: WatchedPod
    stand_in: Pod
    comes_by: float
    runs_by: float
    next_pod: tuple[str, str] | None = None
    steered: bool = True
    evicting: bool = False
    scaled: bool = False


def stand_in_of(move: Move) -> Pod:
    """The pod that holds the place. No real one has a name with a slash."""
    return replace(move.pod.pod, name=f"{move.pod.pod.name}/moved", uid="")


class MoveUnderWay:
    """May be used by several threads: workers ask while they choose nodes, and one thread begins and ends moves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.current: UnderWay | None = None

    def begin(self, under_way: UnderWay) -> None:
        """Once the place is held."""
        with self._lock:
            self.current = under_way

    def evict(self, gated: Iterable[WatchedPod]) -> bool:
        """The eviction is about to be asked for: the next pod may come within milliseconds of that.

        False where the pod's controller has made another one since, which is among those that wait ``gated`` or was met
        by a worker: then it is not to be asked for.
        """
        with self._lock:
            current = self.current
            if current is None or current.scaled or any(_is_beside(current.pod, pod) for pod in gated):
                return False
            self.current = replace(current, evicting=True)
            return True

    def end(self) -> None:
        """There is no move under way."""
        with self._lock:
            self.current = None

    def let_go(self) -> None:
        """The next pod may go to any node that admits it."""
        with self._lock:
            if self.current:
                self.current = replace(self.current, steered=False)

    def next_is_gone(self) -> None:
        """The next pod has been deleted: the one after it counts."""
        with self._lock:
            if self.current:
                self.current = replace(self.current, next_pod=None)

    def excluded(self, pod: WatchedPod) -> ExcludedNodes:
        """The nodes from which the pod is kept; none unless it is the next one of the moved pod."""
        current = self._met(pod)
        if current is None or not current.steered:
            return NO_EXCLUDED_NODES
        return {name: vacated(name) for name in current.move.cordoned}

    def stand_in(self, pod: WatchedPod) -> Pod | None:
        """What holds the place of the pod; None unless it is the next one of the moved pod."""
        current = self._met(pod)
        return current.stand_in if current else None

    def _met(self, pod: WatchedPod) -> UnderWay | None:
        """The move if this gated pod is its next one: the first that its controller has made since the eviction."""
        with self._lock:
            current = self.current
            if current is None or not _is_beside(current.pod, pod):
                return None
            if not current.evicting:
                self.current = replace(current, scaled=True)
                return None
            if not _may_follow(current.pod, pod):
                return None
            if current.next_pod is None:
                self.current = current = replace(current, next_pod=(pod.name, pod.uid))
            return current if current.next_pod == (pod.name, pod.uid) else None


def _is_beside(moved: WatchedPod, pod: WatchedPod) -> bool:
    """Whether it is a new pod of the same controller."""
    if pod.owner is None or moved.owner is None or pod.uid == moved.uid:
        return False
    return bool(pod.gates) and pod.namespace == moved.namespace and pod.owner.uid == moved.owner.uid


def _may_follow(moved: WatchedPod, pod: WatchedPod) -> bool:
    """Whether it may be the next one: that of a StatefulSet has the name of the moved one."""
    return pod.name == moved.name or (moved.owner is not None and moved.owner.kind != STATEFUL_SET)
