"""Which nodes have changed since a workload was asked about, by numbers in their order.

A workload that waits would keep the cluster of that time in memory, with all its pods: 2,000 of them as many clusters.
So it keeps a number. Owns the numbers. Leaves what counts as a change to ``gated/unschedulable_pods``.
"""

from itertools import takewhile

from topomend.cache.snapshot import Snapshot
from topomend.reconcile.gated.unschedulable_pods import changed_nodes


class ChangedSince:
    """For one thread. One snapshot is kept, the newest."""

    def __init__(self) -> None:
        self._noted, self._number = Snapshot(), 0
        self._changed: dict[str, int] = {}

    def number_of(self, snapshot: Snapshot) -> int:
        """The number of the snapshot, which is no older than that of the call before."""
        if snapshot is self._noted:
            return self._number
        self._number += 1
        for name in changed_nodes(self._noted, snapshot):
            self._changed.pop(name, None)  # the newest are last
            self._changed[name] = self._number
        for name in self._changed.keys() - snapshot.nodes.keys():
            del self._changed[name]
        self._noted = snapshot
        return self._number

    def since(self, number: int) -> set[str]:
        """The nodes that have come or changed after the snapshot of this number, up to that of the last call."""
        return set(takewhile(lambda name: self._changed[name] > number, reversed(self._changed)))
