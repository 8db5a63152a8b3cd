"""Posts Events (events.k8s.io/v1) in the background, and the same Event at most once in five minutes.

Nothing waits for an Event, and one that cannot be posted is only logged. Leaves the wording to the caller.
"""

import logging
import os
import queue
import socket
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from topomend.kube.client import EVENTS, Client
from topomend.kube.errors import AlreadyExists, APIError, NamespaceTerminating
from topomend.runtime.timestamp import micro_timestamp

CONTROLLER = "topomend.io/operator"
MAX_NOTE = 1024
"""Bytes of UTF-8 (pkg/apis/core/validation/events.go:NoteLengthLimit)."""

CLUSTER_NAMESPACE = "default"
"""Where events about objects of the whole cluster are (pkg/apis/core/validation/events.go)."""

REPEAT_SECONDS = 300.0
QUEUE_LENGTH = 1000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an event is about; ``namespace`` is empty for one of the whole cluster."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    def reference(self) -> dict[str, str]:
        """The core/v1 ObjectReference."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
        }


class EventRecorder:
    """Posts events from one thread; ``emit`` never blocks and never fails."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(QUEUE_LENGTH)
        self._last: dict[str, float] = {}
        self._lock = threading.Lock()
        self._instance = f"topomend-operator-{socket.gethostname()}-{os.getpid()}"[:128]
        self._thread = threading.Thread(target=self._post_all, name="events", daemon=True)
        self._thread.start()

    def emit(  # noqa: PLR0913  an event's parts
        self, regarding: Regarding, kind: str, reason: str, action: str, note: str, *, once: bool = False
    ) -> None:
        """Post an Event of type ``kind`` (Normal, Warning) unless the same one was posted within ``REPEAT_SECONDS``.

        ``once``: unless the API server still has it from any operator.
        """
        note = _cut(note)
        key = sha256("\0".join((regarding.uid, reason, note)).encode()).hexdigest()[:16]
        if not self._is_new(key):
            return
        _log.info("%s %s: %s", reason, f"{regarding.namespace}/{regarding.name}".removeprefix("/"), note)
        now = datetime.now(UTC)
        suffix = key if once else f"{key}{int(now.timestamp()):x}"
        event = self._event(regarding, suffix, now) | {"type": kind, "reason": reason, "action": action, "note": note}
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            _log.warning("too many events are queued; %s for %s is dropped", reason, regarding.name)

    def stop(self) -> None:
        """Post the Events in the queue, for two seconds at most."""
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(2.0)

    def _is_new(self, key: str) -> bool:
        now = time.monotonic()
        with self._lock:
            if now - self._last.get(key, -REPEAT_SECONDS) < REPEAT_SECONDS:
                return False
            self._last[key] = now
            if len(self._last) > 10 * QUEUE_LENGTH:
                self._last = {other: then for other, then in self._last.items() if now - then < REPEAT_SECONDS}
        return True

    def _event(self, regarding: Regarding, suffix: str, now: datetime) -> dict[str, Any]:
        return {
            "apiVersion": EVENTS.api_version,
            "kind": "Event",
            "metadata": {
                "namespace": regarding.namespace or CLUSTER_NAMESPACE,
                "name": f"{regarding.name[:200].rstrip('-.')}.{suffix}",
            },
            "regarding": regarding.reference(),
            "eventTime": micro_timestamp(now),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
        }

    def _post_all(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._client.create(EVENTS, event, event["metadata"]["namespace"])
            except (AlreadyExists, NamespaceTerminating):
                pass
            except APIError as error:
                _log.warning("event %s could not be posted: %s", event["reason"], error)


def _cut(note: str) -> str:
    written = note.encode(errors="replace")
    if len(written) <= MAX_NOTE:
        return note
    ellipsis = "…".encode()
    return written[: MAX_NOTE - len(ellipsis)].decode(errors="ignore") + "…"
