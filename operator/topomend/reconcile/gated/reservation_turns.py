"""For whom NUMA nodes are reserved, and for how long: a turn ends, and the next one comes after a rest.

A reservation keeps CPUs idle for a pod that may never fit, so it is for a bounded time, only where the pods in the way
are expected to end, and never for a gate that a user wrote himself. A namespace rests as well: else its pods that never
fit, or are created anew, would keep a place from everybody by taking turns. Owns the turns and what is known of the
pods in the way. Leaves the choice of NUMA nodes to ``decide/queue/order``.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from topomend.base.bounded_dict import BoundedDict
from topomend.cache.snapshot import Snapshot
from topomend.decide.queue import order as queue_order
from topomend.decide.queue.lines import QueueLines
from topomend.decide.queue.order import Reservation, Reserved, is_expected_to_end, is_waiting
from topomend.kube.client import Client
from topomend.kube.resources import PODS, UNENDED
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.nodes.replay_shares import within_shares
from topomend.reconcile.object_faults import ObjectFaults
from topomend.reconcile.store import Store
from topomend.replay.admission import release
from topomend.replay.effort import Effort
from topomend.runtime.backoff import Exponential
from topomend.wire.document import Document, MalformedObject
from topomend.wire.pods.scheduling import read_owner

TURN_SECONDS = 300.0
"""How long NUMA nodes are reserved for a pod at a time."""

RESTS = Exponential(300.0, 3600.0)
"""The rest after the first turn, the second, and so on: others get the places of a pod that never fits."""

NAMESPACE_REST_SECONDS = 240.0
"""How long a namespace rests after NUMA nodes were reserved for its pods for as long as a turn, and none got them. Its
next pod has a turn before the same one again."""

RETRY_SECONDS = 30.0
"""When a pod is tried again for which no NUMA node could be reserved."""

LISTED_SECONDS = 60.0
"""How long a list of a node's pods is good: controllers and their pods change slowly."""

MAX_LISTS = 5
"""Nodes whose pods are listed at a time; the others are known at the next times."""

MAX_ASKED = 50
"""Pods at a time for which to ask who gated them."""

MAX_TURNS, MAX_NAMESPACES, MAX_NODES = 10_000, 10_000, 1_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Turn:
    """A pod's latest turn, the ``count``-th: it began at ``since``, 0 where it has not, and rests until ``rests``."""

    count: int = 0
    since: float = 0.0
    rests: float = 0.0


class ReservationTurns:
    """The reservations now. ``refresh`` is for one thread, ``reservations`` for several.

    ``is_gated_by_us`` says whether a policy of the operator gated the pod. Times are in seconds.
    """

    def __init__(
        self,
        client: Client,
        store: Store,
        is_gated_by_us: Callable[[WatchedPod], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._store, self._is_gated_by_us, self._clock = client, store, is_gated_by_us, clock
        self._turns: BoundedDict[str, _Turn] = BoundedDict(MAX_TURNS)
        self._kept: BoundedDict[str, float] = BoundedDict(MAX_NAMESPACES)
        self._namespace_rests: BoundedDict[str, float] = BoundedDict(MAX_NAMESPACES)
        self._counted = clock()
        self._lasting: BoundedDict[str, tuple[float, frozenset[str]]] = BoundedDict(MAX_NODES)
        self._lists = 0
        self._lines = QueueLines()
        self._faults = ObjectFaults(_log, "no NUMA nodes are reserved for or on it", clock)
        self._reservations: tuple[Reservation, ...] = ()

    def reservations(self) -> Sequence[Reservation]:
        """Those that are valid now."""
        return self._reservations

    def take_over(self) -> None:
        """Drop all: another operator has led since."""
        self._reservations = ()
        self._turns.clear()
        self._kept.clear()
        self._namespace_rests.clear()

    def refresh(self) -> bool:
        """Reserve anew. Returns whether a NUMA node is free again of a pod that still waits.

        The reservations of before hold meanwhile: nodes are listed and asked. Raises APIError; nothing is reserved
        then.
        """
        now, before = self._clock(), self._reservations
        self._end_turns(now)
        self._rest_namespaces(before, now)
        try:
            reserved = within_shares(self._store, lambda effort: self._reserve(self._store.snapshot, now, effort))
        except Exception:
            self._reservations = ()
            raise
        for reservation in reserved.reservations:
            self._begin_turn(reservation.pod.uid, now)
        for uid in reserved.tried:
            self._rest(uid, now + RETRY_SECONDS)
        self._reservations = reserved.reservations
        places = {(reservation.node, reservation.numa_nodes) for reservation in reserved.reservations}
        snapshot = self._store.snapshot
        return any((old.node, old.numa_nodes) not in places and is_waiting(snapshot, old.pod) for old in before)

    def _reserve(self, snapshot: Snapshot, now: float, effort: Effort) -> Reserved:
        self._lists = 0
        resting = {uid for uid, turn in self._turns.items() if now < turn.rests}
        patient = queue_order.patient_pods(snapshot, now, resting, self._lines)
        in_turn = (pod for pod in patient if self._namespace_rests.get(pod.namespace, now) <= now)
        return queue_order.reserve(
            snapshot,
            self._gated_by_us(islice(in_turn, MAX_ASKED), now),
            lambda name: self._remaining(snapshot, name, now, effort),
            effort,
        )

    def _gated_by_us(self, pods: Iterator[WatchedPod], now: float) -> Iterator[WatchedPod]:
        for pod in pods:
            is_ours = False
            with self._faults.of(pod.namespace, pod.name):
                is_ours = self._is_gated_by_us(pod)
            if is_ours:
                yield pod
            else:
                self._rest(pod.uid, now + RETRY_SECONDS)

    def _begin_turn(self, uid: str, now: float) -> None:
        turn = self._turns.get(uid, _Turn())
        if not turn.since:
            self._turns[uid] = _Turn(turn.count + 1, now)

    def _end_turns(self, now: float) -> None:
        for uid, turn in self._turns.items():
            if turn.since and turn.since + TURN_SECONDS <= now:
                self._turns[uid] = _Turn(turn.count, 0.0, now + RESTS.seconds(turn.count))

    def _rest(self, uid: str, until: float) -> None:
        self._turns[uid] = replace(self._turns.get(uid, _Turn()), rests=until)

    def _rest_namespaces(self, kept: Sequence[Reservation], now: float) -> None:
        """Count how long places were ``kept`` for a namespace since one of its pods got its own; let it rest."""
        seconds, self._counted = now - self._counted, now
        for namespace in {reservation.pod.namespace for reservation in kept}:
            self._kept[namespace] = self._kept.get(namespace, 0.0) + seconds
        assumed = self._store.snapshot.assumed
        for pod in (reservation.pod for reservation in kept):
            if (pod.namespace, pod.name) in assumed:
                self._kept.pop(pod.namespace, None)
        for namespace in [name for name, seconds in self._kept.items() if seconds >= TURN_SECONDS]:
            del self._kept[namespace]
            self._namespace_rests[namespace] = now + NAMESPACE_REST_SECONDS

    def _remaining(self, snapshot: Snapshot, name: str, now: float, effort: Effort) -> NodeState | None:
        """The node's state once all pods have ended that are expected to; None where it is not known yet."""
        lasting = None
        with self._faults.of("node", name):
            lasting = self._lasting_pods(name, now)
        if lasting is None:
            return None
        state = snapshot.publications[name].state_with_assumed(effort)
        for pod in state.pods:
            if f"{pod.namespace}/{pod.name}" not in lasting:
                state = release(state, pod.namespace, pod.name)
        return state

    def _lasting_pods(self, node: str, now: float) -> frozenset[str] | None:
        """The node's pods that are not expected to end, as namespace/name."""
        known = self._lasting.get(node)
        if known and now < known[0] + LISTED_SECONDS:
            return known[1]
        if self._lists == MAX_LISTS:
            return None
        self._lists += 1
        fields = f"spec.nodeName={node},{UNENDED}"
        lasting = frozenset(self._client.read(PODS, _lasting_name, fields=fields, cached=True).items)
        self._lasting[node] = (now, lasting)
        return lasting


def _lasting_name(content: dict[str, Any]) -> Iterator[str]:
    """The pod's namespace/name, if it is not expected to end."""
    if _lasts(content):
        yield f"{content['metadata']['namespace']}/{content['metadata']['name']}"


def _lasts(content: dict[str, Any]) -> bool:
    metadata = Document(content)["metadata"]
    try:
        return metadata["deletionTimestamp"].absent and not is_expected_to_end(read_owner(metadata))
    except MalformedObject:
        return True
