"""The pods that count against a node's totals, listed once for all decisions of a moment.

The watch leaves running pods out: a cluster has too many to hold. Of each only its requests are kept: a pod of a
megabyte has thousands of containers. Owns for how long a list is good. Leaves what they add up to to ``decide``.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from topomend.kube.client import PODS, Client
from topomend.model.pod import Pod, requests_of
from topomend.model.quantity import MilliQuantity
from topomend.wire.pod import read_pod

UNENDED = "status.phase!=Failed,status.phase!=Succeeded"

FRESH_SECONDS = 1.0
"""How long a list is used. A pod that somebody else binds meanwhile is missing from it."""

Requests = Mapping[str, MilliQuantity]


@dataclass(frozen=True, slots=True)
class _Listing:
    time: float
    requests: dict[str, Requests]


class NodePods:
    """Lists of the last moment, with the pods assumed since. May be used by several threads."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._listings: dict[str, _Listing] = {}
        self._lock = threading.Lock()

    def listed(self, node: str) -> dict[str, Requests] | None:
        """The requests of the pods on ``node`` by uid, assumed ones included; None where there is no fresh list."""
        with self._lock:
            listing = self._listings.get(node)
        return listing.requests if listing and self._clock() - listing.time < FRESH_SECONDS else None

    def list(self, node: str) -> dict[str, Requests]:
        """The same, as the API server's watch cache has the pods now. Raises APIError."""
        now = self._clock()
        fields = f"spec.nodeName={node},{UNENDED}"
        requests = dict(self._client.read(PODS, _read, fields=fields, cached=True).items)
        with self._lock:
            fresh = {name: older for name, older in self._listings.items() if now - older.time < FRESH_SECONDS}
            self._listings = {**fresh, node: _Listing(now, requests)}
        return requests

    def assume(self, pod: Pod, nodes: Iterable[str]) -> None:
        """Count ``pod`` against the lists of ``nodes``: it is about to be bound to one of them."""
        with self._lock:
            for node in nodes:
                if listing := self._listings.get(node):
                    self._listings[node] = _Listing(listing.time, {**listing.requests, pod.uid: requests_of(pod)})


def _read(content: dict[str, Any]) -> Iterable[tuple[str, Requests]]:
    pod = read_pod(content)
    yield pod.uid, requests_of(pod)
