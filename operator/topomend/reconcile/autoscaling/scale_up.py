"""Has cluster autoscalers count the gated pods that wait: kube-scheduler never calls a gated pod unschedulable.

Cluster Autoscaler and Karpenter add nodes for pods whose condition ``PodScheduled`` has the reason ``Unschedulable``,
whatever gates they have. The operator gives a pod that reason once no node has admitted it for a while, and takes it
back where no known node would admit the pod even when empty: a new one would not either. The pod stays gated, so that
it comes only to a node whose published state admits it. Owns which pods have the reason. Leaves what a new node would
admit to ``decide/diagnosis/infeasible``, and pods for which a placeholder asks to ``placeholders``. The right to write
it is a ClusterRole of its own: without it autoscalers do not see gated pods.
Source: sigs.k8s.io/karpenter pkg/utils/pod/scheduling.go:IsProvisionable; cluster-autoscaler
utils/kubernetes/listers.go.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping

from topomend.base.bounded_dict import BoundedDict
from topomend.base.plain_text import plain
from topomend.decide.diagnosis.infeasible import another_would_admit
from topomend.decide.queue.lines import is_held_by_us
from topomend.kube.client import Client
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.autoscaling.placeholders import Placeholders
from topomend.reconcile.object_faults import ObjectFaults
from topomend.reconcile.optional_right import OptionalRight
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.store import Store
from topomend.relaunch import pod_requests
from topomend.replay.effort import UNLIMITED, Effort
from topomend.runtime.queues.token_bucket import FairTokenBucket
from topomend.wire.group import ASKS_FOR_NODE

PATIENCE_SECONDS = 5.0
"""How long a pod waits first: a place may come free sooner than an autoscaler looks."""

WRITES_PER_SECOND, WRITE_BURST = 10.0, 20
"""How many pods are asked about and written in the whole cluster, each once; namespaces have equal shares."""

MAX_ENTRIES = 10_000

_STATUS = {"verb": "patch", "version": "v1", "resource": "pods", "subresource": "status"}

_EXPLAINED = "`kubectl numa explain` says why for each node."

MAX_WHY = 500
"""How much of the reason the condition has: it is written once, and not again when the reason changes."""

_GATED = {"reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates"}
"""As the API server writes it (pkg/registry/core/pod/strategy.go:applySchedulingGatedCondition)."""

_log = logging.getLogger(__name__)


class ScaleUp:
    """``wait`` may be called by any thread, ``check`` by one."""

    def __init__(
        self, client: Client, store: Store, placeholders: Placeholders, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._store, self._placeholders, self._clock = client, store, placeholders, clock
        self._writes = FairTokenBucket(WRITES_PER_SECOND, WRITE_BURST, clock)
        self._wanted: BoundedDict[PodID, tuple[bool, str]] = BoundedDict(MAX_ENTRIES)
        self._lock = threading.Lock()
        self._faults = ObjectFaults(_log, "cluster autoscalers do not see it", clock)
        self._right = OptionalRight(
            client, _STATUS, log=_log, without="cluster autoscalers do not see pods that wait gated", clock=clock
        )

    def wait(self, pods: Collection[WatchedPod], *, infeasible: bool, why: str = "") -> None:
        """No node admits these pods now, ``why`` in words; ``infeasible`` is that none would even when empty.

        Returns at once.

        Of refused pods only placeholders can tell: nobody schedules a pod that has failed.
        """
        self._placeholders.wait(pods, infeasible=infeasible)
        with self._lock:
            for pod in pods:
                is_wanted = not infeasible and not self._placeholders.stands_for(pod)
                if pod.asks_for_node == is_wanted:
                    self._wanted.pop(PodID.of(pod), None)
                else:
                    self._wanted[PodID.of(pod)] = is_wanted, why

    def release(self, pod: WatchedPod) -> None:
        """A node admits the pod, which is about to be let go: no further one is asked for."""
        self._placeholders.release(pod)

    def check(self, effort: Effort = UNLIMITED) -> None:
        """Write the conditions of the pods that have waited long enough. Raises APIError."""
        if self._right.is_missing:
            return
        for pod, wanted, why in self._due():
            effort.next_pod()
            with self._faults.of(pod.namespace, pod.name), self._right.used():
                # Where a node of which nothing is known yet might admit the pod, that node is waited for.
                if not wanted or another_would_admit(self._store.snapshot, pod.pod, pod.placement, effort):
                    self._write(pod, _unschedulable(why) if wanted else _GATED)
            if self._right.is_missing:
                return
            self._forget(PodID.of(pod))

    def _due(self) -> Iterator[tuple[WatchedPod, bool, str]]:
        """The pods that still wait and have another reason than they are to have, as many as may be written now."""
        snapshot, latest = self._store.snapshot, self._clock() - PATIENCE_SECONDS
        spent: set[str] = set()
        with self._lock:
            wanted = list(self._wanted.items())
        for key, (is_wanted, why) in wanted:
            if key.namespace in spent:
                continue
            name = (key.namespace, key.name)
            pod = snapshot.gated.get(name)
            if pod is None or pod.uid != key.uid or not is_held_by_us(pod):
                self._forget(key)
            elif name not in snapshot.assumed and snapshot.gated_since[name] <= latest:
                if self._writes.take(key.namespace):
                    spent.add(key.namespace)
                else:
                    yield pod, is_wanted, why

    def _forget(self, key: PodID) -> None:
        with self._lock:
            self._wanted.pop(key, None)

    def _write(self, pod: WatchedPod, condition: Mapping[str, str]) -> None:
        """Where the pod has changed since, nothing is written: it is reconciled again and waits again."""
        if pod_requests.say_not_scheduled(self._client, pod, pod.namespace, **condition):
            _log.info("%s/%s is now %s for cluster autoscalers", pod.namespace, pod.name, condition["reason"])


def _unschedulable(why: str) -> dict[str, str]:
    reason = why if why.startswith("no node admits it now") else f"no node admits it now{f': {why}' if why else ''}"
    return {"reason": "Unschedulable", "message": f"{ASKS_FOR_NODE} {plain(reason, MAX_WHY)}. {_EXPLAINED}"}
