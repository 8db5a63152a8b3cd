"""The sweep: everything listed anew, so that an event that never came costs a delay and never a pod.

It also removes records that ended long ago.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

from topomend.controller.observer import Observer, Sighting
from topomend.kube.client import NODE_TOPOLOGIES, NODES, PODS, RELAUNCHES, Client, Resource
from topomend.kube.errors import Conflict, NotFound
from topomend.model.relaunch import Relaunch
from topomend.watch import events

UNFINISHED = "status.phase!=Running,status.phase!=Succeeded"
"""Pods that wait, and pods that failed: all that decisions are about, and a fraction of what runs."""

PAGE = 100
"""Objects a page: a NodeTopology takes 120 KiB as Python has it."""

_log = logging.getLogger(__name__)

_Event = TypeVar("_Event")


@dataclass(frozen=True, slots=True)
class _Found(Generic[_Event]):
    """What a list says, and the resourceVersion at which it was so."""

    events: list[_Event]
    version: str


class Sweeper:
    """Lists, and hands the lists to the observer."""

    def __init__(self, client: Client, observer: Observer, record_seconds: float) -> None:
        self._client, self._observer, self._record_seconds = client, observer, record_seconds

    def sweep(self, now: float, *, tidy: bool) -> None:
        """One sweep; ``tidy`` is whether old records are removed. Raises APIError."""
        nodes: _Found[events.NodeSeen] = self._find(NODES, events.NodeSeen)
        states: _Found[events.Published | events.Unreadable] = self._find(
            NODE_TOPOLOGIES, (events.Published, events.Unreadable)
        )
        records: _Found[events.RelaunchSeen] = self._find(RELAUNCHES, events.RelaunchSeen)
        pods: _Found[events.PodSeen] = self._find(PODS, events.PodSeen, UNFINISHED)
        relaunches = tuple(each.relaunch for each in records.events)
        self._observer.put(events.NodesListed(tuple(each.node for each in nodes.events), nodes.version))
        self._observer.put(events.PublicationsListed(tuple(states.events), states.version))
        self._observer.put(events.RelaunchesListed(relaunches, records.version))
        self._observer.put(events.PodsListed(tuple(each.pod for each in pods.events), pods.version, now))
        if tidy:
            self._remove_old(relaunches)

    def _find(
        self, resource: Resource, kind: type[_Event] | tuple[type[_Event], ...], fields: str = ""
    ) -> "_Found[_Event]":
        """Every object as an event. The objects are held a page at a time: what is read of one is far smaller."""
        found, version = list[_Event](), ""
        for page in self._client.pages(resource, PAGE, fields=fields):
            read = (self._observer.read(Sighting(resource.plural, item)) for item in page.items)
            found += [each for each in read if isinstance(each, kind)]
            version = page.version
        return _Found(found, version)

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
