"""kopf's part: the watch streams of pods, nodes, published states and records, kept up whatever happens.

kopf runs in a thread and an event loop of its own, and its handlers hand objects to the observer and do nothing else:
an error in one would lose its event. It writes nothing: no annotations, no finalizers, no Events. Where one of its
watchers dies (kopf then ends the whole operator: an unexpected ERROR event, a broken line, an unlistable kind), it is
started anew after a growing pause, which lists everything again.
"""

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import kopf

from topomend.controller.observer import Sighting
from topomend.controller.sweeper import UNFINISHED
from topomend.kube.client import NODE_TOPOLOGIES, NODES, PODS, RELAUNCHES, Resource

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0

_log = logging.getLogger(__name__)


class Streams:
    """The streams. ``on_sighting`` gets every object; ``on_restart`` is told that events may have been missed."""

    def __init__(self, on_sighting: Callable[[Sighting], None], on_restart: Callable[[], None]) -> None:
        self._on_sighting, self._on_restart = on_sighting, on_restart
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep_up, name="streams", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the streams, for five seconds at most."""
        self._stopped.set()
        # What it says of requests that it cut off itself is no error of anybody's.
        logging.getLogger("kopf").setLevel(logging.CRITICAL)
        if self._thread.is_alive():
            self._thread.join(5.0)

    def _keep_up(self) -> None:
        pauses = _growing(FIRST_PAUSE, LONGEST_PAUSE)
        while not self._stopped.is_set():
            try:
                asyncio.run(self._watch())
            except Exception as error:  # noqa: BLE001  whatever ended kopf, the streams must come back
                _log.warning("the watch streams ended (%s); they are started again", _in_one_line(error))
            if self._stopped.wait(next(pauses)):
                return
            self._on_restart()

    async def _watch(self) -> None:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(_login)
        for resource in (PODS, NODES, NODE_TOPOLOGIES, RELAUNCHES):
            self._register(registry, resource)
        await kopf.operator(
            registry=registry,
            settings=_settings(),
            standalone=True,
            clusterwide=True,
            stop_flag=self._stopped,
        )

    def _register(self, registry: kopf.OperatorRegistry, resource: Resource) -> None:
        group, _, version = resource.api_version.rpartition("/")

        async def hand_over(event: kopf.RawEvent, **_: Any) -> None:
            # The type None stands for the initial list.
            self._on_sighting(Sighting(resource.plural, dict(event["object"]), gone=event["type"] == "DELETED"))

        kopf.on.event(group, version, resource.plural, id=f"{resource.plural}-seen", registry=registry)(hand_over)


async def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_via_client(**kwargs)


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.watching.field_selectors["pods"] = UNFINISHED
    settings.watching.connect_timeout = 5.0
    settings.networking.connect_timeout = 5.0
    settings.networking.error_backoffs = _Backoffs()
    return settings


class _Backoffs:
    """Pauses without end, each time from the first: kopf gives up a stream when they run out."""

    def __iter__(self) -> Iterator[float]:
        return _growing(FIRST_PAUSE, LONGEST_PAUSE)


def _growing(pause: float, longest: float) -> Iterator[float]:
    while True:
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311  jitter, not a secret
        pause = min(pause * 2, longest)


def _in_one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
