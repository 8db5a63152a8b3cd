"""What namespaces say of the relaunches of their pods, read once in a while."""

import time
from collections.abc import Callable

from topomend.decide.eligibility import Limits
from topomend.kube.client import NAMESPACES, Client
from topomend.kube.errors import NotFound
from topomend.wire.group import MAX_ATTEMPTS_ANNOTATION, NAME_POLICY_ANNOTATION, RELAUNCH_ANNOTATION

FRESH_SECONDS = 30.0


class Namespaces:
    """Their limits; ``max_attempts`` holds where a namespace names none. May be used by several threads."""

    def __init__(self, client: Client, max_attempts: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._max_attempts, self._clock = client, max_attempts, clock
        self._known: dict[str, tuple[float, Limits]] = {}

    def limits(self, namespace: str) -> Limits:
        """The limits of a namespace. Raises APIError."""
        now = self._clock()
        known = self._known.get(namespace)
        if known and now - known[0] < FRESH_SECONDS:
            return known[1]
        limits = self._read(namespace)
        self._known[namespace] = (now, limits)
        return limits

    def _read(self, namespace: str) -> Limits:
        try:
            annotations = self._client.get(NAMESPACES, namespace)["metadata"].get("annotations") or {}
        except NotFound:
            annotations = {}
        most = annotations.get(MAX_ATTEMPTS_ANNOTATION, "")
        return Limits(
            relaunch=annotations.get(RELAUNCH_ANNOTATION) != "false",
            max_attempts=int(most) if most.isdecimal() and len(most) < 5 else self._max_attempts,
            name_policy=annotations.get(NAME_POLICY_ANNOTATION, ""),
        )
