"""The pods that wait for nodes, and which of them are to be looked at when something changes.

Thousands of nodes change all the time, and each change matters to few of those that wait: to those that the node would
take now. The others are not looked at.
"""

import threading
from collections.abc import Callable, Mapping
from functools import cached_property

from topomend.controller.again import Again
from topomend.controller.pod_id import PodID
from topomend.controller.store import Store
from topomend.decide.candidates import has_room
from topomend.model.cluster import WatchedPod
from topomend.watch.view import ClusterView, Publication, differ_when_empty


class Waiting:
    """Remembers who waits for what. ``look_at`` is told whom to look at. May be used by several threads."""

    def __init__(self, store: Store, look_at: Callable[[PodID], None]) -> None:
        self._store, self._look_at = store, look_at
        self._waiting: dict[PodID, Again] = {}
        self._told = store.view
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many pods wait."""
        with self._lock:
            return len(self._waiting)

    def stop(self, pod: PodID) -> ClusterView:
        """``pod`` no longer waits: it is looked at. The view before that, to be handed to ``begin``."""
        with self._lock:
            self._waiting.pop(pod, None)
        return self._store.view

    def begin(self, pod: PodID, again: Again, since: ClusterView) -> None:
        """Have ``pod`` looked at when what ``again`` names happens, or has happened ``since`` it was looked at."""
        with self._lock:
            self._waiting[pod] = again
        if _Change(since, self._store.view).matters_to(pod, again):
            self._look_at(pod)

    def clear(self) -> None:
        """Nobody waits."""
        with self._lock:
            self._waiting.clear()

    def tell(self) -> None:
        """Have those looked at to whom matters what has changed since the last time; the oldest first, for the others
        would give way."""
        before, self._told = self._told, self._store.view
        with self._lock:
            waiting = list(self._waiting.items())
        change = _Change(before, self._told)
        if not waiting or not change.happened:
            return
        since = change.after.gated_since
        concerned = [pod for pod, again in waiting if change.matters_to(pod, again)]
        for pod in sorted(concerned, key=lambda each: since.get((each.namespace, each.name), 0.0)):
            self._look_at(pod)


class _Change:
    """From one view to a later one."""

    def __init__(self, before: ClusterView, after: ClusterView) -> None:
        self._before, self.after = before, after

    @property
    def happened(self) -> bool:
        """Whether there is anything that may matter to somebody."""
        return bool(self._nodes) or self._fewer_wait

    def matters_to(self, pod: PodID, again: Again) -> bool:
        """Whether ``pod``, which waits for ``again``, is to be looked at: so is one that is gone, to wait no more."""
        if not self.happened:
            return False
        known = self._known(pod)
        if known is None or again.on_any_change:
            return True
        if again.on_machine_change and self._machines:
            return True
        return again.on_room and bool(self._nodes) and self._is_room_for(known)

    @cached_property
    def _nodes(self) -> frozenset[str]:
        """Those that changed, came or went."""
        before, after = self._before, self.after
        said = {
            name
            for name in _replaced(before.publications, after.publications)
            if _says_another_thing(before.publications.get(name), after.publications.get(name))
        }
        return frozenset(said | _replaced(before.nodes, after.nodes) | _replaced(before.doubts, after.doubts))

    @cached_property
    def _fewer_wait(self) -> bool:
        """Whether a pod that waited does so no more: what was kept for it is free."""
        before, after = self._before, self.after
        return not (before.gated.keys() <= after.gated.keys() and before.refused.keys() <= after.refused.keys())

    @cached_property
    def _machines(self) -> bool:
        return differ_when_empty(self._before, self.after)

    def _known(self, pod: PodID) -> WatchedPod | None:
        """The pod, or the replacement that waits in its place."""
        refusal = self.after.refused.get(pod.uid)
        return self.after.gated.get((pod.namespace, pod.name)) or (refusal.pod if refusal else None)

    def _is_room_for(self, pod: WatchedPod) -> bool:
        # What was let go once has been narrowed: where else it may go stands in its record.
        return pod.released or has_room(self.after, self._nodes, pod.pod, pod.placement)


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
    return before.ended != after.ended or before.coming != after.coming
