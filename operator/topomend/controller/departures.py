"""Pods that were let go and are not heard of any more: do they run, have they ended, does no scheduler take them?"""

import time
from collections.abc import Callable, Sequence

from topomend.controller.announcer import Announcer
from topomend.controller.store import Store
from topomend.kube.client import Client
from topomend.model.cluster import WatchedPod
from topomend.relaunch import pods
from topomend.watch.events import Event, Withdrawn


class Departures:
    """Looks for them. ``observed`` gets what was found."""

    def __init__(
        self,
        client: Client,
        store: Store,
        announcer: Announcer,
        observed: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._store, self._announcer = client, store, announcer
        self._observed, self._clock = observed, clock

    def look(self) -> None:
        """Free the places of pods that left the watch not because they run but because they ended, or are ending.

        Their nodes may never publish them: a pod can come and go between two looks of an agent. Of those that no
        scheduler has bound, and whose places are about to be freed, it is told. Raises APIError.
        """
        for (namespace, name), going in self._store.view.on_their_way.items():
            if going.departed:
                found = pods.read(self._client, namespace, name)
                if found is None or found.uid != going.pod.uid or found.phase not in ("Pending", "Running"):
                    self._observed(Withdrawn(namespace, name))
            elif going.expires is not None and going.expires <= self._clock():
                self._tell_of_unbound(pods.read(self._client, namespace, name), going.nodes)

    def _tell_of_unbound(self, found: WatchedPod | None, nodes: Sequence[str]) -> None:
        if found and found.released and found.phase == "Pending" and not (found.node or found.deleting or found.gates):
            self._announcer.unbound(found, nodes)
