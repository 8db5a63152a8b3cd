"""Places that pods of lower priority leave, held for the waiting pods for which they were evicted.

A place is held in two ways. The waiting pod is nominated for the node, so that kube-scheduler keeps its totals free of
every pod of no higher priority, whoever gates that. And all NUMA nodes of the node are reserved, so that no later gated
pod is ungated for it: on which one it comes depends on whether the victims have left by then. Neither keeps the NUMA
node from a pod that nobody gates and for which enough is left in total: ``decide/queue/victims`` evicts no pod whose
next one would be such. Owns how long a place is held. Leaves what a nomination means to kube-scheduler, and
reservations to ``decide/queue/order``.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from topomend.cache.snapshot import Snapshot
from topomend.decide.queue.order import Reservation
from topomend.decide.queue.victims import Preemption
from topomend.kube.client import Client
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.object_faults import ObjectFaults
from topomend.reconcile.store import Store
from topomend.relaunch import pod_requests


@dataclass(frozen=True, slots=True)
class _Place:
    reservation: Reservation
    until: float


class HeldPlaces:
    """Holds places. ``reservations`` may be called by any thread, the rest by one. Times are in seconds."""

    def __init__(
        self, client: Client, store: Store, faults: ObjectFaults, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._store, self._faults, self._clock = client, store, faults, clock
        self._places: Mapping[str, _Place] = {}

    def reservations(self) -> Sequence[Reservation]:
        """The NUMA nodes that are held now."""
        now = self._clock()
        return tuple(place.reservation for place in self._places.values() if now < place.until)

    def awaited(self) -> Mapping[str, Sequence[Pod]]:
        """The pods for which places are held, by node."""
        by_node: dict[str, list[Pod]] = {}
        for reservation in self.reservations():
            by_node.setdefault(reservation.node, []).append(reservation.pod.pod)
        return by_node

    def has(self, pod: WatchedPod, node: str = "") -> bool:
        """Whether a place is held for the pod, on this node if one is given."""
        place = self._places.get(pod.uid)
        return place is not None and node in ("", place.reservation.node)

    def hold(self, pod: WatchedPod, chosen: Preemption, until: float) -> bool:
        """Hold the place for ``pod`` until it is ungated, at most ``until``; any other of the pod's is given up.

        Returns False, and holds nothing, where the pod has changed or nothing is known of the node any more. Raises
        APIError.
        """
        publication = self._store.snapshot.publications.get(chosen.node)
        if publication is None:
            return False
        # A nomination that was taken back is still in the snapshot for a moment.
        is_nominated = self.has(pod, chosen.node) and pod.nominated == chosen.node
        if not is_nominated and not pod_requests.nominate(self._client, pod, chosen.node):
            return False
        reservation = Reservation(pod, chosen.node, publication.state.machine.numa_mask)
        self._places = {**self._places, pod.uid: _Place(reservation, until)}
        return True

    def extend(self, pod: WatchedPod, until: float) -> None:
        """Hold the pod's place, if it has one, for longer."""
        if place := self._places.get(pod.uid):
            self._places = {**self._places, pod.uid: _Place(place.reservation, until)}

    def give_up_for(self, pod: WatchedPod) -> None:
        """Give up the place of this pod; ``give_up`` takes the nomination back."""
        self._places = {uid: place for uid, place in self._places.items() if uid != pod.uid}

    def give_up(self) -> None:
        """Give up the places of pods that are no longer gated or whose time is over, and nominations of gated pods for
        which no place is held: another operator has led since. Raises APIError."""
        snapshot, now = self._store.snapshot, self._clock()
        self._places = {
            uid: place
            for uid, place in self._places.items()
            if now < place.until and _is_gated(snapshot, place.reservation.pod)
        }
        for pod in snapshot.gated.values():
            if pod.nominated and pod.uid not in self._places:
                with self._faults.of(pod.namespace, pod.name):
                    pod_requests.nominate(self._client, pod, "")


def _is_gated(snapshot: Snapshot, pod: WatchedPod) -> bool:
    gated = snapshot.gated.get((pod.namespace, pod.name))
    return gated is not None and gated.uid == pod.uid
