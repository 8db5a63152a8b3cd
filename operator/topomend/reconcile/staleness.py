"""Report agents that have stopped confirming their state, once each. Leaves to ``cache`` when that is."""

from topomend.cache.changes import SILENT
from topomend.kube.client import NODE_TOPOLOGIES, Client
from topomend.kube.errors import NotFound
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.store import Store
from topomend.wire.node_topology import HEARTBEAT

MAX_REPORTS = 20
"""The most reports in one call: each takes a request, and all agents may stop together."""


class Staleness:
    """Reports silent agents, once for each last heartbeat."""

    def __init__(self, client: Client, store: Store, announcer: Announcer) -> None:
        self._client, self._store, self._announcer = client, store, announcer
        self._reported: dict[str, str] = {}

    def report(self) -> None:
        """Report the agents that have become silent since the last call. Raises APIError."""
        publications = self._store.snapshot.publications
        silent = {name: state.heartbeat for name, state in publications.items() if state.problem == SILENT}
        new = [name for name, heartbeat in silent.items() if self._reported.get(name) != heartbeat]
        for name in new[:MAX_REPORTS]:
            self._report_agent(name, silent[name])
            self._reported[name] = silent[name]

    def _report_agent(self, name: str, heartbeat: str) -> None:
        try:
            content = self._client.get(NODE_TOPOLOGIES, name)
        except NotFound:
            return
        if content.get("status", {}).get(HEARTBEAT) == heartbeat:
            self._announcer.stale(name, content["metadata"]["uid"], heartbeat)
