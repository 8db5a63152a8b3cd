"""The operator's one snapshot of the cluster, shared by all threads, and the only place where it changes.

Owns the lock. Leaves the effect of a change to ``cache``, and decisions to ``decide``.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from topomend.cache.changes import Change, PodAssumed, PodForgotten, apply
from topomend.cache.snapshot import Snapshot
from topomend.model.pod import Pod


@dataclass(slots=True)
class Transaction:
    """A decision in progress: its ``snapshot`` contains the pods assumed so far. Other threads do not see it yet.

    Times are in seconds, by the clock of the snapshot.
    """

    snapshot: Snapshot

    def assume(self, pod: Pod, nodes: tuple[str, ...], now: float) -> None:
        """Count ``pod`` against each of ``nodes`` until a scheduler has bound it to one (kube-scheduler: AssumePod)."""
        self.snapshot = apply(self.snapshot, PodAssumed(pod, nodes, now))

    def forget(self, namespace: str, name: str) -> None:
        """Take the assumption of the pod of this name back, where there is one (kube-scheduler: ForgetPod)."""
        self.snapshot = apply(self.snapshot, PodForgotten(namespace, name))


class Store:
    """Holds the snapshot. ``snapshot`` is a frozen value: a thread that has read it may keep it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.snapshot = Snapshot()

    def apply(self, event: Change) -> tuple[Snapshot, Snapshot]:
        """Apply one change. Returns the snapshots before and after it."""
        with self._lock:
            before = self.snapshot
            self.snapshot = apply(before, event)
            return before, self.snapshot

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Decide and assume in one step: nothing changes between, so that no two pods are sent to the same free CPUs.

        Holds the store's lock, so the block must not call the store. An exception leaves the snapshot as it was.
        """
        with self._lock:
            transaction = Transaction(self.snapshot)
            yield transaction
            self.snapshot = transaction.snapshot
