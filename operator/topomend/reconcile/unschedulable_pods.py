"""Pods that wait for a node, and which of them a change of the cluster requeues.

Thousands of nodes change all the time, and a change matters to few pods: those that the changed node would admit.
Owns these queueing hints (kube-scheduler: UnschedulablePods, QueueingHintFn). Leaves to ``decide`` what a node admits.
"""

import threading
from collections.abc import Callable, Mapping
from functools import cached_property

from topomend.cache.snapshot import Publication, Snapshot, topology_changed
from topomend.decide.feasibility import any_node_admits
from topomend.model.cluster import WatchedPod
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import Result
from topomend.reconcile.store import Store


class UnschedulablePods:
    """Waiting pods and the changes for each. ``enqueue`` gets the pods to reconcile. May be used by several threads.

    ``requeue_affected`` alone is for one thread.
    """

    def __init__(self, store: Store, enqueue: Callable[[PodID], None]) -> None:
        self._store, self._enqueue = store, enqueue
        self._waiting: dict[PodID, Result] = {}
        self._handled = store.snapshot
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many pods wait."""
        with self._lock:
            return len(self._waiting)

    def remove(self, pod: PodID) -> Snapshot:
        """``pod`` is about to be reconciled. Returns the snapshot before that, to be passed to ``add``."""
        with self._lock:
            self._waiting.pop(pod, None)
        return self._store.snapshot

    def add(self, pod: PodID, result: Result, since: Snapshot) -> None:
        """Enqueue ``pod`` on the changes that ``result`` names, those ``since`` the last reconciliation included."""
        with self._lock:
            self._waiting[pod] = result
        if _Difference(since, self._store.snapshot).affects(pod, result):
            self._enqueue(pod)

    def clear(self) -> None:
        """Remove all pods."""
        with self._lock:
            self._waiting.clear()

    def requeue_affected(self) -> None:
        """Enqueue the pods that the changes since the last call affect, oldest first: a younger pod would yield."""
        before, self._handled = self._handled, self._store.snapshot
        with self._lock:
            waiting = list(self._waiting.items())
        difference = _Difference(before, self._handled)
        if not waiting or not difference.is_relevant:
            return
        since = difference.after.gated_since
        affected = [pod for pod, result in waiting if difference.affects(pod, result)]
        for pod in sorted(affected, key=lambda pod: since.get((pod.namespace, pod.name), 0.0)):
            self._enqueue(pod)


class _Difference:
    """The differences between two snapshots."""

    def __init__(self, before: Snapshot, after: Snapshot) -> None:
        self._before, self.after = before, after

    @property
    def is_relevant(self) -> bool:
        """Whether it may affect any pod."""
        return bool(self._nodes) or self._fewer_wait

    def affects(self, pod: PodID, result: Result) -> bool:
        """Whether to reconcile ``pod``, which waits for ``result``; a pod that is gone is, so that it leaves."""
        if not self.is_relevant:
            return False
        watched = self._watched(pod)
        if watched is None or result.on_any_change:
            return True
        if result.on_topology_change and self._topology:
            return True
        return result.on_capacity and bool(self._nodes) and self._may_admit(watched)

    @cached_property
    def _nodes(self) -> frozenset[str]:
        """The nodes that changed, came or went."""
        before, after = self._before, self.after
        published = {
            name
            for name in _replaced(before.publications, after.publications)
            if _differs(before.publications.get(name), after.publications.get(name))
        }
        return frozenset(
            published | _replaced(before.nodes, after.nodes) | _replaced(before.mismatches, after.mismatches)
        )

    @cached_property
    def _fewer_wait(self) -> bool:
        """Whether a pod stopped waiting: NUMA nodes that were reserved for it are free."""
        before, after = self._before, self.after
        return not (before.gated.keys() <= after.gated.keys() and before.refused.keys() <= after.refused.keys())

    @cached_property
    def _topology(self) -> bool:
        return topology_changed(self._before, self.after)

    def _watched(self, pod: PodID) -> WatchedPod | None:
        """The pod, or its gated replacement."""
        refusal = self.after.refused.get(pod.uid)
        return self.after.gated.get((pod.namespace, pod.name)) or (refusal.pod if refusal else None)

    def _may_admit(self, pod: WatchedPod) -> bool:
        # An ungated pod was narrowed to certain nodes. Only its record contains its original node affinity.
        return pod.released or any_node_admits(self.after, self._nodes, pod.pod, pod.placement)


def _replaced(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    """The keys whose values are not the same object in both mappings."""
    if before is after:
        return set()
    new = {key for key, value in after.items() if before.get(key) is not value}
    return new | (before.keys() - after.keys())


def _differs(before: Publication | None, after: Publication | None) -> bool:
    """Whether more changed than that the agent confirmed its publication."""
    if before is None or after is None:
        return before is not after
    if before.state is not after.state or before.problem != after.problem:
        return True
    return before.ended != after.ended or before.assumed_pods != after.assumed_pods
