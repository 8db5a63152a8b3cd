"""Keeps the newest state of the two parameter objects, as the API server keeps it for its policies.

A controller whose pod was refused creates the next one within milliseconds, so the list is watched, not polled.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

from topomend.gating.definitions import BRAKE, STEER
from topomend.gating.review import Parameter
from topomend.kube.client import BRAKES, STEERINGS, Client
from topomend.kube.errors import APIError
from topomend.wire.group import BRAKE_NAME, STEERING_NAME

RETRY_SECONDS = 0.5

_WATCHED = {BRAKE: (BRAKES, BRAKE_NAME), STEER: (STEERINGS, STEERING_NAME)}

_log = logging.getLogger(__name__)


class ParameterWatch:
    """Watches the objects in ``namespace``, the operator's own, in a thread each, until it is stopped.

    While the API server does not answer, the last state counts: it says itself until when it is valid. ``first_listed``
    is called in such a thread when an object that listed no controller lists one.
    """

    def __init__(self, client: Client, namespace: str, first_listed: Callable[[], None]) -> None:
        self._client, self._namespace, self._first_listed = client, namespace, first_listed
        self._known = {definition: Parameter() for definition in _WATCHED}
        self._stopped = threading.Event()

    def start(self) -> None:
        """Read both, then start to watch. Raises APIError."""
        for definition in _WATCHED:
            self._list(definition)
        for definition in _WATCHED:
            threading.Thread(target=self._watch, args=(definition,), name=f"watch-{definition}", daemon=True).start()

    def stop(self) -> None:
        """Take no change in any more."""
        self._stopped.set()

    def parameter(self, definition: str) -> Parameter:
        """The parameter of a definition; one that does not exist, if the definition has none."""
        return self._known.get(definition, Parameter())

    def _watch(self, definition: str) -> None:
        while not self._stopped.is_set():
            try:
                self._follow(definition, self._list(definition))
            except APIError as error:
                _log.debug("the parameter of %s is not watched: %s; retried", definition, error)
                self._stopped.wait(RETRY_SECONDS)
            except Exception as error:  # noqa: BLE001  without this thread no new pod would be gated one day
                _log.error("the parameter of %s is not watched: unexpected: %r; retried", definition, error)
                self._stopped.wait(RETRY_SECONDS)

    def _list(self, definition: str) -> str:
        """Read the object. Returns the resourceVersion to watch from; raises APIError."""
        resource, name = _WATCHED[definition]
        listed = self._client.list(resource, namespace=self._namespace, fields=f"metadata.name={name}")
        self._know(definition, _read(listed.items[0]) if listed.items else Parameter())
        return listed.version

    def _follow(self, definition: str, version: str) -> None:
        resource, name = _WATCHED[definition]
        fields = f"metadata.name={name}"
        for event in self._client.watch(resource, version, namespace=self._namespace, fields=fields):
            if self._stopped.is_set():
                return
            self._know(definition, Parameter() if event.deleted else _read(event.content))

    def _know(self, definition: str, parameter: Parameter) -> None:
        is_first = bool(parameter.owners) and not self._known[definition].owners
        self._known[definition] = parameter
        if is_first:
            self._first_listed()


def _read(content: dict[str, Any]) -> Parameter:
    return Parameter(
        exists=True, valid_until=content.get("validUntil") or "", owners=frozenset(content.get("owners") or ())
    )
