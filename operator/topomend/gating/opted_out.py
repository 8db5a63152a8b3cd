"""Which namespaces opted out of gating by annotation: a webhook's conditions see the pod, and not its namespace.

Owns how old an answer may be. Leaves a pod's own annotation to the conditions.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from topomend.base.bounded_dict import BoundedDict
from topomend.kube.client import Client
from topomend.kube.errors import APIError
from topomend.kube.resources import NAMESPACES
from topomend.wire.group import RELAUNCH_ANNOTATION

FRESH_SECONDS = 10.0

MAX_NAMESPACES = 1_000


class OptedOutNamespaces:
    """May be used by several threads: a namespace that is read twice is the same."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._known: BoundedDict[str, tuple[float, bool]] = BoundedDict(MAX_NAMESPACES)

    def has(self, namespace: str) -> bool:
        """Whether pods without an annotation of their own are not gated there.

        If nobody answers, what was known counts. Where nothing was, they are gated: the operator lets a pod go that was
        gated in vain.
        """
        now = self._clock()
        read, opted_out = self._known.get(namespace, (float("-inf"), False))
        if now - read < FRESH_SECONDS:
            return opted_out
        with suppress(APIError):  # it is not asked again for each pod: the API server waits two seconds for an answer
            metadata: dict[str, Any] = self._client.get(NAMESPACES, namespace)["metadata"]
            opted_out = (metadata.get("annotations") or {}).get(RELAUNCH_ANNOTATION) == "false"
        self._known[namespace] = self._clock(), opted_out
        return opted_out
