"""Tells of agents that have fallen silent; since when one is taken to be is the view's to say."""

from topomend.cache.changes import SILENT
from topomend.kube.client import NODE_TOPOLOGIES, Client
from topomend.kube.errors import NotFound
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.store import Store
from topomend.wire.node_topology import HEARTBEAT

AT_ONCE = 20
"""As many are told of in one call, for each is asked for: all agents may fall silent together."""


class Staleness:
    """Tells of every published state that is no longer believed, once for each last heartbeat."""

    def __init__(self, client: Client, store: Store, announcer: Announcer) -> None:
        self._client, self._store, self._announcer = client, store, announcer
        self._told: dict[str, str] = {}

    def tell(self) -> None:
        """Tell of what is stale and was not told of. Raises APIError."""
        published = self._store.snapshot.publications
        silent = {name: each.heartbeat for name, each in published.items() if each.problem == SILENT}
        untold = [name for name, heartbeat in silent.items() if self._told.get(name) != heartbeat]
        for name in untold[:AT_ONCE]:
            self._tell(name, silent[name])
            self._told[name] = silent[name]

    def _tell(self, name: str, heartbeat: str) -> None:
        try:
            content = self._client.get(NODE_TOPOLOGIES, name)
        except NotFound:
            return
        if content.get("status", {}).get(HEARTBEAT) == heartbeat:
            self._announcer.stale(name, content["metadata"]["uid"], heartbeat)
