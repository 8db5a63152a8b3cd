"""The pods that count against a node's totals, listed once for all decisions of a moment.

The watch leaves running pods out: a cluster has too many to hold. Owns for how long a list is good. Leaves what the
pods' requests add up to to ``decide``.
"""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from topomend.kube.client import PODS, Client
from topomend.model.pod import Pod
from topomend.wire.pod import read_pod

UNENDED = "status.phase!=Failed,status.phase!=Succeeded"

FRESH_SECONDS = 1.0
"""How long a list is used. A pod that somebody else binds meanwhile is missing from it."""


@dataclass(frozen=True, slots=True)
class _Listing:
    time: float
    pods: dict[str, Pod]


class NodePods:
    """Lists of the last moment, with the pods assumed since. May be used by several threads."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._listings: dict[str, _Listing] = {}
        self._lock = threading.Lock()

    def listed(self, node: str) -> dict[str, Pod] | None:
        """The pods on ``node`` by uid, assumed ones included; None where the last list is too old or there is none."""
        with self._lock:
            listing = self._listings.get(node)
        return listing.pods if listing and self._clock() - listing.time < FRESH_SECONDS else None

    def list(self, node: str) -> dict[str, Pod]:
        """The pods on ``node`` by uid, as the API server's watch cache has them now. Raises APIError."""
        now = self._clock()
        fields = f"spec.nodeName={node},{UNENDED}"
        listing = self._client.read(PODS, lambda content: (read_pod(content),), fields=fields, cached=True)
        pods = {pod.uid: pod for pod in listing.items}
        with self._lock:
            fresh = {name: older for name, older in self._listings.items() if now - older.time < FRESH_SECONDS}
            self._listings = {**fresh, node: _Listing(now, pods)}
        return pods

    def assume(self, pod: Pod, nodes: Iterable[str]) -> None:
        """Count ``pod`` against the lists of ``nodes``: it is about to be bound to one of them."""
        with self._lock:
            for node in nodes:
                if listing := self._listings.get(node):
                    self._listings[node] = _Listing(listing.time, {**listing.pods, pod.uid: pod})
