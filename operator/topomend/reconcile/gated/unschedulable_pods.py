"""Pods that wait for a node, and which of them a change of the cluster requeues.

Thousands of nodes change all the time, and a change matters to few pods: those that the changed node would admit.
That is asked in a thread of its own, for all changes since the last time together: who applies a change never waits.
Owns these queueing hints (kube-scheduler: UnschedulablePods, QueueingHintFn). Leaves to ``decide`` what a node admits.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from topomend.cache.snapshot import Publication, Snapshot, replaced, topology_changed
from topomend.decide.diagnosis.feasibility import any_node_admits
from topomend.decide.diagnosis.node_status import kind_of
from topomend.model.nodes.node import Node
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.nodes.replay_shares import new_shares, record_overspent
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import Result
from topomend.reconcile.store import Store
from topomend.replay.effort import Overspent
from topomend.replay.fast_path.admission import PodShape
from topomend.replay.fast_path.capacity import prepare
from topomend.runtime.queues.fair_queue import RoundRobin

ASKING_SECONDS = 0.2
"""How long nodes that changed are asked about pods that wait: the next change waits. All other pods are requeued."""


class UnschedulablePods:
    """Waiting pods and the changes for each. ``enqueue`` gets the pods to reconcile. May be used by several threads.

    ``wait_for_change`` and ``requeue_affected`` alone are for one thread.
    """

    def __init__(self, store: Store, enqueue: Callable[[PodID], None]) -> None:
        self._store, self._enqueue = store, enqueue
        self._waiting: dict[PodID, tuple[Result, PodShape | None]] = {}
        self._changed = threading.Event()
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
        watched = _watched(self._store.snapshot, pod)
        kind = kind_of(watched.pod, watched.placement) if watched else None
        with self._lock:
            self._waiting[pod] = result, kind
        # Read once the pod waits: a change that ``requeue_affected`` has handled before is in it, a later one is not.
        after = self._store.snapshot
        if _Difference(self._store, since, after).affects(pod, result, kind):
            self._enqueue(pod)

    def clear(self) -> None:
        """Remove all pods."""
        with self._lock:
            self._waiting.clear()

    def changed(self) -> None:
        """The store has changed. Returns at once."""
        self._changed.set()

    def wait_for_change(self, seconds: float) -> bool:
        """Wait until the store has changed since the last call, at most so many seconds. Returns whether it has."""
        if not self._changed.wait(seconds):
            return False  # without clearing it: it may have changed since
        self._changed.clear()
        return True

    def requeue_affected(self) -> None:
        """Enqueue the pods that the changes since the last call affect, in order of turns: a later pod would yield."""
        before, self._handled = self._handled, self._store.snapshot
        difference = _Difference(self._store, before, self._handled)
        difference.prepare()
        if not difference.is_relevant:
            return
        with self._lock:
            results = self._waiting.copy()
        for pod in _in_turns(self._in_order(results, difference.after)):
            if difference.affects(pod, *results[pod]):
                self._enqueue(pod)

    def requeue_blocked(self) -> None:
        """Enqueue the pods that a node admits and that waited for others, in order of turns: NUMA nodes are free."""
        with self._lock:
            blocked = [pod for pod, (result, _) in self._waiting.items() if result.on_any_change]
        for pod in self._in_order(blocked, self._store.snapshot):
            self._enqueue(pod)

    @staticmethod
    def _in_order(pods: Iterable[PodID], snapshot: Snapshot) -> list[PodID]:
        def order(pod: PodID) -> tuple[int, float]:
            watched, since = _watched(snapshot, pod), snapshot.gated_since.get((pod.namespace, pod.name), 0.0)
            return -watched.priority if watched else 0, since

        return sorted(pods, key=order)


def _in_turns(pods: Iterable[PodID]) -> Iterator[PodID]:
    """Namespaces take turns: one whose pods are of many kinds, about which each is asked, delays no other."""
    turns: RoundRobin[PodID] = RoundRobin()
    for pod in pods:
        turns.push(pod.namespace, pod)
    while (next_pod := turns.pop()) is not None:
        yield next_pod


class _Difference:
    """The differences between two snapshots. Pods of one kind are asked about once, and within ASKING_SECONDS."""

    def __init__(self, store: Store, before: Snapshot, after: Snapshot) -> None:
        self._store, self._before, self.after = store, before, after
        self._until = time.monotonic() + ASKING_SECONDS
        self._admitted: dict[PodShape, bool] = {}

    def prepare(self) -> None:
        """Read the free amounts of the nodes that changed, so that the next pod need not wait for that."""
        for name in self._nodes:
            publication = self.after.publications.get(name)
            if publication is not None and not publication.problem:
                prepare(publication.state)

    @property
    def is_relevant(self) -> bool:
        """Whether it may affect any pod: a node has changed, or NUMA nodes that were reserved for a pod are free."""
        return bool(self._nodes) or self._before.departures != self.after.departures

    def affects(self, pod: PodID, result: Result, kind: PodShape | None) -> bool:
        """Whether to reconcile ``pod``, which waits for ``result``; a pod that is gone is, so that it leaves."""
        if not self.is_relevant:
            return False
        watched = _watched(self.after, pod)
        if watched is None or result.on_any_change:
            return True
        if result.on_topology_change and self._topology:
            return True
        return result.on_capacity and bool(self._nodes) and self._may_admit(watched, kind)

    @cached_property
    def _nodes(self) -> frozenset[str]:
        return frozenset(changed_nodes(self._before, self.after))

    @cached_property
    def _topology(self) -> bool:
        return topology_changed(self._before, self.after)

    def _may_admit(self, pod: WatchedPod, kind: PodShape | None) -> bool:
        # An ungated pod was narrowed to certain nodes. Only its record contains its original node affinity.
        if pod.released or kind is None:
            return True
        if kind not in self._admitted:
            self._admitted[kind] = time.monotonic() > self._until or self._any_admits(pod)
        return self._admitted[kind]

    def _any_admits(self, pod: WatchedPod) -> bool:
        """Whether one of the changed nodes admits the pod. One that overspends is set aside and does not."""
        names = set(self._nodes)
        while True:
            try:
                return any_node_admits(self.after, names, pod.pod, pod.placement, new_shares())
            except Overspent as overspent:
                if record_overspent(self._store, overspent):
                    names.discard(overspent.node)


def changed_nodes(before: Snapshot, after: Snapshot) -> set[str]:
    """The nodes that changed, came or went between the two, those left out that are no more than fuller in total."""
    published = {
        name
        for name in replaced(before.publications, after.publications)
        if _differs(before.publications.get(name), after.publications.get(name))
    }
    nodes = {
        name
        for name in replaced(before.nodes, after.nodes)
        if not _is_fuller(before.nodes.get(name), after.nodes.get(name))
    }
    return published | nodes | replaced(before.mismatches, after.mismatches)


def _watched(snapshot: Snapshot, pod: PodID) -> WatchedPod | None:
    """The pod, or its gated replacement."""
    refusal = snapshot.refused.get(pod.uid)
    return snapshot.gated.get((pod.namespace, pod.name)) or (refusal.pod if refusal else None)


def _differs(before: Publication | None, after: Publication | None) -> bool:
    """Whether more changed than that the agent confirmed its publication."""
    if before is None or after is None:
        return before is not after
    return not before.is_same_room(after)


def _is_fuller(before: Node | None, after: Node | None) -> bool:
    """Whether nothing is new of the node but that its pods leave less in total, which admits no pod."""
    if before is None or after is None or before.used is None or after.used is None or before != after:
        return False
    return all(after.used.get(resource, 0) >= amount for resource, amount in before.used.items())
