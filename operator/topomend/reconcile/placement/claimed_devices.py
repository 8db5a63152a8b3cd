"""Which devices are free on the nodes that are about to be chosen for a pod with claims (DRA).

Nothing is watched: a cluster's slices are hundreds of megabytes. The slices of a few nodes are asked for, the best that
admit the pod, and remembered; all claims, of which no more is kept than the devices that they have, are listed now and
then. Owns what is asked of the API server, how often, and which devices pods may get that were let go just now. Leaves
what follows from them to ``decide.beside_devices``: no more than a preference, so that a pod waits for nothing here.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

from topomend.base.bounded_dict import BoundedDict
from topomend.cache.snapshot import PodKey, Snapshot
from topomend.decide.claims.beside_devices import KnownDevices
from topomend.decide.diagnosis.feasibility import diagnose
from topomend.kube.client import Client
from topomend.kube.devices.device_supply import (
    TakenDevices,
    TooManyDevices,
    read_classes,
    read_devices,
    read_pod_claims,
    read_taint_rules,
    read_taken_devices,
    supply_of,
)
from topomend.kube.errors import APIError, Forbidden, NotFound, Unanswered
from topomend.kube.resources import PODS, Resource
from topomend.model.devices.device_supply import Part, PodClaims
from topomend.model.devices.offered_device import OfferedDevice
from topomend.model.pods.pod import requests_of
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.store import Store
from topomend.replay.effort import UNLIMITED, Effort
from topomend.wire.devices.device_class import DeviceClass
from topomend.wire.devices.resource_slice import TaintRule

MAX_NODES, MAX_KNOWN_NODES = 32, 256
"""The slices of how many nodes are asked for at a time, the best that admit the pod, and of how many remembered. One
slice of 128 devices takes 3 ms and 70 KiB."""

SLICES_SECONDS, CLAIMS_SECONDS, LISTS_SECONDS = 60.0, 10.0, 2.0
"""How long a node's slices are good, the claims of one pod, and at least how long the list of all claims."""

LISTING_SHARE = 0.02
"""The share of a CPU that listing all claims may take: 40,000 take half a second."""

READING_SECONDS = 2.0
"""After how long nothing more is asked for one pod. A pod waits as long while that is done for another: an etcd that
stands still for a moment must not cost it its devices."""

MAX_DEVICES = 4_096
"""Devices of one node, and such as every node may use; where there are more, nothing is known of them. The driver of a
node, and whoever has its credentials, may write any number of slices of it."""

OFF_SECONDS, REST_SECONDS = 300.0, 30.0
"""How long nobody asks where the API is not served or may not be read, and after any other failure."""

BOUND_SECONDS = 1.0
"""How old what a pod may have got must be before a list of claims counts more, if the pod is assumed nowhere."""

MAX_PODS, MAX_KNOWN_CLAIMS, MAX_SAID = 1_000, 256, 1_000

_Devices: TypeAlias = tuple[OfferedDevice, ...]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Lists:
    """What is listed for all pods."""

    rules: tuple[TaintRule, ...]
    classes: tuple[DeviceClass, ...]
    taken: TakenDevices


@dataclass(frozen=True, slots=True)
class _LetGo:
    """The devices on ``node`` that a pod may get that was let go at ``moment``."""

    key: PodKey
    node: str
    parts: tuple[Part, ...]
    moment: float


class ClaimedDevices:
    """Looks devices up. May be used by several threads, a pod each. Times are in seconds.

    ``is_served`` says whether the API was there when it was last looked for. ``cpu_clock`` is the CPU time of the
    calling thread.
    """

    def __init__(  # noqa: PLR0913  two clocks, and when nobody is to be asked
        self,
        client: Client,
        store: Store,
        *,
        enabled: bool,
        is_served: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._client, self._store = client, store
        self._enabled, self._is_served = enabled, is_served
        self._clock, self._cpu_clock = clock, cpu_clock
        self._reading, self._lock = threading.BoundedSemaphore(1), threading.Lock()
        self._lists: _Lists | None = None
        self._lists_due = self._rests_until = 0.0
        self._on_nodes: BoundedDict[str, tuple[float, _Devices | None]] = BoundedDict(MAX_KNOWN_NODES)
        self._claims: BoundedDict[str, tuple[float, PodClaims]] = BoundedDict(MAX_KNOWN_CLAIMS)
        self._let_go: BoundedDict[str, _LetGo] = BoundedDict(MAX_PODS)
        self._said: BoundedDict[str, None] = BoundedDict(MAX_SAID)

    def on_best_nodes(self, pods: Sequence[WatchedPod], effort: Effort = UNLIMITED) -> KnownDevices | None:
        """The devices of the best nodes that admit the pods, which go together; None where none matter or are known.

        Raises Overspent, TurnOver.
        """
        snapshot = self._store.snapshot
        asking = [pod for pod in pods if _has_claims(snapshot, pod)] if self._enabled else []
        if not asking or not self._is_served() or self._clock() < self._rests_until:
            return None
        nodes = self._best_nodes(snapshot, asking, effort)
        if not nodes or not self._reading.acquire(timeout=READING_SECONDS):
            return None
        try:
            return self._read(asking, nodes) if self._clock() >= self._rests_until else None
        except APIError as error:
            self._rest(error)
            return None
        finally:
            self._reading.release()

    def left(self, known: KnownDevices | None, *pods: WatchedPod) -> KnownDevices | None:
        """The same without what other pods may get that were let go just now."""
        if known is None:
            return None
        own = {pod.uid for pod in pods}
        with self._lock:
            others = [part for uid, let_go in self._let_go.items() if uid not in own for part in let_go.parts]
        return known.without(others) if others else known

    def note(self, pod: WatchedPod, node: str, parts: Sequence[Part]) -> None:
        """Have these devices of ``node`` taken until the pod has its claims, or is known not to go there."""
        with self._lock:
            self._let_go.pop(pod.uid, None)
            if parts:
                key = (pod.namespace, pod.name)
                self._let_go[pod.uid] = _LetGo(key, node, tuple(parts), self._clock())

    def _best_nodes(self, snapshot: Snapshot, pods: Sequence[WatchedPod], effort: Effort) -> tuple[str, ...]:
        names = dict[str, None]()
        for pod in pods:
            surveys = self._store.surveys
            diagnosis = diagnose(snapshot, pod.pod, pod.placement, surveys=surveys, effort=effort)
            names |= dict.fromkeys(candidate.node for candidate in islice(diagnosis.candidates, MAX_NODES))
            if len(names) >= MAX_NODES:
                break
        return tuple(islice(names, MAX_NODES))

    def _read(self, pods: Sequence[WatchedPod], nodes: Sequence[str]) -> KnownDevices:
        """Raises APIError."""
        ends = self._clock() + READING_SECONDS
        lists = self._lists_now()
        by_node = dict(self._devices(("", *nodes), ends))
        devices = (device for of_node in by_node.values() for device in of_node)
        supply = supply_of(devices, lists.rules, lists.taken, lists.classes)
        return KnownDevices(supply, frozenset(by_node), dict(self._claims_of(pods, lists.classes, ends)))

    def _lists_now(self) -> _Lists:
        if self._lists is not None and self._clock() < self._lists_due:
            return self._lists
        began, began_cpu = self._clock(), self._cpu_clock()
        rules, classes = read_taint_rules(self._client, self._warn), read_classes(self._client, self._warn)
        lists = _Lists(rules, classes, read_taken_devices(self._client, self._warn))
        self._lists = lists
        self._lists_due = self._clock() + max(LISTS_SECONDS, (self._cpu_clock() - began_cpu) / LISTING_SHARE)
        self._forget_arrived(began)
        return lists

    def _forget_arrived(self, listed: float) -> None:
        """Forget what pods may have got that are no longer on their way there: the claims listed say what they have."""
        assumed = self._store.snapshot.assumed
        with self._lock:
            for uid, let_go in list(self._let_go.items()):
                there = assumed.get(let_go.key)
                is_coming = there is not None and there.pod.uid == uid and let_go.node in there.nodes
                if not is_coming and let_go.moment < listed - BOUND_SECONDS:
                    del self._let_go[uid]

    def _devices(self, nodes: Sequence[str], ends: float) -> Iterator[tuple[str, _Devices]]:
        """The devices of each node of which they are known, or that there is time to ask for."""
        for node in nodes:
            known = self._on_nodes.get(node)
            if known is None or known[0] <= self._clock():
                if self._clock() >= ends:
                    continue
                devices = self._devices_of(node)
                known = self._on_nodes[node] = self._clock() + SLICES_SECONDS, devices
            if known[1] is not None:
                yield node, known[1]

    def _devices_of(self, node: str) -> _Devices | None:
        """Those that it offers; None where these are too many. Raises APIError."""
        try:
            return read_devices(self._client, self._warn, node, MAX_DEVICES)
        except TooManyDevices:
            self._warn(f"the ResourceSlices of {node or 'no node alone'} have more than {MAX_DEVICES} devices")
            return None

    def _claims_of(
        self, pods: Sequence[WatchedPod], classes: Sequence[DeviceClass], ends: float
    ) -> Iterator[tuple[str, PodClaims]]:
        for pod in pods:
            known = self._claims.get(pod.uid)
            if known is None or known[0] <= self._clock():
                claims = self._claims_of_one(pod, classes, ends) if self._clock() < ends else None
                if claims is None:
                    continue
                known = self._claims[pod.uid] = self._clock() + CLAIMS_SECONDS, claims
            yield pod.uid, known[1]

    def _claims_of_one(self, pod: WatchedPod, classes: Sequence[DeviceClass], ends: float) -> PodClaims | None:
        try:
            content = self._client.get(PODS, pod.name, pod.namespace)
        except NotFound:
            return None
        get = partial(self._get, pod.namespace, ends)
        return read_pod_claims(content, pod.pod, self._store.snapshot.by_claim, get, lambda: classes)

    def _get(self, namespace: str, ends: float, resource: Resource, name: str) -> Mapping[str, Any]:
        if self._clock() >= ends:
            raise Unanswered("there was no time to ask for it")
        return self._client.get(resource, name, namespace)

    def _warn(self, problem: str) -> None:
        """Say once that an object cannot be read: only the claims and devices that it is about are unknown."""
        if problem not in self._said:
            self._said[problem] = None
            _log.warning("no node is preferred for the devices of claims by it: %s", problem)

    def _rest(self, error: APIError) -> None:
        """Ask nobody for a while, and say once why."""
        is_off = isinstance(error, NotFound | Forbidden)
        self._rests_until = self._clock() + (OFF_SECONDS if is_off else REST_SECONDS)
        if (kind := type(error).__name__) not in self._said:
            self._said[kind] = None
            _log.warning("no node is preferred for the devices of claims: they cannot be read: %s", error)


def _has_claims(snapshot: Snapshot, pod: WatchedPod) -> bool:
    return pod.has_device_claims or any(name in snapshot.by_claim for name in requests_of(pod.pod))
