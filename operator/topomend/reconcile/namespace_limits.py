"""The relaunch settings that namespaces have as annotations, cached for a while."""

import time
from collections.abc import Callable

from topomend.decide.eligibility import Limits
from topomend.kube.client import NAMESPACES, Client
from topomend.kube.errors import NotFound
from topomend.model.bounded_dict import BoundedDict
from topomend.wire.group import MAX_ATTEMPTS_ANNOTATION, NAME_POLICY_ANNOTATION, RELAUNCH_ANNOTATION

FRESH_SECONDS = 30.0

MAX_NAMESPACES = 10_000


class NamespaceLimits:
    """Reads limits; ``defaults`` are those of a namespace that sets none.

    May be used by several threads: a limit read twice is the same.
    """

    def __init__(self, client: Client, defaults: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._defaults, self._clock = client, defaults, clock
        self._cached: BoundedDict[str, tuple[float, Limits]] = BoundedDict(MAX_NAMESPACES)

    def limits(self, namespace: str) -> Limits:
        """The limits of a namespace. Raises APIError."""
        now = self._clock()
        cached = self._cached.get(namespace)
        if cached and now - cached[0] < FRESH_SECONDS:
            return cached[1]
        limits = self._read(namespace)
        self._cached[namespace] = (now, limits)
        return limits

    def _read(self, namespace: str) -> Limits:
        try:
            annotations = self._client.get(NAMESPACES, namespace)["metadata"].get("annotations") or {}
        except NotFound:
            annotations = {}
        opted_out = {"true": "", "false": f'namespace {namespace} has {RELAUNCH_ANNOTATION} "false"'}
        max_attempts = annotations.get(MAX_ATTEMPTS_ANNOTATION, "")
        return Limits(
            opted_out=opted_out.get(annotations.get(RELAUNCH_ANNOTATION, ""), self._defaults.opted_out),
            max_attempts=int(max_attempts)
            if max_attempts.isdecimal() and len(max_attempts) < 5
            else self._defaults.max_attempts,
            name_policy=annotations.get(NAME_POLICY_ANNOTATION, ""),
        )
