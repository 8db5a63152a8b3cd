"""Check assumed pods that left the watch or were not scheduled: they run, ended, or are stuck.

Owns reading those pods. Leaves to ``cache`` when an assumption expires.
"""

import time
from collections.abc import Callable, Sequence

from topomend.cache.changes import Change, PodForgotten
from topomend.kube.client import Client
from topomend.model.cluster import WatchedPod
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.store import Store
from topomend.relaunch import pod_requests


class AssumedExpiry:
    """Reads the pods. ``report`` gets the changes that follow."""

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

    def check(self) -> None:
        """Forget assumed pods that have ended or are ending, and report those that were not scheduled in time.

        Each pod is read: the watch drops running and deleted pods alike, and an agent may never publish a pod that
        started and ended between two polls. Raises APIError.
        """
        for (namespace, name), assumed_pod in self._store.snapshot.assumed.items():
            if assumed_pod.departed:
                pod = pod_requests.read(self._client, namespace, name)
                if pod is None or pod.uid != assumed_pod.pod.uid or pod.phase not in ("Pending", "Running"):
                    self._report(PodForgotten(namespace, name))
            elif assumed_pod.expires is not None and assumed_pod.expires <= self._clock():
                self._report_unscheduled(pod_requests.read(self._client, namespace, name), assumed_pod.nodes)

    def _report_unscheduled(self, pod: WatchedPod | None, nodes: Sequence[str]) -> None:
        if pod and pod.released and pod.phase == "Pending" and not (pod.node or pod.deleting or pod.gates):
            self._announcer.not_scheduled(pod, nodes)
