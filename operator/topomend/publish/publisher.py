"""Publish the node's NodeTopology: on a change, and otherwise as a heartbeat that shows that the agent is alive.

Owns what counts as a change, and transition times. Leaves the content to ``discover``, and retries to the caller.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from topomend.kube.errors import APIError, NotFound
from topomend.publish.recheck import Recheck
from topomend.runtime.timestamp import timestamp
from topomend.wire.group import API_VERSION, NODE_TOPOLOGY
from topomend.wire.published.node_topology import HEARTBEAT, heartbeat_age

FIELD_MANAGER = "topomend-agent"

HEARTBEAT_SECONDS = 600.0
"""The least time between a write and the next heartbeat. Up to a quarter more spreads the nodes' writes."""


RESTART_SECONDS = 60.0
"""How long after a kubelet's start the Node may still have what its predecessor wrote: it answers on its socket some
seconds before it posts its version, and posts it again after each failure (kubelet_node_status.go:updateNodeStatus)."""

NODE_SECONDS = 10.0
"""The longest time between two reads of the Node meanwhile: its kubelet renews its lease as often."""


class Client(Protocol):
    """The requests that publishing needs (``kube.agent_client``). All raise APIError."""

    def node(self, name: str) -> dict[str, Any]:
        """The Node object."""

    def node_topology(self, name: str) -> dict[str, Any]:
        """The NodeTopology object."""

    def apply_node_topology(self, name: str, content: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Apply the object without its status (server-side apply)."""

    def apply_node_topology_status(self, name: str, content: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Apply the status (server-side apply)."""

    def replace_in_node_topology(self, name: str, field: str, value: object, manager: str) -> dict[str, Any]:
        """Replace the field ``status`` or ``metadata/ownerReferences`` as a whole."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts from the Node object, whose ``uid`` owns the NodeTopology.

    ``kubelet_port`` is the port on which its kubelet serves, 0 where the Node does not name it. ``marks`` are the keys
    of its labels and annotations.
    """

    uid: str
    kubelet_version: str
    kubelet_port: int = 0
    os_image: str = ""
    marks: frozenset[str] = frozenset()


class Publisher:
    """Publishes the object of the node ``name``.

    ``monotonic`` is a clock in seconds, ``now`` the UTC time. ``jitter`` returns numbers from 0 to 1, which spread
    re-checks and heartbeats. Every method may raise APIError; after that the object is read from the server again.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        monotonic: Callable[[], float],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._client, self._name, self._monotonic, self._jitter = client, name, monotonic, jitter
        self._recheck, self._now = Recheck(monotonic, jitter), now
        self._heartbeat_due = 0.0
        self._restart_ends, self._node_due = 0.0, math.inf
        self._node: NodeFacts | None = None
        self._server: Mapping[str, Any] | None = None
        self._published: Mapping[str, Any] | None = None

    def node(self) -> NodeFacts:
        """The Node's facts, read again with each re-check, and often after the kubelet restarted. Raises APIError."""
        now = self._monotonic()
        if self._recheck.due():
            self.forget()
        if self._node is None or now >= self._node_due:
            node = self._client.node(self._name)
            metadata, status = node.get("metadata", {}), node.get("status", {})
            self._node = NodeFacts(
                uid=str(metadata.get("uid", "")),
                kubelet_version=str(status.get("nodeInfo", {}).get("kubeletVersion", "")),
                kubelet_port=int(status.get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port", 0)),
                os_image=str(status.get("nodeInfo", {}).get("osImage", "")),
                marks=frozenset({**metadata.get("labels", {}), **metadata.get("annotations", {})}),
            )
            again = NODE_SECONDS * (0.75 + self._jitter() / 4)
            self._node_due = now + again if now < self._restart_ends else math.inf
        return self._node

    def kubelet_restarted(self) -> None:
        """Read from the server again, and the Node for a while: the kubelet may have another version now."""
        self.forget()
        self._restart_ends = self._monotonic() + RESTART_SECONDS

    def forget(self) -> None:
        """Forget what the server holds, so that it is read again: the kubelet restarted, or an answer was lost."""
        self._node = self._server = self._published = None

    def publish(self, status: Mapping[str, Any]) -> bool:
        """Publish this status, whose conditions have no times. Returns whether anything was written. Raises APIError.

        The caller must not change a status that it has passed: the same object is not compared again. A due heartbeat
        is written even where nothing changed.
        """
        try:
            node = self.node()
            if status is self._published and self._monotonic() < self._heartbeat_due:
                return False
            wrote = self._publish(node, status)
        except APIError:
            self.forget()
            raise
        self._published = status
        return wrote

    def _publish(self, node: NodeFacts, status: Mapping[str, Any]) -> bool:
        if self._server is None:
            self._server = self._get()
        wrote = False
        owners = [self._owner(node)]
        if not self._server:
            self._server = self._client.apply_node_topology(self._name, self._metadata(owners), FIELD_MANAGER)
            wrote = True
        elif self._server.get("metadata", {}).get("ownerReferences") != owners:
            # Server-side apply would keep owners that somebody else added; the admission policy allows only its Node.
            self._server = self._replace("metadata/ownerReferences", owners)
            wrote = True
        published = self._server.get("status") or {}
        if _without_times(published) == _without_times(status) and not self._is_heartbeat_due(published):
            return wrote
        timed = self._timed(published, status)
        self._server = self._apply_status(timed)
        self._heartbeat_due = self._monotonic() + self._heartbeat_seconds()
        if _without_times(self._server.get("status") or {}) != _without_times(status):
            # Server-side apply removes only fields that no other manager owns. This removes what somebody else added.
            self._server = self._replace("status", timed)
        return True

    def _replace(self, field: str, value: object) -> Mapping[str, Any]:
        return self._client.replace_in_node_topology(self._name, field, value, FIELD_MANAGER)

    def _apply_status(self, status: Mapping[str, Any]) -> Mapping[str, Any]:
        content = self._head() | {"metadata": {"name": self._name}, "status": dict(status)}
        return self._client.apply_node_topology_status(self._name, content, FIELD_MANAGER)

    def _get(self) -> Mapping[str, Any]:
        try:
            return self._client.node_topology(self._name)
        except NotFound:
            return {}

    def _head(self) -> dict[str, Any]:
        return {"apiVersion": API_VERSION, "kind": NODE_TOPOLOGY}

    def _metadata(self, owners: list[dict[str, str]]) -> dict[str, Any]:
        return self._head() | {"metadata": {"name": self._name, "ownerReferences": owners}}

    def _owner(self, node: NodeFacts) -> dict[str, str]:
        return {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": node.uid}

    def _timed(self, published: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
        """The status to write, with times. A condition keeps its transition time as long as its status is the same."""
        published_conditions = {condition.get("type"): condition for condition in published.get("conditions", ())}
        conditions = [
            {
                **condition,
                "lastTransitionTime": self._transition_time(published_conditions.get(condition["type"]), condition),
            }
            for condition in status["conditions"]
        ]
        return {**status, "conditions": conditions, HEARTBEAT: self._time()}

    def _is_heartbeat_due(self, published: Mapping[str, Any]) -> bool:
        """Whether the published heartbeat is old enough, missing, or more than HEARTBEAT_SECONDS in the future."""
        age = heartbeat_age({"status": published}, self._now())
        if age is None or age < -HEARTBEAT_SECONDS:
            return True
        remaining = self._heartbeat_seconds() - max(0.0, age)
        self._heartbeat_due = self._monotonic() + remaining
        return remaining <= 0.0

    def _heartbeat_seconds(self) -> float:
        return HEARTBEAT_SECONDS * (1.0 + self._jitter() / 4)

    def _transition_time(self, published: Mapping[str, Any] | None, condition: Mapping[str, Any]) -> str:
        if published and published.get("status") == condition["status"] and published.get("lastTransitionTime"):
            return str(published["lastTransitionTime"])
        return self._time()

    def _time(self) -> str:
        return timestamp(self._now())


def _without_times(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status for comparison: without a heartbeat, conditions by type and without times."""
    conditions = {
        condition.get("type"): {key: content for key, content in condition.items() if key != "lastTransitionTime"}
        for condition in status.get("conditions", ())
    }
    return {key: content for key, content in status.items() if key != HEARTBEAT} | {"conditions": conditions}
