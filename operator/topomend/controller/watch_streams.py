"""The watch streams of pods, nodes, published states and records: a thread for each kind, on the operator's client.

A stream asks for the newest resourceVersion and watches from there. It holds one event at a time, as the bytes that
came, and hands each on in the order of their arrival. It goes on from the last event that it has handed on wherever it
can. Where it cannot, because the API server no longer has that version or because an event cannot be read, events were
missed, some of them deletions: it watches from the newest version again, and a relist repairs what was missed. A kind
that is not watched for long means that this process is at fault.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping

from topomend.base.plain_text import plain
from topomend.controller.ingest import WatchEvent, watch_event
from topomend.kube.client import Client
from topomend.kube.errors import APIError, Forbidden, ServerFailed, TooManyRequests, Unanswered, refused, retry_after
from topomend.kube.resources import NODE_TOPOLOGIES, NODES, PODS, RELAUNCHES, Resource
from topomend.runtime.backoff import Exponential, Retry

PAUSES = Exponential(0.5, 5.0, jitter=0.5)

LASTING_SECONDS = 20.0
"""A watch that lasted this long has recovered: the next pause is the first one again."""

WATCH_SECONDS = 60
"""How long one watch lasts before it is renewed from where it was. A connection that died without a sign is noticed at
the latest when the API server has not ended the watch by then: it promises no bookmark, but to end it
(apiserver pkg/endpoints/handlers/get.go:ListResource). A renewal costs it about as much as a bookmark."""

SHORT_SECONDS = 1.0
"""A watch that ends sooner is a failure, and not asked for again without a pause
(client-go tools/cache/reflector.go:handleAnyWatch)."""

LATE_SECONDS = 120.0
"""How long a kind may be unwatched before it counts as a fault: far longer than any pause or unanswered watch."""

_log = logging.getLogger(__name__)


KINDS = {PODS: "status.phase!=Running", NODES: "", NODE_TOPOLOGIES: "", RELAUNCHES: ""}
"""The kinds with the field selectors of their objects. Of pods: those that wait, and those that ended, whose resources
are free."""


class _Unusable(Exception):
    """What came from the API server says that the watch cannot go on from where it was."""


class WatchStreams:
    """The streams of ``kinds``, by default KINDS, each with the field selector of its objects.

    ``on_event`` gets every object, those of a kind by one thread. ``on_missed`` is called when events may have been
    missed. Both return quickly.
    """

    def __init__(
        self,
        client: Client,
        on_event: Callable[[WatchEvent], None],
        on_missed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        kinds: Mapping[Resource, str] | None = None,
    ) -> None:
        self._client, self._on_event, self._on_missed, self._clock = client, on_event, on_missed, clock
        self._kinds = KINDS if kinds is None else kinds
        self._versions = dict.fromkeys(self._kinds, "")
        self._due: dict[Resource, float] = {}
        self._up, self._stopped = set[Resource](), threading.Event()

    def start(self) -> None:
        """Start to watch."""
        self._due = dict.fromkeys(self._kinds, self._clock() + LATE_SECONDS)
        for kind in self._kinds:
            threading.Thread(target=self._keep_up, args=(kind,), name=f"watch-{kind.plural}", daemon=True).start()

    def stop(self) -> None:
        """Hand on no event from now on. A thread that waits for one ends with its watch, or with the process."""
        self._stopped.set()

    def are_up(self) -> bool:
        """Whether every kind is watched."""
        return len(self._up) == len(self._kinds)

    def overdue(self) -> tuple[tuple[str, float], ...]:
        """The kinds that should be watched and are not, and since when by the clock."""
        now = self._clock()
        return tuple((kind.plural, due) for kind, due in self._due.items() if now > due)

    def _keep_up(self, kind: Resource) -> None:
        retry = Retry(PAUSES)
        while not self._stopped.is_set():
            begun = self._clock()
            failure = self._watch(kind)
            now = self._clock()
            self._due[kind] = min(self._due[kind], now + LATE_SECONDS)
            if now - begun > LASTING_SECONDS:
                retry.succeeded()
            if failure and not self._stopped.is_set():
                self._up.discard(kind)
                # It asks for patience, as while it starts to serve a kind. Without an end the kind is overdue.
                level = logging.INFO if isinstance(failure, TooManyRequests) else logging.WARNING
                _log.log(level, "%s are not watched (%s); retried", kind.plural, plain(str(failure), 300))
                self._stopped.wait(retry.failed(now, retry_after(failure)))

    def _watch(self, kind: Resource) -> Exception | None:
        """Watch once. Returns what ended it before its time."""
        begun = self._clock()
        try:
            self._follow(kind)
        except (Unanswered, ServerFailed, TooManyRequests, Forbidden) as error:
            return error
        except (APIError, _Unusable) as error:
            self._versions[kind] = ""
            return error
        except Exception as error:  # noqa: BLE001  one event must not stop those after it
            self._versions[kind] = ""
            return _Unusable(f"an event cannot be read: {error!r}")
        return Unanswered("the API server ended the watch at once") if self._clock() - begun < SHORT_SECONDS else None

    def _follow(self, kind: Resource) -> None:
        if not self._versions[kind]:
            self._versions[kind] = self._client.newest_version(kind)
            self._on_missed()
        query = {"allowWatchBookmarks": "true"} | ({"fieldSelector": self._kinds[kind]} if self._kinds[kind] else {})
        with self._client.watch_lines(kind, self._versions[kind], WATCH_SECONDS, query=query) as lines:
            self._note_up(kind)
            for line in lines:
                if self._stopped.is_set():
                    return
                self._versions[kind] = self._handed_on(kind, line)

    def _note_up(self, kind: Resource) -> None:
        self._due[kind] = self._clock() + WATCH_SECONDS + LATE_SECONDS
        if kind not in self._up:
            self._up.add(kind)
            if self.are_up():
                _log.info("every kind is watched")

    def _handed_on(self, kind: Resource, line: bytes) -> str:
        """Hand on the event of a line. Returns its resourceVersion."""
        event = watch_event(kind.plural, line)
        if event is None:
            return _version_of_bookmark(line)
        self._on_event(event)
        return str(event.content["metadata"]["resourceVersion"])


def _version_of_bookmark(line: bytes) -> str:
    """The resourceVersion of an event about no object. Raises _Unusable for one about an error."""
    event = json.loads(line)
    if event["type"] == "ERROR":
        raise _Unusable(str(refused(int(event["object"].get("code", 500)), json.dumps(event["object"]).encode())))
    return str(event["object"]["metadata"]["resourceVersion"])
