"""Lists the pods on a node, for what they take of its totals: the watch leaves running pods out.

A cluster has too many pods to hold, so of a list only the sum is kept, and the snapshot counts on from there. Owns when
a node is listed again whose sum may be wrong by now: what the watch does not show makes it too high or, where a running
pod is resized, too low. Leaves the counting to ``cache/changes/totals``, and which nodes to ask to its callers.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from math import inf
from typing import Any

from topomend.base.bounded_dict import BoundedDict
from topomend.cache.changes import ListBegun, ListFailed, NodePodsListed
from topomend.kube.client import Client
from topomend.kube.resources import PODS, UNENDED
from topomend.model.pods.pod import sum_of
from topomend.model.quantity import MilliQuantity
from topomend.reconcile.store import Store
from topomend.runtime.queues.token_bucket import TokenBucket
from topomend.wire.pods.pod_usage import read_usage

LISTS_PER_SECOND, LIST_BURST = 1.0, 30
"""How often nodes are listed of which no pod has to know at once: a better one than those known, and doubtful ones."""

FRESH_SECONDS = 5.0
"""How old a sum is at least before the node is listed again, unless its agent has published another state since: a pod
that left it may be one whose end the watch does not show."""

DOUBT_SECONDS = 60.0
"""For how long a node is doubtful: a pod that waits for room is tried again after a minute."""

MAX_NODES = 10_000

Usage = dict[str, MilliQuantity]


class NodePods:
    """Lists nodes' pods into the snapshot. May be used by several threads.

    ``newest`` is the resourceVersion of the newest pod that the watch has brought since it began, empty before the
    first: a list that is older may lack it.
    """

    def __init__(
        self,
        client: Client,
        store: Store,
        newest: Callable[[], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._store, self._newest, self._clock = client, store, newest, clock
        self._unhurried = TokenBucket(LISTS_PER_SECOND, LIST_BURST, clock)
        self._listed: BoundedDict[str, tuple[float, str]] = BoundedDict(MAX_NODES)
        self._doubtful: BoundedDict[str, float] = BoundedDict(MAX_NODES)
        self._lock, self._numbers = threading.Lock(), count()

    def list(self, node: str) -> None:
        """Have the snapshot know the totals of ``node``. Raises APIError."""
        with self._lock:
            self._listed[node] = self._clock(), self._published(node)
        number = next(self._numbers)
        self._store.apply(ListBegun(node, number))
        try:
            fields, newest = f"spec.nodeName={node},{UNENDED}", self._newest()
            # A cache that may be of any age may lack what happened before the watch began.
            listing = self._client.read(PODS, _read, fields=fields, cached=bool(newest), not_older_than=newest)
        except Exception:
            self._store.apply(ListFailed(node, number))
            raise
        used: Usage = {}
        for _, usage, _ in listing.items:
            used = sum_of(used, usage)
        pending = {uid: usage for uid, usage, runs in listing.items if not runs}
        self._store.apply(NodePodsListed(node, number, listing.version, used, pending))

    def list_unhurried(self, node: str) -> None:
        """The same if a node may be listed now that could as well be listed later. Raises APIError."""
        if self.may_list():
            self.list(node)

    def may_list(self) -> bool:
        """Whether a node may be listed now that could as well be listed later. Takes a token."""
        return not self._unhurried.take()

    def doubt(self, nodes: Iterable[str]) -> None:
        """A decision has depended on the totals of ``nodes``: have them listed again in a while."""
        until = self._clock() + DOUBT_SECONDS
        with self._lock:
            for node in nodes:
                self._doubtful[node] = until

    def list_doubtful(self) -> None:
        """List one doubtful node: whose agent has published since, or that was listed longest ago. Raises APIError."""
        node = self._most_doubtful()
        if node and self.may_list():
            self.list(node)

    def _most_doubtful(self) -> str:
        now, nodes = self._clock(), self._store.snapshot.nodes
        with self._lock:
            for node in [node for node, until in self._doubtful.items() if until < now or node not in nodes]:
                del self._doubtful[node]
            listed = {node: self._listed.get(node, (-inf, "")) for node in self._doubtful}
        order = {node: (version == self._published(node), time) for node, (time, version) in listed.items()}
        node = min(order, key=order.__getitem__, default="")
        return node if node and order[node] <= (True, now - FRESH_SECONDS) else ""

    def _published(self, node: str) -> str:
        """The version of what the node's agent has published; empty if it has nothing."""
        publication = self._store.snapshot.publications.get(node)
        return publication.version if publication else ""


def _read(content: dict[str, Any]) -> Iterator[tuple[str, Usage, bool]]:
    """The pod's uid, what it takes, and whether it runs."""
    yield content["metadata"]["uid"], read_usage(content), content.get("status", {}).get("phase") == "Running"
