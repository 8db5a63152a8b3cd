"""Posts Events (events.k8s.io/v1) in the background, and the same Event at most once in five minutes.

One that is told again and again, as of a pod that waits, is posted once for as long as the API server keeps it, unless
another of its object and reason came later.
Nothing waits for an Event, and one that cannot be posted is only logged. Events may be of one fact, with other figures:
the first is posted. Every object has the budget that client-go gives it (tools/record/events_cache.go: a burst of 25,
then one in five minutes), and every namespace one for all its objects; what exceeds them is neither posted nor logged.
Namespaces take turns. Leaves the wording to the caller.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from topomend.base.bounded_dict import BoundedDict
from topomend.base.plain_text import plain
from topomend.kube.client import Client
from topomend.kube.errors import AlreadyExists, APIError, NamespaceTerminating
from topomend.kube.resources import EVENTS
from topomend.runtime.queues.fair_queue import FairQueue
from topomend.runtime.queues.token_bucket import TokenBucket, TokenBuckets
from topomend.runtime.timestamp import micro_timestamp

CONTROLLER = "topomend.io/operator"
MAX_NOTE = 1024
"""Bytes of UTF-8 (pkg/apis/core/validation/events.go:NoteLengthLimit)."""

CLUSTER_NAMESPACE = "default"
"""Where events about objects of the whole cluster are (pkg/apis/core/validation/events.go)."""

REPEAT_SECONDS = 300.0
KEPT_SECONDS = 3600.0
"""How long an API server keeps an Event by default (kube-apiserver: --event-ttl)."""

LASTING_SECONDS = 600.0
"""A fact that nobody tells for so long has ended: told again, it is a new one."""

QUEUE_LENGTH = 1000

OBJECT_RATE, OBJECT_BURST = 1 / 300, 25
NAMESPACE_RATE, NAMESPACE_BURST = 5.0, 300
MAX_OBJECTS, MAX_NAMESPACES, MAX_EVENTS = 4_096, 1_000, 10_000
"""For how many of each the recorder remembers what was posted; the oldest are forgotten first."""

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


@dataclass(frozen=True, slots=True)
class _Told:
    """When an event was last posted, and when somebody last told it, by the clock of the recorder."""

    posted: float
    last: float


class EventRecorder:
    """Posts events from one thread; ``emit`` never blocks and never fails. ``once`` is as in ``emit``, for all.

    ``described`` names the objects that are to have the events of one: people look at a Deployment, not at its
    ReplicaSet. It is called where events are posted, and may ask the API server.
    """

    def __init__(
        self,
        client: Client,
        clock: Callable[[], float] = time.monotonic,
        *,
        once: bool = False,
        described: Callable[[Regarding], Sequence[Regarding]] = lambda regarding: (regarding,),
    ) -> None:
        self._client, self._clock, self._once, self._described = client, clock, once, described
        self._waiting: FairQueue[tuple[Regarding, dict[str, Any]]] = FairQueue(QUEUE_LENGTH, QUEUE_LENGTH // 2)
        self._last: BoundedDict[str, _Told] = BoundedDict(MAX_EVENTS)
        self._newest: BoundedDict[tuple[str, str], str] = BoundedDict(MAX_EVENTS)
        self._objects = TokenBuckets(OBJECT_RATE, OBJECT_BURST, MAX_OBJECTS, clock)
        self._namespaces = TokenBuckets(NAMESPACE_RATE, NAMESPACE_BURST, MAX_NAMESPACES, clock)
        self._lock = threading.Lock()
        self._instance = f"topomend-operator-{socket.gethostname()}-{os.getpid()}"[:128]
        self._thread = threading.Thread(target=self._post_all, name="events", daemon=True)
        self._thread.start()

    def emit(  # noqa: PLR0913  an event's parts
        self,
        regarding: Regarding,
        kind: str,
        reason: str,
        action: str,
        note: str,
        *,
        once: bool = False,
        fact: str = "",
        related: Regarding | None = None,
    ) -> None:
        """Post an Event of type ``kind`` (Normal, Warning) unless the same one was posted within ``REPEAT_SECONDS``.

        One that lasts is posted again after ``KEPT_SECONDS``, or once its object has one of another fact and the same
        reason.

        ``fact`` makes events the same whose notes differ; by default the note does. ``once``: unless the API server
        still has it from any operator. ``related`` is a second object that it is about.
        """
        note = _cut(plain(note, MAX_NOTE))
        key = _key(regarding, reason, fact or note)
        if not self._may_post(key, regarding, reason):
            return
        _log.info("%s %s: %s", reason, f"{regarding.namespace}/{regarding.name}".removeprefix("/"), note)
        now = datetime.now(UTC)
        suffix = key if once or self._once else f"{key}{int(now.timestamp()):x}"
        event = self._event(regarding, suffix, now) | {"type": kind, "reason": reason, "action": action, "note": note}
        if related:
            event["related"] = related.reference()
        if not self._waiting.put(regarding.namespace, (regarding, event)):
            _log.warning("too many events are queued; %s for %s is dropped", reason, regarding.name)

    def has_budget(self, regarding: Regarding) -> bool:
        """Whether another event about this object may be posted. If not, nobody need word it."""
        with self._lock:
            return self._is_within(self._budgets(regarding))

    def is_new(self, regarding: Regarding, reason: str, fact: str) -> bool:
        """Whether an event of this fact would be posted. If not, nobody need word it."""
        key = _key(regarding, reason, fact)
        with self._lock:
            return not self._is_repeated(key, regarding, reason) and self._is_within(self._budgets(regarding))

    def stop(self) -> None:
        """Post the Events in the queue, for two seconds at most."""
        self._waiting.stop()
        self._thread.join(2.0)

    def _may_post(self, key: str, regarding: Regarding, reason: str) -> bool:
        """Whether the Event is new and within the budgets, from which it is then taken."""
        with self._lock:
            if self._is_repeated(key, regarding, reason):
                self._last[key] = _Told(self._last[key].posted, self._clock())
                return False
            budgets = self._budgets(regarding)
            if not self._is_within(budgets):
                return False
            for budget in budgets:
                budget.take()
            self._last[key] = _Told(self._clock(), self._clock())
            self._newest[regarding.uid, reason] = key
        return True

    def _is_repeated(self, key: str, regarding: Regarding, reason: str) -> bool:
        """Whether the Event was posted a moment ago, or lasts, is there still and the newest of object and reason."""
        told, now = self._last.get(key), self._clock()
        if told is None:
            return False
        lasts = now - told.last < LASTING_SECONDS and self._newest.get((regarding.uid, reason)) == key
        return now - told.posted < (KEPT_SECONDS if lasts else REPEAT_SECONDS)

    def _budgets(self, regarding: Regarding) -> Sequence[TokenBucket]:
        budgets = [self._objects.of(regarding.uid)]
        if regarding.namespace:  # objects of the whole cluster are no tenant's
            budgets.append(self._namespaces.of(regarding.namespace))
        return budgets

    @staticmethod
    def _is_within(budgets: Iterable[TokenBucket]) -> bool:
        return not any(budget.seconds_until(1) for budget in budgets)

    def _event(self, regarding: Regarding, suffix: str, now: datetime) -> dict[str, Any]:
        return {
            "apiVersion": EVENTS.api_version,
            "kind": "Event",
            "metadata": {
                "namespace": regarding.namespace or CLUSTER_NAMESPACE,
                "name": _name(regarding, suffix),
            },
            "regarding": regarding.reference(),
            "eventTime": micro_timestamp(now),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
        }

    def _post_all(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            regarding, event = waiting
            for target in self._described(regarding):
                self._post(event if target is regarding else _about(target, event))

    def _post(self, event: dict[str, Any]) -> None:
        try:
            self._client.create(EVENTS, event, event["metadata"]["namespace"])
        except (AlreadyExists, NamespaceTerminating):
            pass
        except APIError as error:
            _log.warning("event %s could not be posted: %s", event["reason"], error)


def _key(regarding: Regarding, reason: str, fact: str) -> str:
    return sha256("\0".join((regarding.uid, reason, fact)).encode()).hexdigest()[:16]


def _about(target: Regarding, event: Mapping[str, Any]) -> dict[str, Any]:
    """The event about another object of its namespace."""
    suffix = event["metadata"]["name"].rpartition(".")[2]
    metadata = {**event["metadata"], "name": _name(target, suffix)}
    return {**event, "metadata": metadata, "regarding": target.reference()}


def _name(regarding: Regarding, suffix: str) -> str:
    return f"{regarding.name[:200].rstrip('-.')}.{suffix}"


def _cut(note: str) -> str:
    written = note.encode(errors="replace")
    if len(written) <= MAX_NOTE:
        return note
    ellipsis = "…".encode()
    return written[: MAX_NOTE - len(ellipsis)].decode(errors="ignore") + "…"
