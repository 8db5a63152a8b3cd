"""Nodes that back off from a workload: they refused one of its pods although replay had admitted it there.

A workload is a controller, or a bare pod with its replacements. The node's published state is incomplete or late, so
the next pod would be refused for the same reason. The back-off ends early when the node publishes a new state. Owns
which node backs off from which workload. Leaves the delays to ``runtime.backoff``.
"""

import threading
from collections import OrderedDict

from topomend.cache.snapshot import Snapshot, is_newer
from topomend.decide.diagnosis.feasibility import ExcludedNodes
from topomend.decide.diagnosis.node_status import backing_off
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.pod_id import WorkloadID
from topomend.runtime.backoff import Backoff

MAX_ENTRIES = 10_000
"""How many pairs of a workload and a node are remembered: those of the latest refusals."""


class NodeBackoff:
    """Remembers refusals by workload and node. May be used by several threads."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._versions: dict[WorkloadID, dict[str, str]] = {}
        self._order: OrderedDict[tuple[WorkloadID, str], None] = OrderedDict()
        self._lock = threading.Lock()

    def record_refusal(self, pod: WatchedPod) -> None:
        """Have the node of a refused pod back off from the pod's workload."""
        workload = WorkloadID.of(pod)
        self._backoff.failed((workload, pod.node), pod.uid)
        with self._lock:
            self._versions.setdefault(workload, {})[pod.node] = pod.version
            self._order.pop((workload, pod.node), None)
            self._order[workload, pod.node] = None
            while len(self._order) > MAX_ENTRIES:
                self._forget(*self._order.popitem(last=False)[0])

    def _forget(self, workload: WorkloadID, node: str) -> None:
        del self._versions[workload][node]
        if not self._versions[workload]:
            del self._versions[workload]

    def excluded_nodes(self, snapshot: Snapshot, pod: WatchedPod) -> ExcludedNodes:
        """The nodes that back off from the pod's workload, without the one that refused the pod itself."""
        return {node: backing_off(node) for node in self._nodes(snapshot, pod) if node != pod.node}

    def remaining(self, snapshot: Snapshot, pod: WatchedPod) -> float | None:
        """Seconds until the first of the nodes is a candidate again; None where none backs off."""
        workload = WorkloadID.of(pod)
        return min((self._backoff.remaining((workload, node)) for node in self._nodes(snapshot, pod)), default=None)

    def _nodes(self, snapshot: Snapshot, pod: WatchedPod) -> list[str]:
        workload = WorkloadID.of(pod)
        with self._lock:
            versions = dict(self._versions.get(workload, {}))
        return [
            node
            for node, version in versions.items()
            if self._backoff.remaining((workload, node)) and not _published_since(snapshot, node, version)
        ]


def _published_since(snapshot: Snapshot, node: str, version: str) -> bool:
    publication = snapshot.publications.get(node)
    return publication is not None and is_newer(publication.version, version)
