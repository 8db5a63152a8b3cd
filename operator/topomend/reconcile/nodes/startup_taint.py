"""Takes the startup taint off new nodes once their topology is known, so that no pod is placed there before.

Whoever registers the node writes the taint: Karpenter, Cluster Autoscaler's templates, the kubelet. Owns when it goes.
Leaves whether a published state can be relied on to ``cache``.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from topomend.cache.snapshot import Publication
from topomend.kube.client import Client
from topomend.kube.errors import Conflict, Forbidden, NotFound
from topomend.kube.resources import NODE_TOPOLOGIES, NODES
from topomend.model.nodes.node import Node
from topomend.reconcile.object_faults import ObjectFaults
from topomend.reconcile.store import Store
from topomend.wire.group import STARTUP_TAINTS

MAX_REMOVED = 20
"""How many nodes are asked about in one call: each takes two requests."""

RETRY_SECONDS = 300.0
"""When to try again where the operator may not change nodes."""

_log = logging.getLogger(__name__)


class StartupTaint:
    """Removes the taint. For one thread. Without ``enabled`` it does nothing."""

    def __init__(
        self, client: Client, store: Store, *, enabled: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._store, self._enabled, self._clock = client, store, enabled, clock
        self._faults = ObjectFaults(_log, "its startup taint stays", clock)
        self._due = 0.0
        self._seen: tuple[Mapping[str, Node], Mapping[str, Publication]] | None = None

    def remove(self) -> None:
        """Remove it from every node whose published state can be relied on. Raises APIError."""
        if not self._enabled or self._clock() < self._due:
            return
        snapshot = self._store.snapshot
        if self._seen and self._seen[0] is snapshot.nodes and self._seen[1] is snapshot.publications:
            return
        known = [
            name
            for name, node in snapshot.nodes.items()
            if node.taints and _ours(node) and not snapshot.why_unknown(name)
        ]
        self._remove_from(known[:MAX_REMOVED])
        self._seen = (snapshot.nodes, snapshot.publications) if len(known) <= MAX_REMOVED else None

    def _remove_from(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                with self._faults.of("node", name, passing=(Forbidden,)):
                    self._remove_one(name)
            except Forbidden as error:
                self._due = self._clock() + RETRY_SECONDS
                _log.warning("the startup taint stays on new nodes: %s; install the component startup-taint", error)
                return

    def _remove_one(self, name: str) -> None:
        """Remove it if the node still is as it was read; if not, its change is seen, and the next call tries again.

        A node that was created again under its name may have the publication of the former one for a while.
        """
        with suppress(NotFound, Conflict):
            content = self._client.get(NODES, name)
            taints = content["spec"].get("taints", [])
            rest = [taint for taint in taints if taint["key"] not in STARTUP_TAINTS]
            if len(rest) < len(taints) and self._is_published(content["metadata"]):
                self._client.merge(NODES, name, _patch(content, rest))
                _log.info("took the startup taint off %s: its topology is known", name)

    def _is_published(self, node: Mapping[str, Any]) -> bool:
        """Whether what is published under the node's name is this node's, and not that of one that was deleted."""
        owners = self._client.get(NODE_TOPOLOGIES, node["name"])["metadata"].get("ownerReferences", [])
        return not owners or any(owner.get("uid") == node["uid"] for owner in owners)


def _ours(node: Node) -> bool:
    return any(taint.key in STARTUP_TAINTS for taint in node.taints)


def _patch(content: Mapping[str, Any], taints: list[dict[str, Any]]) -> dict[str, Any]:
    version = {"resourceVersion": content["metadata"]["resourceVersion"]}
    return {"metadata": version, "spec": {"taints": taints or None}}
