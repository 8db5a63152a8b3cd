"""Turns objects from watches and lists into changes of the snapshot, and enqueues the pods that they concern.

One thread reads an inbox, so that its producers (the streams, the relist) neither wait nor fail. It replays nothing, so
that no object holds those after it up, and namespaces take turns, so that a thousand objects of one hold up no object
of another. What waits there is small whatever the objects are: an ordinary one waits as the bytes that came, and a
larger one is read before it waits. Of the published states, which take longer to read, only the newest of each node
waits. Owns reading and the choice of pods to enqueue. Leaves the effect of a change to ``cache``.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from topomend.base.bounded_dict import BoundedDict
from topomend.cache import changes
from topomend.cache.pod_reader import PodReader, counted_pod
from topomend.cache.publication_size import json_bytes
from topomend.cache.snapshot import is_newer
from topomend.cache.topology_reader import NO_ROOM, TopologyReader
from topomend.controller.newest_versions import NewestVersions
from topomend.kube.resources import NODE_TOPOLOGIES, NODES, PODS, RELAUNCHES
from topomend.model.pods.scheduling import WatchedPod, is_refusal
from topomend.model.relaunch_record import Relaunch
from topomend.reconcile.gated.unschedulable_pods import UnschedulablePods
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.store import Store
from topomend.runtime.queues.inbox import Inbox
from topomend.runtime.queues.newest_by_key import NewestByKey
from topomend.wire.document import MalformedObject
from topomend.wire.group import FIT_GATE, RELAUNCH_GATE
from topomend.wire.node import read_node
from topomend.wire.published.node_topology import MAX_STATUS_BYTES
from topomend.wire.relaunch_record import read_relaunch, record_name

PUBLICATION_SECONDS = 0.2
"""The least time between two publications of one node that are taken in; an agent polls its kubelet every 0.5 s."""

MAX_INBOX_BYTES = 64 << 20
"""How much of objects waits to be read, of one namespace half. What comes beyond is dropped, and everything is listed
again."""

ORDINARY_BYTES = 16 << 10
"""Up to which length an object waits as it came. What is kept of a larger one counts as much."""

AT_ONCE = 16
"""How many changes make one new snapshot: thousands of pods are copied for each."""

ENQUEUED_AT_ONCE = 500
"""How many listed pods are enqueued before the next change."""

LARGE_BYTES, MAX_LARGE_BYTES = 64 << 10, 4 << 20
"""From where on a published object counts as large, and how much of large ones waits to be read, as JSON. Decoded it is
ten times as much."""

MAX_MALFORMED = 10_000
"""Malformed objects that are remembered, so that each is logged once."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One object as it was delivered; ``gone`` where it was deleted or no longer matches the watch.

    ``entered``: the watch did not show it before. ``line`` is the event as a watch brought it, of which all else was
    read; empty where a list brought the object.
    """

    plural: str
    content: dict[str, Any]
    gone: bool = False
    entered: bool = False
    line: bytes = b""


def watch_event(plural: str, line: bytes) -> WatchEvent | None:
    """The event of a line of a watch; None for what is about no object: a bookmark or an error.

    Raises ValueError, KeyError or TypeError for a line that the API server does not write.
    """
    event = json.loads(line)
    if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
        return None
    content: dict[str, Any] = event["object"]
    metadata: dict[str, Any] = content["metadata"]
    if not (metadata["name"] and metadata["resourceVersion"]):
        raise ValueError(f"an object of {plural} has no name or no version")
    if plural != PODS.plural:  # who wrote a pod's node is read of its managers, and of no other object's
        metadata.pop("managedFields", None)
    kind = event["type"]
    return WatchEvent(plural, content, gone=kind == "DELETED", entered=kind == "ADDED", line=line)


@dataclass(frozen=True, slots=True)
class _Line:
    """An event that was not read yet."""

    plural: str
    line: bytes


@dataclass(frozen=True, slots=True)
class _Publication:
    """A node has published something that is not taken in yet."""

    node: str


@dataclass(frozen=True, slots=True)
class _Listed:
    """Pods of a list that are not enqueued yet."""

    pods: Iterator[WatchedPod]


_Item = changes.Change | _Line | _Publication | _Listed


class Ingest:
    """Applies changes to the store.

    ``enqueue`` gets the pods to reconcile with a delay in seconds; ``refused`` gets every refused pod that a controller
    owns, for the controller may delete it at once; ``bound`` gets every pod that has a node; ``dropped`` is called when
    everything is to be listed again. They return quickly. ``newest_pod`` is the resourceVersion of the newest pod that
    a watch has brought since the last gap, empty before the first.
    """

    def __init__(  # noqa: PLR0913  whom it tells of what
        self,
        store: Store,
        waiting: UnschedulablePods,
        enqueue: Callable[[PodID, float], None],
        refused: Callable[[WatchedPod], None],
        *,
        bound: Callable[[WatchedPod], None],
        dropped: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._store, self._waiting, self._clock = store, waiting, clock
        self._enqueue, self._refused, self._bound, self._dropped = enqueue, refused, bound, dropped
        self._pods, self._topologies = PodReader(), TopologyReader()
        self._inbox: Inbox[_Item] = Inbox(MAX_INBOX_BYTES)
        self._publications = NewestByKey[str, WatchEvent](PUBLICATION_SECONDS)
        self._newest, self.newest_pod = NewestVersions(), ""
        self._large: dict[str, int] = {}
        self._malformed: BoundedDict[tuple[str, str, str], str] = BoundedDict(MAX_MALFORMED)
        self._thread = threading.Thread(target=self._apply_all, name="ingest", daemon=True)

    def start(self) -> None:
        """Start to read the inbox."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread once the inbox is empty."""
        self._inbox.stop()
        self._thread.join(2.0)

    def missed(self) -> None:
        """Events may have been missed: no sum of before is right, and the API server's versions may begin anew."""
        self.newest_pod = ""
        self.put(changes.TotalsUnknown())

    def has_publication(self, node: str, version: str) -> bool:
        """Whether what the node published in this version is taken in already."""
        publication = self._store.snapshot.publications.get(node)
        return publication is not None and publication.is_of(version)

    def put(self, item: WatchEvent | changes.Change) -> None:
        """Add an object or a change to the inbox. A list is applied after all that came before it."""
        if isinstance(item, _LISTS):
            self._inbox.put_behind_all(item)
        elif not isinstance(item, WatchEvent):
            self._inbox.put(_group_of(item), item)
        else:
            self._put_event(item)

    def _put_event(self, item: WatchEvent) -> None:
        metadata = item.content["metadata"]
        if version := metadata.get("resourceVersion"):
            self._newest.note(item.plural, (metadata.get("namespace", ""), metadata["name"]), version)
        if item.line and item.plural == PODS.plural:
            self._note_newest_pod(metadata["resourceVersion"])
        if item.plural == NODE_TOPOLOGIES.plural:
            self._put_publication(str(metadata["name"]), item)
        elif 0 < len(item.line) <= ORDINARY_BYTES:
            self._put_object(item, _Line(item.plural, item.line), len(item.line))
        else:
            self._read_and(lambda change: self._put_object(item, change, ORDINARY_BYTES), item)

    def _note_newest_pod(self, version: str) -> None:
        """Note it as it arrives: before it is counted, as a list that begins later asks for it; and not after a gap
        before which it came."""
        if not self.newest_pod or is_newer(version, self.newest_pod):
            self.newest_pod = version

    def _put_object(self, event: WatchEvent, item: _Item, size: int) -> None:
        if not self._inbox.put(event.content["metadata"].get("namespace", ""), item, size):
            self._dropped()

    def _put_publication(self, node: str, event: WatchEvent) -> None:
        if event.gone:
            event = replace(event, content={"metadata": event.content["metadata"]})
        size = json_bytes(event.content, MAX_STATUS_BYTES)
        if size > LARGE_BYTES:
            others = sum(large for name, large in self._large.copy().items() if name != node)
            if others + size > MAX_LARGE_BYTES:
                self._inbox.put("", changes.Unreadable(node, f"its NodeTopology is ignored: {NO_ROOM}"))
                return
            self._large[node] = size
        if self._publications.put(node, event):
            self._inbox.put("", _Publication(node))

    def _read_and(self, pass_on: Callable[[changes.Change], None], event: WatchEvent) -> None:
        """Pass on the changes that an object means. One object must not stop those after it."""
        try:
            if event.line and event.plural == PODS.plural and (counted := self._counted(event)):
                pass_on(counted)
            change = self.read(event)
            if change is not None:
                pass_on(change)
        except Exception as error:  # noqa: BLE001  whatever is wrong with it
            _log.error("%s is ignored: unexpected: %r", _name(event), error)
            _log.debug("where it happened", exc_info=True)

    def read(self, event: WatchEvent) -> changes.Change | None:
        """The change that an object means; None for a malformed object without meaning."""
        try:
            return self._event(event)
        except MalformedObject as error:
            return self._malformed_event(event, str(error))

    def _apply_all(self) -> None:
        while (items := self._inbox.take(AT_ONCE, self._publications.wait(self._clock()))) is not None:
            self._apply_items(items)

    def _apply_items(self, items: Iterable[_Item]) -> None:
        """Apply the changes that these items mean, and the publications that are due."""
        read, listed = list[changes.Change](), list[Iterator[WatchedPod]]()
        for item in items:
            match item:
                case _Line(plural, line):
                    self._read_line(read.append, plural, line)
                case _Listed(pods):
                    listed.append(pods)
                case _Publication():
                    pass  # those that are due are read below
                case _:
                    read.append(self._with_changed(item))
        if read:
            self._apply(read)
        for pods in listed:
            self._enqueue_some(pods)
        for publication in self._publications.due(self._clock()):
            self._large.pop(publication.content["metadata"]["name"], None)
            self._read_and(lambda change: self._apply([change]), publication)

    def _with_changed(self, change: changes.Change) -> changes.Change:
        """A list that knows of which objects a watch has brought something newer; any other change as it is."""
        match change:
            case changes.PodsListed():
                return change._replace(changed=self._newest.newer_than(PODS.plural, change.version))
            case changes.RelaunchesListed():
                return change._replace(changed=self._newest.newer_than(RELAUNCHES.plural, change.version))
            case changes.NodesListed():
                return change._replace(changed=self._names_newer_than(NODES.plural, change.version))
            case changes.PublicationsListed():
                return change._replace(changed=self._names_newer_than(NODE_TOPOLOGIES.plural, change.version))
        return change

    def _names_newer_than(self, plural: str, version: str) -> frozenset[str]:
        return frozenset(name for _, name in self._newest.newer_than(plural, version))

    def _read_line(self, pass_on: Callable[[changes.Change], None], plural: str, line: bytes) -> None:
        event = watch_event(plural, line)
        assert event is not None  # noqa: S101  it was read before
        self._read_and(pass_on, event)

    def _apply(self, read: Sequence[changes.Change]) -> None:
        """Apply changes in their order, all at once or, where one is a bug, each by itself."""
        try:
            self._store.apply_all(read)
        except Exception as error:  # noqa: BLE001  one change must not stop those after it
            if len(read) > 1:
                for change in read:
                    self._apply([change])
                return
            self._say_ignored(read[0], error)
        else:
            self._tell_of(read)

    def _tell_of(self, applied: Iterable[changes.Change]) -> None:
        for change in applied:
            try:
                self._enqueue_affected(change)
            except Exception as error:  # noqa: BLE001  one change must not stop those after it
                self._say_ignored(change, error)
        self._waiting.changed()

    @staticmethod
    def _say_ignored(change: changes.Change, error: Exception) -> None:
        _log.error("%s is ignored: unexpected: %r", type(change).__name__, error)
        _log.debug("where it happened", exc_info=True)

    def _event(self, event: WatchEvent) -> changes.Change:
        content = event.content
        metadata = content["metadata"]
        name = metadata["name"]
        match event.plural, event.gone:
            case "pods", True:
                return changes.PodRemoved(metadata["namespace"], name, metadata["uid"], self._clock())
            case "pods", False:
                return changes.PodUpdated(self._pods.kept(content, self._known(content["metadata"])), self._clock())
            case "nodes", True:
                return changes.NodeRemoved(name)
            case "nodes", False:
                return changes.NodeUpdated(read_node(content))
            case "nodetopologies", True:
                return changes.Unpublished(name)
            case "nodetopologies", False:
                known = self._store.snapshot.publications.get(name)
                return self._topologies.published(content, datetime.now(UTC), self._clock(), known)
            case "relaunches", True:
                return changes.RelaunchRemoved(metadata["namespace"], name)
        return changes.RelaunchUpdated(_without_large_parts(read_relaunch(content)))

    def _counted(self, event: WatchEvent) -> changes.Change | None:
        """What a pod of a watch means for the totals of its node, where those are counted."""
        if event.content.get("spec", {}).get("nodeName") not in self._store.snapshot.totals:
            return None
        return counted_pod(event.content, gone=event.gone, entered=event.entered)

    def _known(self, metadata: dict[str, Any]) -> WatchedPod | None:
        """The pod as the snapshot has it: a list of what is known already takes no memory."""
        snapshot = self._store.snapshot
        refusal = snapshot.refused.get(metadata.get("uid", ""))
        return refusal.pod if refusal else snapshot.gated.get((metadata.get("namespace", ""), metadata["name"]))

    def _malformed_event(self, event: WatchEvent, problem: str) -> changes.Change | None:
        metadata = event.content["metadata"]
        name, key = metadata["name"], (event.plural, metadata.get("namespace", ""), metadata["name"])
        if self._malformed.get(key) != problem:
            self._malformed[key] = problem
            _log.warning("%s %s is malformed and ignored: %s", event.plural, name, problem)
        return (
            changes.Unreadable(name, f"its NodeTopology is malformed: {problem}")
            if (event.plural == "nodetopologies")
            else None
        )

    def _enqueue_affected(self, event: changes.Change) -> None:
        for pod in self._pods_of(event):
            self._enqueue_pod(pod)
        if isinstance(event, changes.PodsListed):  # a list is in the order of names
            self._enqueue_some(iter(sorted(event.pods, key=lambda pod: pod.order)))
        for record in self._records_of(event):
            self._enqueue_record(record)

    def _pods_of(self, event: changes.Change) -> Iterable[WatchedPod]:
        """The pods that a change is about, and those whose node is gone: they would be deleted within a minute."""
        match event:
            case changes.PodUpdated(pod):
                return [pod]
            case changes.NodeRemoved(name):
                return [refusal.pod for refusal in self._store.snapshot.refused.values() if refusal.pod.node == name]
        return []

    def _records_of(self, event: changes.Change) -> Iterable[Relaunch]:
        """The records that a change is about; a record ends with its pod."""
        match event:
            case changes.RelaunchUpdated(record):
                return [record]
            case changes.RelaunchesListed(records):
                return sorted(records, key=lambda record: record.creation_time)
            case changes.PodRemoved(namespace, name, uid):
                record_of_pod = self._store.snapshot.relaunches.get((namespace, record_name(name, uid)))
                return [record_of_pod] if record_of_pod else []
        return []

    def _enqueue_some(self, pods: Iterator[WatchedPod]) -> None:
        """Enqueue some of a list's pods, and the others after what has come meanwhile."""
        some = list(islice(pods, ENQUEUED_AT_ONCE))
        for pod in some:
            self._enqueue_pod(pod)
        if some:
            self._inbox.put("", _Listed(pods))

    def enqueue_all(self) -> None:
        """Enqueue every pod and record of the snapshot that needs work."""
        self._waiting.clear()
        snapshot = self._store.snapshot
        for pod in sorted(
            (
                *(refusal.pod for refusal in snapshot.refused.values()),
                *snapshot.gated.values(),
                *(unbound.pod for unbound in snapshot.unbound.values()),
            ),
            key=lambda pod: pod.order,
        ):
            self._enqueue_pod(pod)
        for relaunch in sorted(snapshot.relaunches.values(), key=lambda record: record.creation_time):
            self._enqueue_record(relaunch)

    def _enqueue_pod(self, pod: WatchedPod) -> None:
        if is_refusal(pod):
            if pod.owner:
                self._refused(pod)
            self._enqueue(PodID.of(pod), 0.0)
        elif pod.node:
            self._bound(pod)
        if pod.owner is None and (pod.namespace, pod.name) in self._store.snapshot.unbound:
            self._enqueue(PodID.of(pod), 0.0)
        if RELAUNCH_GATE in pod.gates and pod.replaces:
            self._enqueue(PodID(pod.namespace, pod.name, pod.replaces), 0.0)
        if FIT_GATE in pod.gates:
            self._enqueue(PodID.of(pod), 0.0)

    def _enqueue_record(self, relaunch: Relaunch) -> None:
        if relaunch.is_open:
            self._enqueue(PodID(relaunch.namespace, relaunch.pod_name, relaunch.pod_uid), 0.0)


_LISTS = (
    changes.NodesListed,
    changes.PublicationsListed,
    changes.RelaunchesListed,
    changes.PodsListed,
    changes.DeviceClassesListed,
)


def _group_of(change: changes.Change) -> str:
    """The namespace that a change is about; empty for the whole cluster."""
    match change:
        case changes.PodUpdated(pod):
            return pod.namespace
        case changes.PodRemoved(namespace) | changes.PodForgotten(namespace):
            return namespace
    return ""


def _without_large_parts(record: Relaunch) -> Relaunch:
    """The record without what is large in it: whoever relaunches the pod reads the record again."""
    return replace(record, manifest={}, verdicts=(), counts={})


def _name(event: WatchEvent) -> str:
    metadata = event.content.get("metadata")
    return f"{event.plural} {metadata.get('name') if isinstance(metadata, dict) else '(no name)'}"
