"""Lists all objects again, so that an event that never came costs a delay and never a pod.

Owns the lists and the removal of old records. Leaves their meaning to ``ingest``.
"""

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar

from topomend.cache import changes
from topomend.controller.ingest import Ingest, WatchEvent
from topomend.kube.client import NODE_TOPOLOGIES, NODES, PODS, RELAUNCHES, Client, Reading, Resource
from topomend.kube.errors import Conflict, NotFound
from topomend.model.relaunch import Relaunch

UNFINISHED = "status.phase!=Running,status.phase!=Succeeded"
"""Pods that wait and pods that failed: all that decisions are about, and few beside those that run."""

_log = logging.getLogger(__name__)

_Event = TypeVar("_Event")


class Relister:
    """Lists every kind and hands the lists to ingest."""

    def __init__(self, client: Client, ingest: Ingest, record_seconds: float) -> None:
        self._client, self._ingest, self._record_seconds = client, ingest, record_seconds

    def relist(self, now: float, *, tidy: bool) -> None:
        """List every kind once; ``tidy`` removes old records too. Raises APIError."""
        nodes = self._client.read(NODES, self._reader(NODES, changes.NodeUpdated))
        states: Reading[changes.Published | changes.Unreadable] = self._client.read(
            NODE_TOPOLOGIES, self._reader(NODE_TOPOLOGIES, (changes.Published, changes.Unreadable))
        )
        records = self._client.read(RELAUNCHES, self._reader(RELAUNCHES, changes.RelaunchUpdated))
        pods = self._client.read(PODS, self._reader(PODS, changes.PodUpdated), fields=UNFINISHED)
        relaunches = tuple(record.relaunch for record in records.items)
        self._ingest.put(changes.NodesListed(tuple(change.node for change in nodes.items), nodes.version))
        self._ingest.put(changes.PublicationsListed(states.items, states.version))
        self._ingest.put(changes.RelaunchesListed(relaunches, records.version))
        self._ingest.put(changes.PodsListed(tuple(change.pod for change in pods.items), pods.version, now))
        if tidy:
            self._remove_old(relaunches)

    def _reader(
        self, resource: Resource, kinds: type[_Event] | tuple[type[_Event], ...]
    ) -> Callable[[dict[str, Any]], Iterable[_Event]]:
        """A reader that turns an object into a change of these kinds, or skips it."""

        def read(content: dict[str, Any]) -> Iterable[_Event]:
            event = self._ingest.read(WatchEvent(resource.plural, content))
            return [event] if isinstance(event, kinds) else []

        return read

    def _remove_old(self, relaunches: Iterable[Relaunch]) -> None:
        now = datetime.now(UTC)
        for record in relaunches:
            since = record.conditions[0].last_transition_time if record.conditions else ""
            if record.is_open or not since:
                continue
            if (now - datetime.fromisoformat(since)).total_seconds() > self._record_seconds:
                self._remove(record)

    def _remove(self, record: Relaunch) -> None:
        try:
            self._client.delete(RELAUNCHES, record.name, record.namespace, uid=record.uid, version=record.version)
        except (NotFound, Conflict):
            _log.debug("record %s/%s has changed and stays", record.namespace, record.name)
