"""The pods that wait for nodes, and which of them are to be looked at when something changes.

Thousands of nodes change all the time, and each change matters to few of those that wait: to those that the node would
take now. The others are not looked at.
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
    """Remembers who waits for what. ``enqueue`` is told whom to look at. May be used by several threads."""

    def __init__(self, store: Store, enqueue: Callable[[PodID], None]) -> None:
        self._store, self._enqueue = store, enqueue
        self._waiting: dict[PodID, Result] = {}
        self._told = store.snapshot
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many pods wait."""
        with self._lock:
            return len(self._waiting)

    def stop(self, pod: PodID) -> Snapshot:
        """``pod`` no longer waits: it is looked at. The view before that, to be handed to ``begin``."""
        with self._lock:
            self._waiting.pop(pod, None)
        return self._store.snapshot

    def begin(self, pod: PodID, result: Result, since: Snapshot) -> None:
        """Have ``pod`` looked at when what ``result`` names happens, or has happened ``since`` it was looked at."""
        with self._lock:
            self._waiting[pod] = result
        if _Change(since, self._store.snapshot).matters_to(pod, result):
            self._enqueue(pod)

    def clear(self) -> None:
        """Nobody waits."""
        with self._lock:
            self._waiting.clear()

    def tell(self) -> None:
        """Have those looked at to whom matters what has changed since the last time; the oldest first, for the others
        would give way."""
        before, self._told = self._told, self._store.snapshot
        with self._lock:
            waiting = list(self._waiting.items())
        change = _Change(before, self._told)
        if not waiting or not change.happened:
            return
        since = change.after.gated_since
        concerned = [pod for pod, result in waiting if change.matters_to(pod, result)]
        for pod in sorted(concerned, key=lambda each: since.get((each.namespace, each.name), 0.0)):
            self._enqueue(pod)


class _Change:
    """From one view to a later one."""

    def __init__(self, before: Snapshot, after: Snapshot) -> None:
        self._before, self.after = before, after

    @property
    def happened(self) -> bool:
        """Whether there is anything that may matter to somebody."""
        return bool(self._nodes) or self._fewer_wait

    def matters_to(self, pod: PodID, result: Result) -> bool:
        """Whether ``pod``, which waits for ``result``, is to be looked at: so is one that is gone, to wait no more."""
        if not self.happened:
            return False
        known = self._known(pod)
        if known is None or result.on_any_change:
            return True
        if result.on_topology_change and self._machines:
            return True
        return result.on_capacity and bool(self._nodes) and self._is_room_for(known)

    @cached_property
    def _nodes(self) -> frozenset[str]:
        """Those that changed, came or went."""
        before, after = self._before, self.after
        said = {
            name
            for name in _replaced(before.publications, after.publications)
            if _says_another_thing(before.publications.get(name), after.publications.get(name))
        }
        return frozenset(said | _replaced(before.nodes, after.nodes) | _replaced(before.mismatches, after.mismatches))

    @cached_property
    def _fewer_wait(self) -> bool:
        """Whether a pod that waited does so no more: what was kept for it is free."""
        before, after = self._before, self.after
        return not (before.gated.keys() <= after.gated.keys() and before.refused.keys() <= after.refused.keys())

    @cached_property
    def _machines(self) -> bool:
        return topology_changed(self._before, self.after)

    def _known(self, pod: PodID) -> WatchedPod | None:
        """The pod, or the replacement that waits in its place."""
        refusal = self.after.refused.get(pod.uid)
        return self.after.gated.get((pod.namespace, pod.name)) or (refusal.pod if refusal else None)

    def _is_room_for(self, pod: WatchedPod) -> bool:
        # What was let go once has been narrowed: where else it may go stands in its record.
        return pod.released or any_node_admits(self.after, self._nodes, pod.pod, pod.placement)


def _replaced(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    """The keys of which one does not hold the very value that the other holds."""
    if before is after:
        return set()
    found = {key for key, value in after.items() if before.get(key) is not value}
    return found | (before.keys() - after.keys())


def _says_another_thing(before: Publication | None, after: Publication | None) -> bool:
    """That its agent only said it again is no change."""
    if before is None or after is None:
        return before is not after
    if before.state is not after.state or before.problem != after.problem:
        return True
    return before.ended != after.ended or before.assumed_pods != after.assumed_pods
