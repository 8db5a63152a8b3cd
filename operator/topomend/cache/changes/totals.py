"""Changes of what the pods on a node take of its totals: the node's pods are listed, and a watch counts on from there.

The watch leaves running pods out, but shows each one before it runs and after it has ended, so the sum of a list stays
right. Three things it does not show. A running pod that is deleted without a grace period, or a pod that is forced away
before it runs: the sum is too high until the next list. A running pod that is resized: the sum is that of before. And
whatever happens while nobody watches: then all sums are dropped. Owns how the sum changes. Leaves when pods are listed
to ``reconcile/placement/node_pods``.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

from topomend.cache.assumed import with_used
from topomend.cache.entries import NodeTotals, PodCounted
from topomend.cache.snapshot import Snapshot, excluding, including, is_newer
from topomend.model.pods.pod import sum_of
from topomend.model.quantity import MilliQuantity

Usage = Mapping[str, MilliQuantity]


class ListBegun(NamedTuple):
    """The pods of a node are about to be listed: what the watch brings from now on may not be in the list.

    ``number`` is the list's own: one that began before a gap must not be taken for one that began after it.
    """

    node: str
    number: int

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Remember what comes meanwhile. A node that is gone has no totals."""
        if self.node not in snapshot.nodes:
            return snapshot
        totals = snapshot.totals.get(self.node, NodeTotals())
        return _with(snapshot, self.node, replace(totals, lists=totals.lists | {self.number}))


class ListFailed(NamedTuple):
    """The list of this number brought nothing."""

    node: str
    number: int

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Keep the sum of before."""
        totals = snapshot.totals.get(self.node)
        return _with(snapshot, self.node, _without_list(totals, self.number)) if totals else snapshot


class NodePodsListed(NamedTuple):
    """The list of this number: the sum of a node's pods that have not ended, and by uid the part of those that do not
    run yet."""

    node: str
    number: int
    version: str
    used: Usage
    pending: Mapping[str, Usage]

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Count on from this list, unless the sums were dropped since it began, or a newer list has come."""
        before = snapshot.totals.get(self.node)
        if before is None or self.number not in before.lists:
            return snapshot
        totals = before
        if before.used is None or not is_newer(before.version, self.version):
            totals = replace(before, version=self.version, used=self.used, pending=self.pending)
            totals = reduce(_counted, before.since, totals)
        return _with(snapshot, self.node, _without_list(totals, self.number))


class PodOnNode(NamedTuple):
    """The watch has brought a pod that has a node."""

    node: str
    pod: PodCounted

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Count it from its binding until it ends."""
        totals = snapshot.totals.get(self.node)
        if totals is None:
            return snapshot
        counted = _counted(totals, self.pod)
        if counted.lists:
            counted = replace(counted, since=(*counted.since, self.pod))
        return snapshot if counted is totals else _with(snapshot, self.node, counted)


class TotalsUnknown(NamedTuple):
    """What happened on ``node`` is not known, on any node where it is empty: a watch may have missed something."""

    node: str = ""

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Drop the sums, and lists that are under way."""
        names = (self.node,) if self.node else tuple(snapshot.totals)
        totals = {name: totals for name, totals in snapshot.totals.items() if name not in names}
        return with_used(replace(snapshot, totals=totals), names)


def _with(snapshot: Snapshot, node: str, totals: NodeTotals) -> Snapshot:
    return with_used(replace(snapshot, totals=including(snapshot.totals, node, totals)), (node,))


def _without_list(totals: NodeTotals, number: int) -> NodeTotals:
    lists = totals.lists - {number}
    return replace(totals, lists=lists, since=totals.since if lists else ())


def _counted(totals: NodeTotals, pod: PodCounted) -> NodeTotals:
    """The totals after the pod came, started to run, or ended. A list of the same time or later has it already.

    A pod that has ended is written again and again: it counts as ended once, when the watch begins to show it, or when
    it was counted as one that does not run.
    """
    if totals.used is None or not is_newer(pod.version, totals.version):
        return totals
    before = totals.pending.get(pod.uid)
    pending = excluding(totals.pending, pod.uid)
    if pod.gone:
        return totals if before is None else replace(totals, pending=pending)
    if pod.ended:
        usage = pod.usage if before is None and pod.entered else before
        return replace(totals, used=_difference(totals.used, usage), pending=pending) if usage else totals
    if before is not None:
        return totals
    return replace(totals, used=sum_of(totals.used, pod.usage), pending={**pending, pod.uid: pod.usage})


def _difference(used: Usage, usage: Usage) -> Usage:
    left = {resource: amount - usage.get(resource, 0) for resource, amount in used.items()}
    return {resource: amount for resource, amount in left.items() if amount > 0}
