"""The publisher: keeps one NodeTopology on the server as the node is.

Owns what is compared and when it is written: on a change, and else as a heartbeat, by which a reader tells that the
agent lives. What the object says comes from discover; which requests failed and when to try again is the caller's
business.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from topomend.kube.errors import APIError, NotFound
from topomend.publish.recheck import Recheck
from topomend.wire.group import API_VERSION, NODE_TOPOLOGY
from topomend.wire.node_topology import HEARTBEAT, heartbeat_age

FIELD_MANAGER = "topomend-agent"

HEARTBEAT_SECONDS = 600.0
"""The least time between a write and a heartbeat after it; as much as a quarter more keeps nodes apart."""


class Client(Protocol):
    """The requests that publishing needs; see kube.light. All raise APIError."""

    def node(self, name: str) -> dict[str, Any]:
        """The Node object."""

    def node_topology(self, name: str) -> dict[str, Any]:
        """The NodeTopology object."""

    def apply_node_topology(self, name: str, content: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Server-side apply of the object but its status."""

    def apply_node_topology_status(self, name: str, content: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Server-side apply of the status."""

    def replace_in_node_topology(self, name: str, field: str, value: object, manager: str) -> dict[str, Any]:
        """Put this in the place of a field and of all that is in it."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the Node object tells about itself: the object owns its NodeTopology by this uid.

    ``kubelet_port`` is 0 where it does not tell on which port its kubelet serves.
    """

    uid: str
    kubelet_version: str
    kubelet_port: int = 0


class Publisher:
    """Publishes for the node ``name``. ``monotonic`` and ``now`` are the clocks, ``jitter`` spreads the re-checks.

    Every method raises APIError; after one, what the server holds is looked at afresh.
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
        self._node: NodeFacts | None = None
        self._server: Mapping[str, Any] | None = None
        self._published: Mapping[str, Any] | None = None

    def node(self) -> NodeFacts:
        """The Node's facts, asked for again with each re-check."""
        if self._recheck.due():
            self.forget()
        if self._node is None:
            node = self._client.node(self._name)
            status = node.get("status", {})
            self._node = NodeFacts(
                uid=str(node.get("metadata", {}).get("uid", "")),
                kubelet_version=str(status.get("nodeInfo", {}).get("kubeletVersion", "")),
                kubelet_port=int(status.get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port", 0)),
            )
        return self._node

    def forget(self) -> None:
        """Have everything be asked for again: the kubelet restarted, or an answer was lost."""
        self._node = self._server = self._published = None

    def publish(self, status: Mapping[str, Any]) -> bool:
        """Have the server hold this status, whose conditions carry no times; whether anything had to be written.

        The very object that was published last is not even compared: the caller does not change it. A heartbeat that is
        due counts as something to write.
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
            # Server-side apply would leave the owners that somebody else put there, and no agent may write beside them.
            self._server = self._replace("metadata/ownerReferences", owners)
            wrote = True
        held = self._server.get("status") or {}
        if _without_times(held) == _without_times(status) and not self._is_heartbeat_due(held):
            return wrote
        timed = self._timed(held, status)
        self._server = self._apply_status(timed)
        self._heartbeat_due = self._monotonic() + self._heartbeat_seconds()
        if _without_times(self._server.get("status") or {}) != _without_times(status):
            # Server-side apply removes only what no other manager has: what somebody else put there goes now.
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

    def _timed(self, held: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
        """The status to write. A condition keeps its time as long as its status is the same."""
        before = {each.get("type"): each for each in held.get("conditions", ())}
        conditions = [
            {**each, "lastTransitionTime": self._since(before.get(each["type"]), each)} for each in status["conditions"]
        ]
        return {**status, "conditions": conditions, HEARTBEAT: self._time()}

    def _is_heartbeat_due(self, held: Mapping[str, Any]) -> bool:
        """Whether what the server holds is old enough by its own word, or names a time that is far from having come."""
        age = heartbeat_age({"status": held}, self._now())
        if age is None or age < -HEARTBEAT_SECONDS:
            return True
        left = self._heartbeat_seconds() - max(0.0, age)
        self._heartbeat_due = self._monotonic() + left
        return left <= 0.0

    def _heartbeat_seconds(self) -> float:
        return HEARTBEAT_SECONDS * (1.0 + self._jitter() / 4)

    def _since(self, before: Mapping[str, Any] | None, condition: Mapping[str, Any]) -> str:
        if before and before.get("status") == condition["status"] and before.get("lastTransitionTime"):
            return str(before["lastTransitionTime"])
        return self._time()

    def _time(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%SZ")


def _without_times(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status for comparison: without a heartbeat, conditions by type and without times."""
    conditions = {
        each.get("type"): {key: content for key, content in each.items() if key != "lastTransitionTime"}
        for each in status.get("conditions", ())
    }
    return {key: content for key, content in status.items() if key != HEARTBEAT} | {"conditions": conditions}
