"""Which extended resources DeviceClasses map, listed now and then: there are few, and they change seldom.

Owns how often they are listed, and what is known where they cannot be: no resource is mapped where the API is not
served or may not be read. Leaves what follows from them to ``decide/filters``.
"""

import logging
import time
from collections.abc import Callable

from topomend.cache.changes import DeviceClassesListed
from topomend.kube.client import Client
from topomend.kube.device_classes import mapped_resources
from topomend.kube.errors import Forbidden, NotFound
from topomend.reconcile.store import Store

LIST_SECONDS = 10.0
"""How old a list may be."""

RETRY_SECONDS = 300.0
"""When to list again where the API is not served or may not be read."""

_log = logging.getLogger(__name__)


class DeviceClasses:
    """Lists them. For one thread. ``report`` gets what has changed."""

    def __init__(
        self,
        client: Client,
        store: Store,
        report: Callable[[DeviceClassesListed], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._store, self._report, self._clock = client, store, report, clock
        self._due, self._has_warned = 0.0, False

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
            return mapped_resources(self._client)
        except NotFound:
            self._due = self._clock() + RETRY_SECONDS
        except Forbidden as error:
            self._due = self._clock() + RETRY_SECONDS
            if not self._has_warned:
                self._has_warned = True
                _log.warning("devices that claims provide count as missing: DeviceClasses cannot be listed: %s", error)
        return frozenset()
