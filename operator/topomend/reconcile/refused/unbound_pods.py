"""Ungated pods that the scheduler cannot bind: the nodes that they were narrowed to do not suit it.

A narrowed pod cannot be widened again. Where other nodes admit the pod, it is deleted, so that its controller creates
another; the pods of that controller are then ungated for every node that admits them. A pod without a controller is
relaunched in the same way, with a record. Owns when that happens. Leaves which owners create another pod and which pods
may be relaunched to ``decide/eligibility`` and ``owners``, and the relaunch to ``refused_pods``.
"""

import logging
import time
from collections.abc import Callable
from operator import itemgetter

from topomend.base.bounded_dict import BoundedDict
from topomend.cache.changes.volumes import with_volumes
from topomend.cache.entries import UnboundPod
from topomend.cache.snapshot import Snapshot
from topomend.decide.diagnosis.feasibility import diagnose
from topomend.decide.eligibility import (
    Limits,
    counts_deletions,
    is_recreated_when_deleted,
    is_relaunched_when_unbound,
)
from topomend.kube.client import Client
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.reconcile.object_faults import ObjectFaults
from topomend.reconcile.placement.volumes import Volumes
from topomend.reconcile.pod_id import PodID, WorkloadID
from topomend.reconcile.refused.owners import why_not_recreated
from topomend.reconcile.refused.refused_pods import RefusedPods, widened
from topomend.reconcile.result import DONE, Result
from topomend.reconcile.store import Store
from topomend.relaunch import narrowed_affinity, pod_requests
from topomend.replay.effort import UNLIMITED, Effort
from topomend.runtime.backoff import Backoff
from topomend.wire.group import RELAUNCH_FINALIZER

PATIENCE_SECONDS = 30.0
"""How long the scheduler may find no node: its own retries take up to ten seconds, a preemption some more."""

JOB_SECONDS = 120.0
"""The same for the pods of a Job, and the time between two of one Job: it counts each deletion as a failure. Until then
it has counted the one before."""

CHECK_SECONDS, ELSEWHERE_SECONDS = 10.0, 60.0
"""How often the nodes are asked about one pod, and about one whose volumes none of those nodes has that admit it."""

WORK_SECONDS = 5.0
"""After how long in a row the other pods are left for the next time: the first of a kind asks every node."""

MAX_ENTRIES = 10_000

_log = logging.getLogger(__name__)


class UnboundPods:
    """Deletes and relaunches such pods. ``check`` is for one thread; the rest may be used by several, a pod each.

    ``backoff`` delays the next pods of a controller after each deletion, and the next relaunch of a pod without one.
    """

    def __init__(  # noqa: PLR0913  what it decides on and whom it hands a relaunch to
        self,
        client: Client,
        store: Store,
        limits: NamespaceLimits,
        refused_pods: RefusedPods,
        volumes: Volumes,
        *,
        backoff: Backoff,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._store, self._limits, self._refused_pods = client, store, limits, refused_pods
        self._volumes, self._backoff, self._clock = volumes, backoff, clock
        self._owners: BoundedDict[WorkloadID, None] = BoundedDict(MAX_ENTRIES)
        self._due: BoundedDict[str, float] = BoundedDict(MAX_ENTRIES)
        self._job_due: BoundedDict[WorkloadID, float] = BoundedDict(MAX_ENTRIES)
        self._faults = ObjectFaults(_log, "no other node is found for it", clock)

    def widened(self, pod: WatchedPod) -> WatchedPod:
        """``pod`` as one to be ungated for every node that admits it, where the scheduler could not bind its like."""
        if pod.owner is None or WorkloadID.of(pod) not in self._owners:
            return pod
        return widened(pod)

    def bare(self, pod: PodID) -> UnboundPod | None:
        """The unbound pod of this uid, if it has no controller."""
        unbound = self._store.snapshot.unbound.get((pod.namespace, pod.name))
        return unbound if unbound and unbound.pod.uid == pod.uid and unbound.pod.owner is None else None

    def reconcile(self, unbound: UnboundPod, effort: Effort = UNLIMITED) -> Result:
        """Relaunch a bare pod where it has waited long enough and other nodes admit it. Raises APIError."""
        pod = unbound.pod
        limits = self._limits.limits(pod.namespace)
        if RELAUNCH_FINALIZER not in pod.finalizers:
            later = self._why_later(unbound, limits, effort) or self._refused_pods.why_later(pod, limits)
            if later:
                return later
        self._backoff.failed(WorkloadID.of(pod), pod.uid)
        return self._refused_pods.relaunch_unbound(pod, limits.max_attempts, effort)

    def _why_later(self, unbound: UnboundPod, limits: Limits, effort: Effort) -> Result | None:
        """When to ask again about a bare pod that is not to be relaunched now."""
        pod = unbound.pod
        if not is_relaunched_when_unbound(pod, limits):
            return DONE
        wait = max(unbound.since + PATIENCE_SECONDS - self._clock(), self._backoff.remaining(WorkloadID.of(pod)))
        if wait > 0:
            return Result(wait)
        nodes = self._other_nodes(self._store.snapshot, pod, effort)
        if not nodes:
            return Result(CHECK_SECONDS)
        return None if self._with_volumes(nodes, self._store.snapshot, pod, effort) else Result(ELSEWHERE_SECONDS)

    def check(self, effort: Effort = UNLIMITED) -> None:
        """Delete the pods whose controllers create another that has more nodes. Raises APIError."""
        snapshot, now = self._store.snapshot, self._clock()
        due = ((self._due_at(one), one.pod) for one in snapshot.unbound.values())
        for _, pod in sorted((entry for entry in due if entry[0] <= now), key=itemgetter(0)):
            if self._clock() > now + WORK_SECONDS:
                return
            self._due[pod.uid] = now + CHECK_SECONDS
            effort.next_pod()
            with self._faults.of(pod.namespace, pod.name):
                self._replace(snapshot, pod, effort)

    def _due_at(self, unbound: UnboundPod) -> float:
        """When the nodes are asked about a pod, in seconds."""
        return self._due.get(unbound.pod.uid, unbound.since + _patience(unbound.pod))

    def _replace(self, snapshot: Snapshot, pod: WatchedPod, effort: Effort) -> None:
        if pod.owner is None or not is_recreated_when_deleted(pod, self._limits.limits(pod.namespace)):
            return
        workload = WorkloadID.of(pod)
        if self._clock() < self._job_due.get(workload, 0.0):
            return
        nodes = self._other_nodes(snapshot, pod, effort)
        if not nodes or why_not_recreated(self._client, pod.owner, pod.namespace):
            return
        nodes = self._with_volumes(nodes, snapshot, pod, effort)
        if not nodes:
            self._due[pod.uid] = self._clock() + ELSEWHERE_SECONDS
            return
        self._owners[workload] = None
        if pod_requests.clear(self._client, pod):
            self._backoff.failed(workload, pod.uid)
            if counts_deletions(pod.owner):
                self._job_due[workload] = self._clock() + JOB_SECONDS
            name, count = f"{pod.namespace}/{pod.name}", len(nodes)
            _log.info("%s was deleted: no scheduler uses its nodes, and %s others admit it", name, count)

    def _with_volumes(self, nodes: list[str], snapshot: Snapshot, pod: WatchedPod, effort: Effort) -> list[str]:
        """Those of the pod's other ``nodes`` that have its volumes, as far as that is known."""
        if not pod.claims:
            return nodes
        return self._other_nodes(snapshot, with_volumes(pod, self._volumes.of(pod)), effort)

    def _other_nodes(self, snapshot: Snapshot, pod: WatchedPod, effort: Effort) -> list[str]:
        """The nodes that admit the pod and that its narrowing does not allow."""
        narrowed = narrowed_affinity.narrowing_of(pod.node_affinity)
        asked = narrowed_affinity.as_asked(pod.placement, pod.node_affinity)
        candidates = diagnose(snapshot, pod.pod, asked, surveys=self._store.surveys, effort=effort).candidates
        return [candidate.node for candidate in candidates if not narrowed.allows(candidate.hostname)]


def _patience(pod: WatchedPod) -> float:
    return JOB_SECONDS if pod.owner and counts_deletions(pod.owner) else PATIENCE_SECONDS
