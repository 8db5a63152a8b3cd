"""The workloads of Kueue that a check of ours decides about, as a watch and lists bring them, within bounded memory.

Owns which are kept, and which have changed since they were looked at. Leaves what is done about them to ``numa_fit``.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from topomend.cache.memory_budget import MemoryBudget
from topomend.cache.pod_reader import kept_bytes
from topomend.cache.snapshot import PodKey
from topomend.kube.client import Client
from topomend.kube.kueue import ADMISSION_CHECKS, WORKLOADS
from topomend.model.pods.queued_workload import QueuedWorkload
from topomend.reconcile.object_faults import ObjectFaults
from topomend.wire.document import Document, MalformedObject
from topomend.wire.queued_workload import is_ours, read_workload

MAX_WORKLOADS = 2_000
"""How many workloads are kept. Of those beyond, the ones that wait are forgotten first: Kueue retries them by time."""

ORDINARY_BYTES, ROOM_BYTES = 16 << 10, 16 << 20
"""Up to what size a workload's templates are always kept, and the room for all larger ones, half for a namespace."""

NO_ROOM = "spec.podSets: too large to be kept beside the other large workloads, so topomend leaves the workload alone"

_log = logging.getLogger(__name__)


class Queued:
    """The workloads, and our checks by name. Watches write it, each in a thread of its own, and one thread reads."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._budget = MemoryBudget(ROOM_BYTES, ORDINARY_BYTES, ROOM_BYTES // 2)
        self._faults = ObjectFaults(_log, "its workload is left alone", clock)
        self._workloads: dict[PodKey, QueuedWorkload] = {}
        self._sizes: dict[PodKey, int] = {}
        self._due: dict[PodKey, None] = {}
        self._lock = threading.Lock()
        self._is_stale, self._brought = True, set[PodKey]()
        self._is_listing = False
        self.checks: Mapping[str, Mapping[str, Any]] = {}

    def missed(self) -> None:
        """Something may have been missed: everything is to be listed."""
        self._is_stale = True

    def see(self, plural: str, content: dict[str, Any], *, gone: bool) -> None:
        """An object as a watch brought it. Never raises for what is wrong with it."""
        if plural == ADMISSION_CHECKS.plural:
            name = content["metadata"]["name"]
            if name in self.checks or (not gone and self._is_ours(content)):
                self.missed()
            return
        metadata = content["metadata"]
        key = metadata["namespace"], metadata["name"]
        workload = None
        with self._faults.of(*key):
            workload = None if gone else self._read(content)
        with self._lock:
            self._keep(key, workload)
            self._brought |= {key} if self._is_listing else set()

    def refresh(self) -> None:
        """List everything where something was missed. Raises APIError."""
        if not self._is_stale:
            return
        with self._lock:
            self._is_stale, self._is_listing = False, True
        try:
            listed = self._client.list(ADMISSION_CHECKS).items
            self.checks = {content["metadata"]["name"]: content for content in listed if self._is_ours(content)}
            self._take_over(dict(self._client.read(WORKLOADS, self._read_each).items))
        except BaseException:
            self._is_stale = True
            raise
        finally:
            with self._lock:
                self._is_listing, self._brought = False, set()

    def _take_over(self, listed: Mapping[PodKey, QueuedWorkload]) -> None:
        """What a list has, but of those that a watch brought meanwhile: these may be newer, or gone."""
        with self._lock:
            for key in (*listed, *self._workloads):
                if key not in self._brought:
                    self._keep(key, listed.get(key))
            for key in self._sizes.keys() - self._workloads.keys():
                del self._sizes[key]

    def due(self) -> list[QueuedWorkload]:
        """The workloads that have changed, in the order of their turns; gone ones are none of them."""
        with self._lock:
            found = [self._workloads[key] for key in self._due if key in self._workloads]
        return sorted(found, key=lambda workload: workload.order)

    def done(self, workload: QueuedWorkload) -> None:
        """The workload was looked at, in this version."""
        key = workload.namespace, workload.name
        with self._lock:
            if self._workloads.get(key) is workload:
                self._due.pop(key, None)

    def get(self, key: PodKey) -> QueuedWorkload | None:
        """The workload of this namespace and name."""
        return self._workloads.get(key)

    def all(self) -> list[QueuedWorkload]:
        """All of them, in the order of their turns."""
        with self._lock:
            found = list(self._workloads.values())
        return sorted(found, key=lambda workload: workload.order)

    def _is_ours(self, content: dict[str, Any]) -> bool:
        with suppress(MalformedObject):
            return is_ours(content)
        return False

    def _read_each(self, content: dict[str, Any]) -> Iterable[tuple[PodKey, QueuedWorkload]]:
        metadata = content["metadata"]
        with self._faults.of(metadata["namespace"], metadata["name"]):
            if workload := self._read(content):
                yield (workload.namespace, workload.name), workload

    def _read(self, content: dict[str, Any]) -> QueuedWorkload | None:
        """The workload, where one of our checks is asked about it: the known one, if that is the same version.

        Raises MalformedObject.
        """
        document = Document(content)
        if not any(check["name"].text("") in self.checks for check in document["status"]["admissionChecks"]):
            return None
        metadata, namespace = document["metadata"], document["metadata"]["namespace"].text()
        key = namespace, metadata["name"].text()
        known = self._workloads.get(key)
        if known and (known.uid, known.version) == (metadata["uid"].text(), metadata["resourceVersion"].text()):
            return known
        templates = [pod_set["template"].content for pod_set in document["spec"]["podSets"]]
        size = sum(kept_bytes(template) for template in templates if isinstance(template, dict))
        freed = self._sizes.get(key, 0)
        if not self._budget.has_room(size, namespace, freed=freed):
            raise MalformedObject(NO_ROOM)
        workload = read_workload(content)
        self._budget.take(workload, size, namespace, freed=freed)
        self._sizes[key] = size
        return workload

    def _keep(self, key: PodKey, workload: QueuedWorkload | None) -> None:
        known = self._workloads.pop(key, None)
        if workload is None:
            self._sizes.pop(key, None)
            self._due.pop(key, None)
            return
        self._workloads[key] = workload
        if known is None or known.version != workload.version:
            self._due[key] = None
        if len(self._workloads) > MAX_WORKLOADS:
            waiting = (each for each, other in self._workloads.items() if not other.reserved)
            dropped = next(waiting, next(iter(self._workloads)))
            del self._workloads[dropped]
            self._sizes.pop(dropped, None)
            self._due.pop(dropped, None)
