"""The sweep: everything listed anew, so that an event that never came costs a delay and never a pod.

It also removes records that ended long ago.
"""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TypeVar

from topomend.controller.observer import Observer, Sighting
from topomend.kube.client import NODE_TOPOLOGIES, NODES, PODS, RELAUNCHES, Client, Listing, Resource
from topomend.kube.errors import Conflict, NotFound
from topomend.model.relaunch import Relaunch
from topomend.watch import events

UNFINISHED = "status.phase!=Running,status.phase!=Succeeded"
"""Pods that wait, and pods that failed: all that decisions are about, and a fraction of what runs."""

_log = logging.getLogger(__name__)

_Event = TypeVar("_Event")


class Sweeper:
    """Lists, and hands the lists to the observer."""

    def __init__(self, client: Client, observer: Observer, record_seconds: float) -> None:
        self._client, self._observer, self._record_seconds = client, observer, record_seconds

    def sweep(self, now: float, *, tidy: bool) -> None:
        """One sweep; ``tidy`` is whether old records are removed. Raises APIError."""
        nodes = self._client.list(NODES)
        published = self._client.list(NODE_TOPOLOGIES)
        records = self._client.list(RELAUNCHES)
        pods = self._client.list(PODS, fields=UNFINISHED)
        seen = self._read(NODES, nodes, events.NodeSeen)
        self._observer.put(events.NodesListed(tuple(each.node for each in seen), nodes.version))
        states = self._read(NODE_TOPOLOGIES, published, events.Published)
        unreadable = self._read(NODE_TOPOLOGIES, published, events.Unreadable)
        self._observer.put(events.PublicationsListed((*states, *unreadable), published.version))
        relaunches = [each.relaunch for each in self._read(RELAUNCHES, records, events.RelaunchSeen)]
        self._observer.put(events.RelaunchesListed(tuple(relaunches), records.version))
        unfinished = [each.pod for each in self._read(PODS, pods, events.PodSeen)]
        self._observer.put(events.PodsListed(tuple(unfinished), pods.version, now))
        if tidy:
            self._remove_old(relaunches)

    def _read(
        self, resource: Resource, listing: Listing, kind: type[_Event] | tuple[type[_Event], ...]
    ) -> list[_Event]:
        read = (self._observer.read(Sighting(resource.plural, item)) for item in listing.items)
        return [each for each in read if isinstance(each, kind)]

    def _remove_old(self, relaunches: Iterable[Relaunch]) -> None:
        now = datetime.now(UTC)
        for record in relaunches:
            since = record.conditions[0].last_transition_time if record.conditions else ""
            if not record.step.ended or not since:
                continue
            if (now - datetime.fromisoformat(since)).total_seconds() > self._record_seconds:
                self._remove(record)

    def _remove(self, record: Relaunch) -> None:
        try:
            self._client.delete(RELAUNCHES, record.name, record.namespace, uid=record.uid, version=record.version)
        except (NotFound, Conflict):
            _log.debug("record %s/%s has changed and stays", record.namespace, record.name)
