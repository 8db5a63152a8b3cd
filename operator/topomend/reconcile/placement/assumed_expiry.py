"""Check assumed pods that left the watch or were not scheduled: they run, ended, or are stuck.

Owns reading those pods. Leaves to ``cache`` when an assumption expires.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from topomend.cache.changes import Change, PodForgotten
from topomend.cache.snapshot import AssumedPod, PodKey
from topomend.kube.client import Client
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.object_faults import ObjectFaults
from topomend.reconcile.store import Store
from topomend.relaunch import pod_requests

_log = logging.getLogger(__name__)


class AssumedExpiry:
    """Reads the pods. ``report`` gets the changes that follow. For one thread."""

    def __init__(
        self,
        client: Client,
        store: Store,
        announcer: Announcer,
        report: Callable[[Change], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._store, self._announcer = client, store, announcer
        self._report, self._clock = report, clock
        self._unbound: dict[PodKey, AssumedPod] = {}
        self._faults = ObjectFaults(_log, "it is assumed until its time is over", clock)

    def check(self) -> None:
        """Forget assumed pods that have ended or are ending, and report those that were not scheduled in time.

        Each pod is read: the watch drops running and deleted pods alike, and an agent may never publish a pod that
        started and ended between two polls. Raises APIError.
        """
        assumed, now = dict(self._store.snapshot.assumed), self._clock()
        for key, assumed_pod in assumed.items():
            if assumed_pod.departed:
                with self._faults.of(*key):
                    self._forget_if_ended(*key, assumed_pod.pod.uid)
        for key, assumed_pod in self._overdue(assumed, now).items():
            with self._faults.of(*key):
                self._report_unscheduled(pod_requests.read(self._client, *key), assumed_pod.nodes)

    def _overdue(self, assumed: Mapping[PodKey, AssumedPod], now: float) -> Mapping[PodKey, AssumedPod]:
        """The assumptions that ended by time since the last check, each once.

        The snapshot may have dropped them already: it learns the time from another thread.
        """
        unbound = self._unbound | {
            key: assumed_pod
            for key, assumed_pod in assumed.items()
            if not (assumed_pod.departed or assumed_pod.promised)  # of a promised one there is no pod
        }
        ends = [(key, pod, pod.expires) for key, pod in unbound.items() if pod.expires is not None]
        self._unbound = {key: pod for key, pod, expires in ends if expires > now and key in assumed}
        return {key: pod for key, pod, expires in ends if expires <= now}

    def _forget_if_ended(self, namespace: str, name: str, uid: str) -> None:
        pod = pod_requests.read(self._client, namespace, name)
        if pod is None or pod.uid != uid or pod.phase not in ("Pending", "Running"):
            self._report(PodForgotten(namespace, name, uid))

    def _report_unscheduled(self, pod: WatchedPod | None, nodes: Sequence[str]) -> None:
        if pod and pod.released and pod.phase == "Pending" and not (pod.node or pod.deleting or pod.gates):
            self._announcer.not_scheduled(pod, nodes)
