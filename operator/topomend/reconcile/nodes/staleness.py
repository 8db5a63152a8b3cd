"""Report agents that are silent, and agents that the operator does not believe, once each.

Leaves to ``cache`` when that is. A Node lags its agent by seconds, for its kubelet posts what changed every ten seconds
(nodeStatusUpdateFrequency), so what is not believed for a moment is not reported.
"""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from topomend.cache.changes import SILENT
from topomend.cache.snapshot import Publication
from topomend.kube.client import Client
from topomend.kube.errors import NotFound
from topomend.kube.resources import NODE_TOPOLOGIES
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.object_faults import ObjectFaults
from topomend.reconcile.store import Store
from topomend.wire.published.node_topology import HEARTBEAT

MAX_REPORTS = 20
"""The most reports of a kind in one call: each takes a request, and all agents may stop together."""

DISTRUST_SECONDS = 30.0
"""How long a publication is not believed before that is reported: three posts of the Node's status."""

_log = logging.getLogger(__name__)


class Staleness:
    """Reports silent agents once for each last heartbeat, and others once until they are believed again.

    For one thread. Remembers only the agents that are silent or not believed now.
    """

    def __init__(
        self, client: Client, store: Store, announcer: Announcer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._store, self._announcer, self._clock = client, store, announcer, clock
        self._reported: dict[str, str] = {}
        self._distrusted_since: dict[str, float] = {}
        self._reported_distrust: set[str] = set()
        self._faults = ObjectFaults(_log, "its silent or distrusted agent is not reported", clock)

    def report(self) -> None:
        """Report the agents that are silent or not believed since the last call. Raises APIError."""
        publications = self._store.snapshot.publications
        self._report_silent(publications)
        self._report_distrusted({name: state.distrust for name, state in publications.items() if state.distrust})

    def _report_silent(self, publications: Mapping[str, Publication]) -> None:
        silent = {name: state.heartbeat for name, state in publications.items() if state.agent_problem == SILENT}
        self._reported = {name: heartbeat for name, heartbeat in self._reported.items() if name in silent}
        new = [name for name, heartbeat in silent.items() if self._reported.get(name) != heartbeat]
        for name in new[:MAX_REPORTS]:
            with self._faults.of("node", name):
                self._report_agent(name, silent[name])
                self._reported[name] = silent[name]

    def _report_distrusted(self, distrusted: Mapping[str, str]) -> None:
        now = self._clock()
        self._distrusted_since = {name: self._distrusted_since.get(name, now) for name in distrusted}
        self._reported_distrust &= distrusted.keys()
        new = [
            name
            for name, since in self._distrusted_since.items()
            if now - since >= DISTRUST_SECONDS and name not in self._reported_distrust
        ]
        for name in new[:MAX_REPORTS]:
            with self._faults.of("node", name):
                self._report_distrust(name, distrusted[name])
                self._reported_distrust.add(name)

    def _report_distrust(self, name: str, distrust: str) -> None:
        with suppress(NotFound):
            content = self._client.get(NODE_TOPOLOGIES, name)
            self._announcer.distrusted(name, content["metadata"]["uid"], distrust)

    def _report_agent(self, name: str, heartbeat: str) -> None:
        try:
            content = self._client.get(NODE_TOPOLOGIES, name)
        except NotFound:
            return
        if content.get("status", {}).get(HEARTBEAT) == heartbeat:
            self._announcer.stale(name, content["metadata"]["uid"], heartbeat)
