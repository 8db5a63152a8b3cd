"""Promises: places held for the pods of a workload that Kueue is told to admit, until these pods come.

No pod of such a name exists. Each place counts as an assumed pod; a pod that comes takes one place of its pod set over.
Owns which pod takes which place. Leaves to ``assumed`` how it counts, and how long a promise lasts to who makes it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from topomend.cache.assumed import assume, forget
from topomend.cache.entries import Promise
from topomend.cache.snapshot import AssumedPod, PodKey, Snapshot, excluding, in_place, including
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import WatchedPod


class PlacesPromised(NamedTuple):
    """A place for each pod of a workload: by pod set, stand-ins for its pods, each with its node. ``owner`` is the uid
    of the object whose pods they will be. It ends at ``until``."""

    namespace: str
    workload: str
    owner: str
    places: Mapping[str, tuple[tuple[Pod, str], ...]]
    until: float

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Hold them in the place of an earlier promise to the workload."""
        return in_place(PromiseEnded(self.namespace, self.workload).apply_to(snapshot), self._held)

    def _held(self, snapshot: Snapshot) -> Snapshot:
        keys: dict[str, tuple[PodKey, ...]] = {}
        for pod_set, places in self.places.items():
            keys[pod_set] = tuple((self.namespace, pod.name) for pod, _ in places)
            for pod, node in places:
                held = AssumedPod(pod, (node,), self.until, promised=True)
                snapshot = assume(snapshot, (self.namespace, pod.name), held)
        promise = Promise(self.owner, keys, self.until)
        promises = including(snapshot.promises, (self.namespace, self.workload), promise)
        return replace(snapshot, promises=promises)


class PromiseProlonged(NamedTuple):
    """The places of a workload are held until then."""

    namespace: str
    workload: str
    until: float

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """The places that no pod has taken yet end later."""
        promise = snapshot.promises.get((self.namespace, self.workload))
        if promise is None:
            return snapshot
        assumed = dict(snapshot.assumed)
        for key in promise.keys:
            if key in assumed:
                assumed[key] = assumed[key]._replace(expires=self.until)
        longer = replace(promise, until=self.until)
        promises = including(snapshot.promises, (self.namespace, self.workload), longer)
        return replace(snapshot, assumed=assumed, promises=promises)


class PromiseEnded(NamedTuple):
    """The workload needs its places no longer."""

    namespace: str
    workload: str

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Give back those that no pod has taken."""
        promise = snapshot.promises.get((self.namespace, self.workload))
        if promise is None:
            return snapshot
        for key in promise.keys:
            snapshot = forget(snapshot, key)
        return replace(snapshot, promises=excluding(snapshot.promises, (self.namespace, self.workload)))


def without_ended(snapshot: Snapshot, now: float) -> Snapshot:
    """The snapshot without the promises whose time is over."""
    for (namespace, workload), promise in snapshot.promises.items():
        if promise.until <= now:
            snapshot = PromiseEnded(namespace, workload).apply_to(snapshot)
    return snapshot


def after_arrival(snapshot: Snapshot, pod: WatchedPod, until: float) -> Snapshot:
    """The snapshot in which the pod, seen for the first time, has taken the place that it was promised, if one was.

    It is assumed there until it is bound, or else until then. The scheduler or the operator may choose otherwise.
    """
    workload = _workload_of(snapshot, pod)
    if workload is None:
        return snapshot
    promise = snapshot.promises[workload]
    if pod.uid in promise.came:
        return snapshot
    pod_set = pod.pod_set if promise.places.get(pod.pod_set) else next(filter(promise.places.get, promise.places), "")
    if not pod_set:
        return snapshot
    place, *others = promise.places[pod_set]
    rest = replace(promise, places={**promise.places, pod_set: tuple(others)}, came=promise.came | {pod.uid})
    held = snapshot.assumed.get(place)
    promises = including(snapshot.promises, workload, rest) if rest.keys else excluding(snapshot.promises, workload)
    snapshot = forget(replace(snapshot, promises=promises), place)
    if held is None or pod.phase != "Pending" or pod.node:
        return snapshot
    return assume(snapshot, (pod.namespace, pod.name), AssumedPod(pod.pod, held.nodes, until))


def _workload_of(snapshot: Snapshot, pod: WatchedPod) -> PodKey | None:
    """The workload that has a promise for this pod: the one that the pod names, or that of its owner."""
    if not snapshot.promises:
        return None
    named = (pod.namespace, pod.workload)
    if named in snapshot.promises:
        return named
    if pod.owner is None:
        return None
    owned = (
        key for key, promise in snapshot.promises.items() if key[0] == pod.namespace and promise.owner == pod.owner.uid
    )
    return next(owned, None)
