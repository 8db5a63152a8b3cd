"""Kueue's kinds in, answers of its admission check out: a duty that begins once the cluster serves these kinds.

Owns when they are watched. Leaves what is answered to ``reconcile/kueue``.
"""

import logging
import threading
import time
from collections.abc import Callable

from topomend.cache.snapshot import PodKey
from topomend.controller.ingest import WatchEvent
from topomend.controller.watch_streams import WatchStreams
from topomend.kube.client import Client
from topomend.kube.kueue import ADMISSION_CHECKS, WORKLOADS
from topomend.reconcile.kueue.numa_fit import NumaFit
from topomend.reconcile.kueue.queued import Queued
from topomend.runtime.queues.fair_queue import FairQueue

MAX_TO_KEEP_OUT = 2_000
"""Workloads that are to be kept out of Kueue's queue, of which a quarter may be of one namespace."""

SERVED_SECONDS = 10.0
"""How often the API server is asked whether it serves Kueue's kinds."""

_log = logging.getLogger(__name__)


class KueueCheck:
    """The duty. ``is_known`` is whether the cluster is listed: before that nothing fits anywhere."""

    def __init__(
        self,
        client: Client,
        queued: Queued,
        numa_fit: NumaFit,
        is_known: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._queued, self._numa_fit = client, queued, numa_fit
        self._is_known, self._clock = is_known, clock
        self._streams = WatchStreams(
            client, self._see, queued.missed, clock, kinds={ADMISSION_CHECKS: "", WORKLOADS: ""}
        )
        self._to_keep_out: FairQueue[PodKey] = FairQueue(MAX_TO_KEEP_OUT, MAX_TO_KEEP_OUT // 4)
        self._is_served, self._asked = False, float("-inf")

    def check(self) -> None:
        """Answer what is asked. Raises APIError."""
        if self._is_known() and self._is_watched():
            self._numa_fit.check()

    def take_over(self) -> None:
        """Start to lead: look at everything once more."""
        self._queued.missed()

    def stop(self) -> None:
        """Take no event in from now on."""
        self._streams.stop()
        self._to_keep_out.stop()

    def _is_watched(self) -> bool:
        if not self._is_served and self._clock() > self._asked + SERVED_SECONDS:
            self._asked = self._clock()
            self._is_served = self._client.serves(WORKLOADS)
            if self._is_served:
                self._streams.start()
                threading.Thread(target=self._keep_all_out, name="kueue-requeue", daemon=True).start()
            else:
                _log.debug("the cluster does not serve %s: no admission check is answered", WORKLOADS.api_version)
        return self._is_served

    def _see(self, event: WatchEvent) -> None:
        self._queued.see(event.plural, event.content, gone=event.gone)
        if event.plural == WORKLOADS.plural:
            metadata = event.content["metadata"]
            key = metadata["namespace"], metadata["name"]
            if self._numa_fit.is_to_be_kept_out(key):
                self._to_keep_out.put(metadata["namespace"], key)  # without room, ``NumaFit.check`` does it

    def _keep_all_out(self) -> None:
        """In a thread of its own: neither may a slow answer delay the watch, nor a long decision this."""
        while (key := self._to_keep_out.get()) is not None:
            try:
                self._numa_fit.keep_out(key)
            except Exception as error:  # noqa: BLE001  the duty does it for the workload's next version
                _log.error("%s/%s: not kept out of its queue: unexpected: %r", *key, error)
