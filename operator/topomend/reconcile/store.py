"""The operator's one snapshot of the cluster, shared by all threads, and the only place where it changes.

Owns the lock, which is held for few changes and never for a replay. Leaves the effect of a change to ``cache``, and
decisions to ``decide``.
"""

import threading
from collections.abc import Iterable, Sequence

from topomend.cache.changes import Change, PodAssumed, PodForgotten, apply, apply_all
from topomend.cache.snapshot import Snapshot
from topomend.decide.diagnosis.survey import Surveys
from topomend.model.pods.pod import Pod


class Store:
    """Holds the snapshot, and the surveys of it.

    ``snapshot`` is a frozen value: a thread that has read it may keep it. ``surveys`` remember what nodes answered.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.snapshot = Snapshot()
        self.surveys = Surveys()

    def apply(self, event: Change) -> tuple[Snapshot, Snapshot]:
        """Apply one change. Returns the snapshots before and after it."""
        with self._lock:
            before = self.snapshot
            self.snapshot = apply(before, event)
            return before, self.snapshot

    def apply_all(self, events: Sequence[Change]) -> None:
        """Apply changes in their order. Of those in between there is no snapshot, nor where one of them fails."""
        with self._lock:
            self.snapshot = apply_all(self.snapshot, events)

    def without(self, *pods: Pod) -> Snapshot:
        """The snapshot now, as if no pod of these names were assumed: what to decide about those pods on."""
        return _forgetting(self.snapshot, pods)

    def assume(
        self, pod: Pod, nodes: Sequence[str], decided_on: Snapshot, now: float, *, displaces: bool = False
    ) -> tuple[str, ...]:
        """Count ``pod`` against each of ``nodes``, which were chosen on the snapshot ``decided_on``.

        The decision took time, and other pods may have been assumed there since. Then nothing is assumed, and the nodes
        that have changed are returned. No two pods are sent to the same free CPUs (kube-scheduler: AssumePod).
        ``displaces``: there is no room, and kube-scheduler is to evict others.
        """
        return self.assume_all([(pod, nodes)], decided_on, now, displaces=displaces)

    def assume_all(
        self,
        pods: Sequence[tuple[Pod, Sequence[str]]],
        decided_on: Snapshot,
        now: float,
        *,
        displaces: bool = False,
    ) -> tuple[str, ...]:
        """Count pods against the nodes beside them, all or none; the rest as in ``assume``."""
        with self._lock:
            current = _forgetting(self.snapshot, (pod for pod, _ in pods))
            chosen = dict.fromkeys(name for _, nodes in pods for name in nodes)
            changed = tuple(name for name in chosen if not is_unchanged(decided_on, current, name))
            if not changed:
                for pod, nodes in pods:
                    current = apply(current, PodAssumed(pod, tuple(nodes), now, displaces)) if nodes else current
                self.snapshot = current
            return changed


def _forgetting(snapshot: Snapshot, pods: Iterable[Pod]) -> Snapshot:
    for pod in pods:
        snapshot = apply(snapshot, PodForgotten(pod.namespace, pod.name))
    return snapshot


def is_unchanged(decided_on: Snapshot, current: Snapshot, name: str) -> bool:
    """Whether the node is the one on which was decided, and a pod finds the same room there, in total too."""
    before, after = decided_on.publications.get(name), current.publications.get(name)
    if before is None or after is None or not before.is_same_room(after):
        return False
    old, new = decided_on.nodes.get(name), current.nodes.get(name)
    return old is new or (old is not None and new is not None and old == new and old.used == new.used)
