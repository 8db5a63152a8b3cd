"""The settings that namespaces have as annotations and labels, cached for a while."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from topomend.base.bounded_dict import BoundedDict
from topomend.decide.eligibility import Limits, why_not_wanted, wrong_value
from topomend.kube.client import Client
from topomend.kube.errors import NotFound
from topomend.kube.resources import NAMESPACES
from topomend.wire.group import (
    MAX_ATTEMPTS_ANNOTATION,
    NAME_POLICY_ANNOTATION,
    RELAUNCH_ANNOTATION,
    STEER_LABEL,
    UNGATED_NAMESPACES,
)

FRESH_SECONDS = 30.0

MAX_NAMESPACES = 10_000


@dataclass(frozen=True, slots=True)
class _Namespace:
    read: float
    limits: Limits
    steered: bool


class NamespaceLimits:
    """Reads limits; ``defaults`` are those of a namespace that sets none.

    May be used by several threads: a limit read twice is the same.
    """

    def __init__(self, client: Client, defaults: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._defaults, self._clock = client, defaults, clock
        self._cached: BoundedDict[str, _Namespace] = BoundedDict(MAX_NAMESPACES)

    def limits(self, namespace: str) -> Limits:
        """The limits of a namespace. Raises APIError."""
        return self._namespace(namespace).limits

    def is_steered(self, namespace: str) -> bool:
        """Whether new pods of the namespace are gated until a node admits them. Raises APIError."""
        return self._namespace(namespace).steered

    def _namespace(self, name: str) -> "_Namespace":
        now = self._clock()
        cached = self._cached.get(name)
        if cached and now - cached.read < FRESH_SECONDS:
            return cached
        metadata = self._metadata(name)
        steered = (metadata.get("labels") or {}).get(STEER_LABEL) == "enabled" and name not in UNGATED_NAMESPACES
        namespace = self._cached[name] = _Namespace(now, self._limits(name, metadata.get("annotations") or {}), steered)
        return namespace

    def _metadata(self, namespace: str) -> Mapping[str, Any]:
        try:
            return dict(self._client.get(NAMESPACES, namespace)["metadata"])
        except NotFound:
            return {}

    def _limits(self, namespace: str, annotations: Mapping[str, str]) -> Limits:
        relaunch = annotations.get(RELAUNCH_ANNOTATION, "")
        why, wrong = why_not_wanted(relaunch), wrong_value(relaunch)
        max_attempts = annotations.get(MAX_ATTEMPTS_ANNOTATION, "")
        return Limits(
            opted_out=(why and f"of namespace {namespace} {why}") if relaunch else self._defaults.opted_out,
            wrong_value=wrong and f"of namespace {namespace} {wrong}",
            max_attempts=int(max_attempts)
            if max_attempts.isdecimal() and len(max_attempts) < 5
            else self._defaults.max_attempts,
            name_policy=annotations.get(NAME_POLICY_ANNOTATION, ""),
        )
