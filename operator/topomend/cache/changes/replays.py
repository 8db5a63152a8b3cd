"""What the operator learns of a node by replay: that it differs from the kubelet, or takes too long."""

from dataclasses import replace
from typing import NamedTuple

from topomend.cache.changes.trust import with_distrust
from topomend.cache.entries import ReplayMismatches, SetAside
from topomend.cache.snapshot import Snapshot, including

MISMATCH_SECONDS = 600.0
"""How long a mismatch between a kubelet and replay counts."""

ASIDE_SECONDS, LONGEST_ASIDE_SECONDS = 60.0, 3600.0
"""How long a node is set aside at first, twice as long each further time, and at most. Replay of a node costs its share
(``replay.effort``) each time. What it cost is forgotten after as long again as the longest."""


class MismatchDetected(NamedTuple):
    """A node's kubelet refused the pod of this uid, although replay of its published state admits it."""

    node: str
    uid: str
    now: float

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Count it against the node until the node admits a pod as predicted, its topology changes, or it expires."""
        before = snapshot.mismatches.get(self.node)
        pods = before.pods if before else frozenset()
        if self.uid in pods:
            return snapshot
        return replace(
            snapshot,
            mismatches=including(snapshot.mismatches, self.node, ReplayMismatches(pods | {self.uid}, self.now)),
        )


class ReplayOverspent(NamedTuple):
    """Replay of a node took longer than its share."""

    node: str
    now: float

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """From the second time on set the node aside: its state counts as unknown, for longer each time."""
        before = snapshot.set_aside.get(self.node)
        if before and before.active:
            return snapshot
        times = before.times + 1 if before else 0
        seconds = min(ASIDE_SECONDS * 2.0 ** min(max(0, times - 1), 60), LONGEST_ASIDE_SECONDS)
        set_aside = including(snapshot.set_aside, self.node, SetAside(times, self.now + seconds, active=times > 0))
        return with_distrust(replace(snapshot, set_aside=set_aside), (self.node,))
