"""The newest state that is known of the two parameter objects, as the API server keeps it for its policies.

A controller whose pod was refused creates the next one within milliseconds, so the objects are watched. They are also
read every few seconds (``parameters``): a watch that fails makes a change known that much later, and is noticed.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from topomend.gating.definitions import BRAKE, STEER
from topomend.gating.review import Parameter
from topomend.kube.client import Client
from topomend.kube.resources import BRAKES, STEERINGS, Resource
from topomend.wire.group import BRAKE_NAME, STEERING_NAME

WATCHED = ((BRAKES, BRAKE_NAME), (STEERINGS, STEERING_NAME))
"""The objects, each the only one of its kind that counts."""

_DEFINITIONS = {BRAKES: BRAKE, STEERINGS: STEER}


class KnownParameters:
    """What a watch tells of the objects and what they were found to be. For several threads.

    While the API server does not answer, the last state counts: it says itself until when it is valid. ``first_listed``
    is called, by the thread that learns of it, when an object that listed no controller lists one.
    """

    def __init__(self, first_listed: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._first_listed, self._clock = first_listed, clock
        self._known = {definition: ("", Parameter()) for definition in _DEFINITIONS.values()}
        self._told_at = dict.fromkeys(self._known, float("-inf"))
        self._untold_since: dict[str, float] = {}
        self._lock = threading.Lock()

    def parameter(self, definition: str) -> Parameter:
        """The parameter of a definition; one that does not exist, if the definition has none."""
        return self._known.get(definition, ("", Parameter()))[1]

    def read(self, client: Client, namespace: str) -> None:
        """Find out what both objects in ``namespace`` are, before they are watched. Raises APIError."""
        for resource, name in WATCHED:
            asked = self._clock()
            for content in client.list(resource, namespace=namespace, fields=f"metadata.name={name}").items:
                self.found(resource, content, asked)
        self._untold_since.clear()

    def told(self, resource: Resource, content: dict[str, Any], is_deleted: bool) -> None:
        """The watch tells that an object is so, or that it was before it was deleted."""
        definition = _DEFINITIONS[resource]
        with self._lock:
            self._told_at[definition] = self._clock()
            self._untold_since.pop(definition, None)
            is_first = self._know(definition, content, Parameter() if is_deleted else _read(content))
        if is_first:
            self._first_listed()

    def found(self, resource: Resource, content: dict[str, Any], asked: float) -> None:
        """An answer to a request of the time ``asked``. What the watch has told since may be newer."""
        definition = _DEFINITIONS[resource]
        with self._lock:
            if asked < self._told_at[definition] or _version(content) == self._known[definition][0]:
                return
            self._untold_since.setdefault(definition, asked)
            is_first = self._know(definition, content, _read(content))
        if is_first:
            self._first_listed()

    def untold_for(self) -> float:
        """For how many seconds the watch has owed a change that was found without it."""
        now = self._clock()
        return max((now - since for since in self._untold_since.copy().values()), default=0.0)

    def _know(self, definition: str, content: dict[str, Any], parameter: Parameter) -> bool:
        """Whether it lists a first controller."""
        is_first = bool(parameter.owners) and not self.parameter(definition).owners
        self._known[definition] = _version(content), parameter
        return is_first


def _version(content: dict[str, Any]) -> str:
    return str(content["metadata"]["resourceVersion"])


def _read(content: dict[str, Any]) -> Parameter:
    return Parameter(
        exists=True, valid_until=content.get("validUntil") or "", owners=frozenset(content.get("owners") or ())
    )
