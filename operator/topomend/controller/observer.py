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

from topomend.controller.pod_id import PodID
from topomend.controller.store import Store
from topomend.controller.waiting import Waiting
from topomend.model.cluster import WatchedPod
from topomend.model.relaunch import Relaunch
from topomend.watch import events
from topomend.watch.reading import published
from topomend.wire.cluster import read_node, read_watched_pod
from topomend.wire.document import MalformedObject
from topomend.wire.group import FIT_GATE, RELAUNCH_GATE
from topomend.wire.relaunch import read_relaunch

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sighting:
    """One object as it came: ``gone`` where it was deleted or no longer matches."""

    plural: str
    content: dict[str, Any]
    gone: bool = False


class Observer:
    """Folds sightings into the store.

    ``look_at`` is told which pods to reconcile, and after how many seconds; ``refused`` of every refused pod that a
    controller owns, whose corpse may be gone the next moment. Both are quick.
    """

    def __init__(
        self,
        store: Store,
        waiting: Waiting,
        look_at: Callable[[PodID, float], None],
        refused: Callable[[WatchedPod], None],
        clock: Callable[[], float],
    ) -> None:
        self._store, self._waiting, self._clock = store, waiting, clock
        self._look_at, self._refused = look_at, refused
        self._inbox: queue.SimpleQueue[Sighting | events.Event | None] = queue.SimpleQueue()
        self._malformed: dict[tuple[str, str], str] = {}
        self._thread = threading.Thread(target=self._fold_all, name="observer", daemon=True)

    def start(self) -> None:
        """Begin to read the inbox."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread once the inbox is empty."""
        self._inbox.put(None)
        self._thread.join(2.0)

    def put(self, item: Sighting | events.Event) -> None:
        """Hand over what was seen."""
        self._inbox.put(item)

    def read(self, sighting: Sighting) -> events.Event | None:
        """The event that a sighting is; None for one that cannot be read and says nothing."""
        try:
            return self._event(sighting)
        except MalformedObject as error:
            return self._malformed_event(sighting, str(error))

    def _fold_all(self) -> None:
        while (item := self._inbox.get()) is not None:
            try:
                self._take(item)
            except Exception as error:  # noqa: BLE001  one object must not hide all that come after it
                _log.error("%s is left aside: unexpected: %r", _name(item), error)
                _log.debug("where it happened", exc_info=True)

    def _take(self, item: Sighting | events.Event) -> None:
        event = self.read(item) if isinstance(item, Sighting) else item
        if event is not None:
            self._store.fold(event)
            self._tell(event)
            self._waiting.tell()

    def _event(self, sighting: Sighting) -> events.Event:
        content = sighting.content
        metadata = content["metadata"]
        name = metadata["name"]
        match sighting.plural, sighting.gone:
            case "pods", True:
                return events.PodGone(metadata["namespace"], name, metadata["uid"], self._clock())
            case "pods", False:
                return events.PodSeen(read_watched_pod(content), self._clock())
            case "nodes", True:
                return events.NodeGone(name)
            case "nodes", False:
                return events.NodeSeen(read_node(content))
            case "nodetopologies", True:
                return events.Unpublished(name)
            case "nodetopologies", False:
                return published(content, datetime.now(UTC), self._clock(), self._store.view.publications.get(name))
            case "relaunches", True:
                return events.RelaunchGone(metadata["namespace"], name)
        return events.RelaunchSeen(read_relaunch(content))

    def _malformed_event(self, sighting: Sighting, problem: str) -> events.Event | None:
        name = sighting.content["metadata"]["name"]
        if self._malformed.get((sighting.plural, name)) != problem:
            self._malformed[(sighting.plural, name)] = problem
            _log.warning("%s %s is malformed and is left aside: %s", sighting.plural, name, problem)
        return (
            events.Unreadable(name, f"its NodeTopology is malformed: {problem}")
            if (sighting.plural == "nodetopologies")
            else None
        )

    def _tell(self, event: events.Event) -> None:
        if isinstance(event, events.PodSeen):
            self._tell_of_pod(event.pod)
        elif isinstance(event, events.RelaunchSeen):
            self._tell_of_record(event.relaunch)
        elif isinstance(event, events.PodsListed):
            for pod in sorted(event.pods, key=_age):
                self._tell_of_pod(pod)
        elif isinstance(event, events.RelaunchesListed):
            for relaunch in sorted(event.relaunches, key=_age):
                self._tell_of_record(relaunch)

    def tell_all(self) -> None:
        """Have everything looked at that there is to do by the view."""
        self._waiting.clear()
        view = self._store.view
        for pod in sorted((*(each.pod for each in view.refused.values()), *view.gated.values()), key=_age):
            self._tell_of_pod(pod)
        for relaunch in sorted(view.relaunches.values(), key=_age):
            self._tell_of_record(relaunch)

    def _tell_of_pod(self, pod: WatchedPod) -> None:
        if events.is_refusal(pod):
            if pod.owner:
                self._refused(pod)
            self._look_at(PodID(pod.namespace, pod.name, pod.uid), 0.0)
        if RELAUNCH_GATE in pod.gates and pod.replaces:
            self._look_at(PodID(pod.namespace, pod.name, pod.replaces), 0.0)
        if FIT_GATE in pod.gates:
            self._look_at(PodID(pod.namespace, pod.name, pod.uid), 0.0)

    def _tell_of_record(self, relaunch: Relaunch) -> None:
        if relaunch.is_open:
            self._look_at(PodID(relaunch.namespace, relaunch.pod_name, relaunch.pod_uid), 0.0)


def _age(listed: WatchedPod | Relaunch) -> str:
    """What the oldest is told of first by: a list is in the order of names."""
    return listed.creation_time


def _name(item: Sighting | events.Event) -> str:
    if not isinstance(item, Sighting):
        return type(item).__name__
    metadata = item.content.get("metadata")
    return f"{item.plural} {metadata.get('name') if isinstance(metadata, dict) else '(no name)'}"
