"""The pods that count against a node's totals, asked for once for all decisions of a moment."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from topomend.kube.client import PODS, Client
from topomend.model.pod import Pod
from topomend.wire.pod import read_pod

UNENDED = "status.phase!=Failed,status.phase!=Succeeded"

FRESH_SECONDS = 1.0
"""For how long a list is not asked for anew. A pod that somebody else binds meanwhile is not in it."""


@dataclass(frozen=True, slots=True)
class _Listed:
    since: float
    pods: dict[str, Pod]


class NodePods:
    """What was listed in the last moment, and what was let go since. May be used by several threads."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._listed: dict[str, _Listed] = {}

    def on(self, node: str) -> dict[str, Pod] | None:
        """The pods on ``node`` by their uids, or on their way there, as far as was heard; None where it was not."""
        known = self._listed.get(node)
        return known.pods if known and self._clock() - known.since < FRESH_SECONDS else None

    def ask(self, node: str) -> dict[str, Pod]:
        """The pods on ``node`` by their uids, as the API server's cache has them now. Raises APIError."""
        now = self._clock()
        listing = self._client.list(PODS, fields=f"spec.nodeName={node},{UNENDED}", cached=True)
        listed = {each["metadata"]["uid"]: read_pod(each) for each in listing.items}
        fresh = {name: each for name, each in self._listed.copy().items() if now - each.since < FRESH_SECONDS}
        self._listed = {**fresh, node: _Listed(now, listed)}
        return listed

    def ungate(self, pod: Pod, nodes: Iterable[str]) -> None:
        """``pod`` is about to come to one of ``nodes``."""
        for node in nodes:
            if known := self._listed.get(node):
                self._listed[node] = _Listed(known.since, {**known.pods, pod.uid: pod})
