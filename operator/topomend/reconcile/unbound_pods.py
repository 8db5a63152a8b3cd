"""Ungated pods that the scheduler cannot bind: the nodes that they were narrowed to do not suit it.

A narrowed pod cannot be widened again. Where other nodes admit the pod, it is deleted, so that its controller creates
another; the pods of that controller are then ungated for every node that admits them. Owns when that happens. Leaves
which owners create another pod to ``decide/eligibility`` and ``owners``.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from topomend.cache.snapshot import Snapshot
from topomend.decide.eligibility import is_recreated_when_deleted
from topomend.decide.feasibility import diagnose
from topomend.kube.client import Client
from topomend.model.bounded_dict import BoundedDict
from topomend.model.cluster import WatchedPod
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.reconcile.owners import why_not_recreated
from topomend.reconcile.store import Store
from topomend.relaunch import narrowing, pod_requests
from topomend.runtime.backoff import Backoff

PATIENCE_SECONDS = 30.0
"""How long the scheduler may find no node: its own retries take up to ten seconds, a preemption some more."""

CHECK_SECONDS = 10.0
"""How often the nodes are asked about one pod."""

MAX_ENTRIES = 10_000

_log = logging.getLogger(__name__)


class UnboundPods:
    """Deletes such pods. ``check`` is for one thread; the rest may be used by several.

    ``backoff`` delays the next pods of a controller after each deletion.
    """

    def __init__(
        self,
        client: Client,
        store: Store,
        limits: NamespaceLimits,
        backoff: Backoff,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._store, self._limits, self._backoff, self._clock = client, store, limits, backoff, clock
        self._owners: BoundedDict[str, None] = BoundedDict(MAX_ENTRIES)
        self._due: BoundedDict[str, float] = BoundedDict(MAX_ENTRIES)

    def widened(self, pod: WatchedPod) -> WatchedPod:
        """``pod`` as one to be ungated for every node that admits it, where the scheduler could not bind its like."""
        if pod.owner is None or pod.owner.uid not in self._owners:
            return pod
        return replace(pod, scheduler_rules=(*pod.scheduler_rules, "unbound"))

    def check(self) -> None:
        """Delete the pods whose controllers create another that has more nodes. Raises APIError."""
        snapshot, now = self._store.snapshot, self._clock()
        for unbound in snapshot.unbound.values():
            pod = unbound.pod
            if now >= self._due.get(pod.uid, unbound.since + PATIENCE_SECONDS):
                self._due[pod.uid] = now + CHECK_SECONDS
                self._replace(snapshot, pod)

    def _replace(self, snapshot: Snapshot, pod: WatchedPod) -> None:
        if pod.owner is None or not is_recreated_when_deleted(pod, self._limits.limits(pod.namespace)):
            return
        nodes = _other_nodes(snapshot, pod)
        if not nodes or why_not_recreated(self._client, pod.owner, pod.namespace):
            return
        self._owners[pod.owner.uid] = None
        if pod_requests.clear(self._client, pod):
            self._backoff.failed(pod.owner.uid, pod.uid)
            name, count = f"{pod.namespace}/{pod.name}", len(nodes)
            _log.info("%s was deleted: no scheduler uses its nodes, and %s others admit it", name, count)


def _other_nodes(snapshot: Snapshot, pod: WatchedPod) -> list[str]:
    """The nodes that admit the pod and that its narrowing does not allow."""
    narrowed = narrowing.narrowing_of(pod.node_affinity)
    asked = narrowing.as_asked(pod.placement, pod.node_affinity)
    candidates = diagnose(snapshot, pod.pod, asked).candidates
    return [candidate.node for candidate in candidates if not narrowed.allows(candidate.hostname)]
