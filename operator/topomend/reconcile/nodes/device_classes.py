"""Which extended resources DeviceClasses map, listed now and then: there are few, and they change seldom.

Owns how often they are listed, what is known where they cannot be: no resource is mapped where the API is not served
or may not be read, and what the log says of an API server without the API, once until it has it. Leaves what follows
from them to ``decide/diagnosis/filters``.
"""

import logging
import time
from collections.abc import Callable

from topomend.cache.changes import DeviceClassesListed
from topomend.kube.client import Client
from topomend.kube.devices.device_classes import mapped_resources
from topomend.kube.errors import Forbidden, NotFound
from topomend.kube.resources import DEVICE_CLASSES
from topomend.reconcile.store import Store

LIST_SECONDS = 10.0
"""How old a list may be."""

RETRY_SECONDS = 300.0
"""When to list again where the API is not served or may not be read."""

UNSERVED = (
    f"the API server serves no {DEVICE_CLASSES.api_version}, which Kubernetes has from 1.34 on: upgrade it; nothing "
    f"else needs it, and it is looked for every {RETRY_SECONDS:.0f} s"
)

_log = logging.getLogger(__name__)


class DeviceClasses:
    """Lists them. For one thread. ``report`` gets what has changed.

    ``prefers`` is whether nodes are to be preferred for the devices of claims, so that the API is missed without a pod
    that has any. ``is_served`` is whether the API was there when it was last asked for; any thread may read it.
    """

    def __init__(
        self,
        client: Client,
        store: Store,
        report: Callable[[DeviceClassesListed], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        prefers: bool,
    ) -> None:
        self._client, self._store, self._report, self._clock = client, store, report, clock
        self._prefers, self.is_served = prefers, True
        self._due, self._has_warned, self._is_missed = 0.0, False, False

    def refresh(self) -> None:
        """List them again if it is time. Raises APIError."""
        now = self._clock()
        if now < self._due:
            return
        self._due = now + LIST_SECONDS
        mapped = self._list()
        if mapped != self._store.snapshot.by_claim:
            self._report(DeviceClassesListed(mapped))

    def _list(self) -> frozenset[str]:
        try:
            mapped = mapped_resources(self._client)
        except NotFound:
            self._due = self._clock() + RETRY_SECONDS
            self.is_served = False
            self._miss()
        except Forbidden as error:
            self._due = self._clock() + RETRY_SECONDS
            if not self._has_warned:
                self._has_warned = True
                _log.warning("devices that claims provide count as missing: DeviceClasses cannot be listed: %s", error)
        else:
            self._meet()
            return mapped
        return frozenset()

    def _miss(self) -> None:
        """Say that the API is not served, where that matters to anyone."""
        if not self._is_missed and (without := self._without()):
            self._is_missed = True
            _log.warning("%s: %s", without, UNSERVED)

    def _meet(self) -> None:
        self.is_served = True
        if self._is_missed:
            self._is_missed = False
            _log.info("the API server serves %s now", DEVICE_CLASSES.api_version)

    def _without(self) -> str:
        """What is not done without the API; empty where nobody asks for it."""
        if self._prefers:
            return "--claims (the component claims) has no effect, and no node is preferred for the devices of claims"
        snapshot = self._store.snapshot
        waiting = (*snapshot.gated.values(), *(refusal.pod for refusal in snapshot.refused.values()))
        with_claims = next((pod for pod in waiting if pod.has_device_claims), None)
        if with_claims is None:
            return ""
        return f"pod {with_claims.namespace}/{with_claims.name} claims devices, of which nothing can be known"
