"""Pods that were let go and are not heard of any more: do they run, have they ended, does no scheduler take them?"""

import time
from collections.abc import Callable, Sequence

from topomend.cache.changes import Event, PodForgotten
from topomend.kube.client import Client
from topomend.model.cluster import WatchedPod
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.store import Store
from topomend.relaunch import pod_requests


class AssumedExpiry:
    """Looks for them. ``report`` gets what was found."""

    def __init__(
        self,
        client: Client,
        store: Store,
        announcer: Announcer,
        report: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._store, self._announcer = client, store, announcer
        self._report, self._clock = report, clock

    def look(self) -> None:
        """Free the places of pods that left the watch not because they run but because they ended, or are ending.

        Their nodes may never publish them: a pod can come and go between two looks of an agent. Of those that no
        scheduler has bound, and whose places are about to be freed, it is told. Raises APIError.
        """
        for (namespace, name), assumed_pod in self._store.snapshot.assumed.items():
            if assumed_pod.departed:
                found = pod_requests.read(self._client, namespace, name)
                if found is None or found.uid != assumed_pod.pod.uid or found.phase not in ("Pending", "Running"):
                    self._report(PodForgotten(namespace, name))
            elif assumed_pod.expires is not None and assumed_pod.expires <= self._clock():
                self._tell_of_unbound(pod_requests.read(self._client, namespace, name), assumed_pod.nodes)

    def _tell_of_unbound(self, found: WatchedPod | None, nodes: Sequence[str]) -> None:
        if found and found.released and found.phase == "Pending" and not (found.node or found.deleting or found.gates):
            self._announcer.unbound(found, nodes)
