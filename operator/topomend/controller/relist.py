"""Lists all objects again, so that an event that never came costs a delay and never a pod.

Owns the lists and the removal of old records. Leaves their meaning to ``ingest``. Each object is reduced to what is
kept of it before the next one is read, and an ended record to what its removal needs.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from topomend.cache import changes
from topomend.controller.ingest import Ingest, WatchEvent
from topomend.kube.client import Client
from topomend.kube.errors import APIError, Conflict, NotFound, Refused
from topomend.kube.resources import NODE_TOPOLOGIES, NODES, PODS, RELAUNCHES, Resource
from topomend.model.relaunch_record import Relaunch, Step

UNFINISHED = "status.phase!=Running,status.phase!=Succeeded"
"""Pods that wait and pods that failed: all that decisions are about, and few beside those that run."""

EMPTY_SECONDS = 300.0
"""How long a record is kept whose relaunch ended in nothing, such as that of a pod that its user deleted."""

MAX_ENDED = 500
"""Records of ended relaunches that are kept in one namespace: the newest."""

MAX_REMOVED = 2000
"""Records that one relist removes: the others wait for the next one, for the health check waits for this one."""

MAX_MISSED = 200
"""Publications that are read one by one. If more are not known, as at the start, all are listed."""

_log = logging.getLogger(__name__)

_Event = TypeVar("_Event")


@dataclass(frozen=True, slots=True)
class _Ended:
    """A record of an ended relaunch. ``since`` is the time of its end as RFC 3339, empty where nothing says."""

    namespace: str
    name: str
    uid: str
    version: str
    since: str
    launched: bool


class Relister:
    """Lists every kind and hands the lists to ingest."""

    def __init__(self, client: Client, ingest: Ingest, record_seconds: float) -> None:
        self._client, self._ingest, self._record_seconds = client, ingest, record_seconds

    def relist(self, now: float, *, tidy: bool) -> None:
        """List every kind once; ``tidy`` removes old records too. Raises APIError."""
        nodes = self._client.read(NODES, self._reader(NODES, changes.NodeUpdated))
        published = self._list_publications()
        records = self._client.read(RELAUNCHES, self._read_record)
        pods = self._client.read(PODS, self._reader(PODS, changes.PodUpdated), fields=UNFINISHED)
        relaunches = tuple(record for record in records.items if isinstance(record, Relaunch))
        self._ingest.put(changes.NodesListed(tuple(change.node for change in nodes.items), nodes.version))
        self._ingest.put(published)
        self._ingest.put(changes.RelaunchesListed(relaunches, records.version))
        self._ingest.put(changes.PodsListed(tuple(change.pod for change in pods.items), pods.version, now))
        if tidy:
            self._tidy(record for record in records.items if isinstance(record, _Ended))

    def _list_publications(self) -> changes.PublicationsListed:
        """All of them, but read only those that are not known in the version that they have.

        Of 5,000 nodes' objects, 110 MB of JSON, the watch has missed few, if any.
        """
        reader: Callable[[dict[str, Any]], Iterable[changes.Published | changes.Unreadable]] = self._reader(
            NODE_TOPOLOGIES, (changes.Published, changes.Unreadable)
        )
        versions = self._client.read(NODE_TOPOLOGIES, _name_and_version, metadata_only=True)
        known = frozenset(name for name, version in versions.items if self._ingest.has_publication(name, version))
        missed = [name for name, _ in versions.items if name not in known]
        if len(missed) > MAX_MISSED:
            listed = self._client.read(NODE_TOPOLOGIES, reader)
            return changes.PublicationsListed(listed.items, listed.version)
        read = list[changes.Published | changes.Unreadable]()
        for name in missed:
            with suppress(NotFound):
                read += reader(self._client.get(NODE_TOPOLOGIES, name))
        return changes.PublicationsListed(tuple(read), versions.version, known)

    def _reader(
        self, resource: Resource, kinds: type[_Event] | tuple[type[_Event], ...]
    ) -> Callable[[dict[str, Any]], Iterable[_Event]]:
        """A reader that turns an object into a change of these kinds, or skips it."""

        def read(content: dict[str, Any]) -> Iterable[_Event]:
            event = self._ingest.read(WatchEvent(resource.plural, content))
            return [event] if isinstance(event, kinds) else []

        return read

    def _read_record(self, content: dict[str, Any]) -> Iterable[Relaunch | _Ended]:
        for change in self._reader(RELAUNCHES, changes.RelaunchUpdated)(content):
            yield change.relaunch if change.relaunch.is_open else _ended(change.relaunch)

    def _tidy(self, records: Iterable[_Ended]) -> None:
        """Remove old records. Whatever keeps one: everything is listed, and the next relist tries again."""
        try:
            self._remove_old(records)
        except APIError as error:
            _log.warning("old records stay for now: %s", error)

    def _remove_old(self, records: Iterable[_Ended]) -> None:
        """Remove records whose time is over, and the oldest of a namespace that has more than MAX_ENDED."""
        now, newer = datetime.now(UTC), Counter[str]()
        old = []
        for record in sorted(records, key=lambda record: record.since, reverse=True):
            newer[record.namespace] += 1
            if newer[record.namespace] > MAX_ENDED or self._is_over(record, now):
                old.append(record)
        for record in old[-MAX_REMOVED:]:
            self._remove(record)

    def _is_over(self, record: _Ended, now: datetime) -> bool:
        seconds = self._record_seconds if record.launched else EMPTY_SECONDS
        return bool(record.since) and (now - datetime.fromisoformat(record.since)).total_seconds() > seconds

    def _remove(self, record: _Ended) -> None:
        try:
            self._client.delete(RELAUNCHES, record.name, record.namespace, uid=record.uid, version=record.version)
        except (NotFound, Conflict):
            _log.debug("record %s/%s has changed and stays", record.namespace, record.name)
        except Refused as error:
            _log.warning("record %s/%s stays for now: %s", record.namespace, record.name, error)


def _name_and_version(content: dict[str, Any]) -> Iterable[tuple[str, str]]:
    metadata = content["metadata"]
    yield metadata["name"], metadata.get("resourceVersion", "")


def _ended(record: Relaunch) -> _Ended:
    since = record.conditions[0].last_transition_time if record.conditions else ""
    launched = record.step is Step.LAUNCHED
    return _Ended(record.namespace, record.name, record.uid, record.version, since, launched)
