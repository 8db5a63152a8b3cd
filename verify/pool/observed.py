"""What the API server says of a run's pods and nodes while it lasts, in virtual seconds.

Objects have times in whole seconds, which are many virtual ones: what counts is when the API server's watch says it.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any

from verify.contended.outcome import Stay
from verify.pool.figures import Watched

from topomend.cache.changes import Published
from topomend.cache.topology_reader import TopologyReader
from topomend.kube.client import Client
from topomend.kube.errors import APIError
from topomend.kube.resources import NODE_TOPOLOGIES, PODS, Resource

AGAIN_SECONDS = 0.1
"""When the API server is asked again, in real seconds."""


class Clock:
    """Virtual seconds since it was made: ``speed`` of them pass in a real one."""

    def __init__(self, speed: float) -> None:
        self._speed, self._began = speed, time.monotonic()

    def __call__(self) -> float:
        """The moment now."""
        return (time.monotonic() - self._began) * self._speed


class Observed:
    """What became of each pod of ``stays``, and the nodes' states, which ``watched`` is shown.

    ``refusals`` are by the reason in the pod's status. A refused pod is handed over in ``to_replace``, once.
    """

    def __init__(self, stays: Mapping[str, Stay], watched: Watched, now: Callable[[], float]) -> None:
        self._stays, self._watched, self._now = stays, watched, now
        self._reader, self._known = TopologyReader(), set[str]()
        self.refusals: Counter[str] = Counter()
        self.to_replace: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.last_change = now()

    def pod(self, content: dict[str, Any]) -> None:
        """A pod is in this state from now on."""
        metadata, status, now = content["metadata"], content["status"], self._now()
        stay, phase = self._stays.get(metadata["name"]), status.get("phase")
        if stay is None:
            return
        self.last_change = now
        if phase == "Failed" and metadata["uid"] not in self._known:
            self._known.add(metadata["uid"])
            stay.refused += 1
            self.refusals[status.get("reason", "no reason")] += 1
            self.to_replace.put(content)
        if phase in ("Running", "Succeeded") and stay.ran is None:
            stay.ran = now
        if phase == "Succeeded" and stay.ended is None:
            stay.ended = now

    def node(self, content: dict[str, Any]) -> None:
        """An agent has published this. What it has not published yet says nothing."""
        change = self._reader.published(content, datetime.now(UTC))
        if isinstance(change, Published):
            self._watched(self._now(), change.state)

    @contextmanager
    def following(self, client: Client, namespace: str) -> Iterator[None]:
        """Meanwhile follow the namespace's pods, and all nodes."""
        ended = threading.Event()
        for resource, see, where in ((PODS, self.pod, namespace), (NODE_TOPOLOGIES, self.node, "")):
            arguments = (client, resource, see, where, ended)
            threading.Thread(target=_follow, args=arguments, name=resource.plural, daemon=True).start()
        try:
            yield
        finally:
            ended.set()


def _follow(
    client: Client, resource: Resource, see: Callable[[dict[str, Any]], None], namespace: str, ended: threading.Event
) -> None:
    """Show the objects, and what changes. Where the API server of a busy machine does not answer, it is asked again."""
    while not ended.wait(AGAIN_SECONDS):
        with suppress(APIError):
            listed = client.list(resource, namespace=namespace)
            for content in listed.items:
                see(content)
            for event in client.watch(resource, listed.version, namespace=namespace):
                if not event.deleted and not ended.is_set():
                    see(event.content)
