"""Evict pods of lower priority that bar the way of a waiting pod: kube-scheduler preempts for no pod that is gated.

Victims leave through the Eviction API, so PodDisruptionBudgets hold, and only once the API server would let all of them
go. Owns for which pods this is tried, and how often. Leaves the choice of victims to ``decide/preemption``. The right
to evict is a ClusterRole of its own: without it nothing is evicted.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from heapq import nsmallest
from itertools import islice, takewhile
from typing import Any

from topomend.cache.snapshot import Snapshot
from topomend.decide import preemption
from topomend.decide.eligibility import Treatment, eligibility
from topomend.decide.feasibility import diagnose
from topomend.decide.queue_lines import QueueLines
from topomend.kube.client import PODS, PRIORITY_CLASSES, Client
from topomend.kube.errors import Conflict, NotFound, TooManyRequests
from topomend.model.bounded_dict import BoundedDict
from topomend.model.cluster import Placement, WatchedPod
from topomend.model.pod import Container, ContainerKind, Pod, Resources, requests_of
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.reconcile.node_pods import UNENDED
from topomend.reconcile.optional_right import OptionalRight
from topomend.reconcile.store import Store
from topomend.runtime.token_bucket import FairTokenBucket
from topomend.wire.cluster import read_watched_pod
from topomend.wire.document import MalformedObject
from topomend.wire.group import UNGATED_NAMESPACES

PATIENCE_SECONDS = 2.0
"""How long a pod waits first: a place may come free, and new states of nodes take a second to arrive."""

REST_SECONDS = 30.0
"""When a pod is tried again: victims take their grace period, and where none help, pods must end first."""

MAX_TRIED = 5
"""Pods at a time."""

ATTEMPTS_PER_SECOND, ATTEMPT_BURST = 2.0, 10
"""How often pods of some nodes are listed for a waiting pod, in the whole cluster; one namespace has half the burst."""

CLASSES_SECONDS = 60.0
"""How long the lowest priority of the cluster is good."""

MAX_ENTRIES = 10_000

_log = logging.getLogger(__name__)


class Preemptor:
    """Evicts for the pods that wait in the snapshot. For one thread."""

    def __init__(  # noqa: PLR0913  what it asks, and what it shares
        self,
        client: Client,
        store: Store,
        announcer: Announcer,
        limits: NamespaceLimits,
        clock: Callable[[], float] = time.monotonic,
        *,
        lines: QueueLines | None = None,
    ) -> None:
        self._client, self._store, self._announcer = client, store, announcer
        self._limits, self._clock = limits, clock
        self._attempts = FairTokenBucket(ATTEMPTS_PER_SECOND, ATTEMPT_BURST, clock)
        self._rests: BoundedDict[str, float] = BoundedDict(MAX_ENTRIES)
        self._lines = lines or QueueLines()
        self._lowest: tuple[float, int] | None = None
        self._right = OptionalRight(_log, "no pod is evicted for pods of higher priority", clock)

    def check(self) -> None:
        """Evict for the first of the pods that have waited for a while. Raises APIError."""
        if self._right.is_missing:
            return
        with self._right.used():
            for pod in self._first_waiting():
                self._rests[pod.uid] = self._clock() + REST_SECONDS
                self._preempt_for(pod)

    def _first_waiting(self) -> Iterator[WatchedPod]:
        """The first waiting pods whose priority is above that of some pods of the cluster, in order."""
        snapshot = self._store.snapshot
        lowest = self._lowest_priority() if snapshot.gated or snapshot.refused else 0
        first = [
            pod for line in self._lines.of(snapshot, self._clock()) for pod in self._first_of(snapshot, line, lowest)
        ]
        first += [pod for pod in self._refused(snapshot) if pod.priority > lowest]
        for pod in nsmallest(MAX_TRIED, first, key=lambda pod: pod.order):
            if self._may_be_moved(pod) and not self._attempts.take(pod.namespace):
                yield pod

    def _first_of(self, snapshot: Snapshot, line: Iterator[WatchedPod], lowest: int) -> Iterator[WatchedPod]:
        """The first gated pods of a namespace that wait for a node; their line is in the order of priority."""

        def is_tried(pod: WatchedPod) -> bool:
            key = (pod.namespace, pod.name)
            return key not in snapshot.assumed and self._is_patient(pod, snapshot.gated_since[key])

        return islice(filter(is_tried, takewhile(lambda pod: pod.priority > lowest, line)), MAX_TRIED)

    def _refused(self, snapshot: Snapshot) -> Iterator[WatchedPod]:
        """The refused pods that wait for a node."""
        for refusal in snapshot.refused.values():
            pod = refusal.pod
            if (pod.namespace, pod.name) not in snapshot.assumed and self._is_patient(pod, refusal.first_seen):
                yield pod

    def _is_patient(self, pod: WatchedPod, since: float) -> bool:
        """Whether the pod, which may preempt others, has waited and was not tried for a while."""
        now = self._clock()
        return pod.preempts and since + PATIENCE_SECONDS <= now and self._rests.get(pod.uid, 0.0) <= now

    def _may_be_moved(self, pod: WatchedPod) -> bool:
        limits = self._limits.limits(pod.namespace)
        return not limits.opted_out if pod.gates else eligibility(pod, limits).treatment is Treatment.RELAUNCH

    def _lowest_priority(self) -> int:
        """The lowest priority that a pod of the cluster may have; pods without a class have 0."""
        now = self._clock()
        if self._lowest is None or self._lowest[0] + CLASSES_SECONDS <= now:
            values = self._client.read(PRIORITY_CLASSES, lambda content: (int(content["value"]),), cached=True).items
            self._lowest = now, min(0, *values, 0)
        return self._lowest[1]

    def _preempt_for(self, pod: WatchedPod) -> None:
        snapshot = self._store.snapshot
        if diagnose(snapshot, pod.pod, pod.placement).candidates:
            return  # another pod's turn comes first
        running = {name: self._running_on(name) for name in preemption.nodes_to_preempt_on(snapshot, pod)}
        protected = {other.uid for pods in running.values() for other in pods if _is_protected(other)}
        while chosen := preemption.choose_victims(snapshot, pod, running, protected):
            budgeted = [victim.uid for victim in chosen.victims if not self._evict(victim, dry_run=True)]
            if not budgeted:
                self._evict_all(pod, chosen)
                return
            protected.update(budgeted)

    def _evict_all(self, pod: WatchedPod, chosen: preemption.Preemption) -> None:
        for victim in chosen.victims:
            if not self._evict(victim):
                return  # a budget was used up meanwhile; the pod is tried again
            self._announcer.preempted(victim, pod, chosen.node)
            name = f"{victim.namespace}/{victim.name}"
            _log.info("%s was evicted from %s for %s/%s", name, chosen.node, pod.namespace, pod.name)

    def _evict(self, victim: WatchedPod, *, dry_run: bool = False) -> bool:
        """Returns whether the victim leaves, or has left; False where a PodDisruptionBudget keeps it."""
        try:
            self._client.evict(victim.name, victim.namespace, uid=victim.uid, dry_run=dry_run)
        except TooManyRequests:
            return False
        except (NotFound, Conflict):
            return True
        return True

    def _running_on(self, node: str) -> Sequence[WatchedPod]:
        fields = f"spec.nodeName={node},{UNENDED}"
        return self._client.read(PODS, _read, fields=fields, cached=True).items


def _is_protected(pod: WatchedPod) -> bool:
    return pod.mirror or pod.critical or pod.namespace in UNGATED_NAMESPACES


def _read(content: dict[str, Any]) -> Iterator[WatchedPod]:
    """A pod that cannot be read is no victim; what it holds, its node's agent has published.

    Of the others neither the rules about nodes nor each container are kept: these may be megabytes.
    """
    with suppress(MalformedObject):
        pod = read_watched_pod(content)
        together = Container("", ContainerKind.APP, Resources(requests_of(pod.pod), {}))
        small = Pod(pod.namespace, pod.name, pod.uid, (together,))
        yield replace(pod, pod=small, placement=Placement(), node_affinity={})
