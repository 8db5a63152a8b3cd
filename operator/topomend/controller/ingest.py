"""What the API server says of objects, read and folded into the view, and which pods are to be looked at for it.

One thread reads an inbox, so that whoever fills it (kopf's handlers, the sweep) neither waits nor fails.
"""

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from topomend.cache import changes
from topomend.cache.topology_reader import published
from topomend.model.cluster import WatchedPod
from topomend.model.relaunch import Relaunch
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.store import Store
from topomend.reconcile.unschedulable_pods import UnschedulablePods
from topomend.wire.cluster import read_node, read_watched_pod
from topomend.wire.document import MalformedObject
from topomend.wire.group import FIT_GATE, RELAUNCH_GATE
from topomend.wire.relaunch import read_relaunch

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One object as it came: ``gone`` where it was deleted or no longer matches."""

    plural: str
    content: dict[str, Any]
    gone: bool = False


class Ingest:
    """Folds sightings into the store.

    ``enqueue`` is told which pods to reconcile, and after how many seconds; ``refused`` of every refused pod that a
    controller owns, whose corpse may be gone the next moment. Both are quick.
    """

    def __init__(
        self,
        store: Store,
        waiting: UnschedulablePods,
        enqueue: Callable[[PodID, float], None],
        refused: Callable[[WatchedPod], None],
        clock: Callable[[], float],
    ) -> None:
        self._store, self._waiting, self._clock = store, waiting, clock
        self._enqueue, self._refused = enqueue, refused
        self._inbox: queue.SimpleQueue[WatchEvent | changes.Event | None] = queue.SimpleQueue()
        self._malformed: dict[tuple[str, str], str] = {}
        self._thread = threading.Thread(target=self._fold_all, name="observer", daemon=True)

    def start(self) -> None:
        """Begin to read the inbox."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread once the inbox is empty."""
        self._inbox.put(None)
        self._thread.join(2.0)

    def put(self, item: WatchEvent | changes.Event) -> None:
        """Hand over what was seen."""
        self._inbox.put(item)

    def read(self, event: WatchEvent) -> changes.Event | None:
        """The event that a sighting is; None for one that cannot be read and says nothing."""
        try:
            return self._event(event)
        except MalformedObject as error:
            return self._malformed_event(event, str(error))

    def _fold_all(self) -> None:
        while (item := self._inbox.get()) is not None:
            try:
                self._take(item)
            except Exception as error:  # noqa: BLE001  one object must not hide all that come after it
                _log.error("%s is left aside: unexpected: %r", _name(item), error)
                _log.debug("where it happened", exc_info=True)

    def _take(self, item: WatchEvent | changes.Event) -> None:
        event = self.read(item) if isinstance(item, WatchEvent) else item
        if event is not None:
            self._store.apply(event)
            self._tell(event)
            self._waiting.tell()

    def _event(self, event: WatchEvent) -> changes.Event:
        content = event.content
        metadata = content["metadata"]
        name = metadata["name"]
        match event.plural, event.gone:
            case "pods", True:
                return changes.PodRemoved(metadata["namespace"], name, metadata["uid"], self._clock())
            case "pods", False:
                return changes.PodUpdated(read_watched_pod(content), self._clock())
            case "nodes", True:
                return changes.NodeRemoved(name)
            case "nodes", False:
                return changes.NodeUpdated(read_node(content))
            case "nodetopologies", True:
                return changes.Unpublished(name)
            case "nodetopologies", False:
                return published(content, datetime.now(UTC), self._clock(), self._store.snapshot.publications.get(name))
            case "relaunches", True:
                return changes.RelaunchRemoved(metadata["namespace"], name)
        return changes.RelaunchUpdated(read_relaunch(content))

    def _malformed_event(self, event: WatchEvent, problem: str) -> changes.Event | None:
        name = event.content["metadata"]["name"]
        if self._malformed.get((event.plural, name)) != problem:
            self._malformed[(event.plural, name)] = problem
            _log.warning("%s %s is malformed and is left aside: %s", event.plural, name, problem)
        return (
            changes.Unreadable(name, f"its NodeTopology is malformed: {problem}")
            if (event.plural == "nodetopologies")
            else None
        )

    def _tell(self, event: changes.Event) -> None:
        if isinstance(event, changes.PodUpdated):
            self._tell_of_pod(event.pod)
        elif isinstance(event, changes.RelaunchUpdated):
            self._tell_of_record(event.relaunch)
        elif isinstance(event, changes.PodsListed):
            for pod in sorted(event.pods, key=_age):
                self._tell_of_pod(pod)
        elif isinstance(event, changes.RelaunchesListed):
            for relaunch in sorted(event.relaunches, key=_age):
                self._tell_of_record(relaunch)

    def enqueue_all(self) -> None:
        """Have everything looked at that there is to do by the view."""
        self._waiting.clear()
        snapshot = self._store.snapshot
        for pod in sorted((*(each.pod for each in snapshot.refused.values()), *snapshot.gated.values()), key=_age):
            self._tell_of_pod(pod)
        for relaunch in sorted(snapshot.relaunches.values(), key=_age):
            self._tell_of_record(relaunch)

    def _tell_of_pod(self, pod: WatchedPod) -> None:
        if changes.is_refusal(pod):
            if pod.owner:
                self._refused(pod)
            self._enqueue(PodID(pod.namespace, pod.name, pod.uid), 0.0)
        if RELAUNCH_GATE in pod.gates and pod.replaces:
            self._enqueue(PodID(pod.namespace, pod.name, pod.replaces), 0.0)
        if FIT_GATE in pod.gates:
            self._enqueue(PodID(pod.namespace, pod.name, pod.uid), 0.0)

    def _tell_of_record(self, relaunch: Relaunch) -> None:
        if relaunch.is_open:
            self._enqueue(PodID(relaunch.namespace, relaunch.pod_name, relaunch.pod_uid), 0.0)


def _age(listed: WatchedPod | Relaunch) -> str:
    """What the oldest is told of first by: a list is in the order of names."""
    return listed.creation_time


def _name(item: WatchEvent | changes.Event) -> str:
    if not isinstance(item, WatchEvent):
        return type(item).__name__
    metadata = item.content.get("metadata")
    return f"{item.plural} {metadata.get('name') if isinstance(metadata, dict) else '(no name)'}"
