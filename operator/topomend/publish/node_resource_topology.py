"""The node's NodeResourceTopology, on request: written where it changed, and only as long as nobody else writes it.

Owns the condition that says so. It is a second object beside the NodeTopology: what goes wrong with it keeps nothing of
the first one back.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from topomend.kube.errors import Conflict, Forbidden, NotFound, Refused, ServerFailed, TooManyRequests
from topomend.model.node_state import NodeState
from topomend.publish.pod_fingerprint import pod_fingerprint
from topomend.publish.publisher import FIELD_MANAGER, NodeFacts
from topomend.publish.recheck import Recheck
from topomend.publish.zones import zones
from topomend.wire.node_resource_topology import KIND, content_of, node_resource_topology, other_writer
from topomend.wire.node_topology import Condition

CONDITION = "NodeResourceTopologyPublished"


class Client(Protocol):
    """The requests that are needed; see kube.light. All raise APIError."""

    def node_resource_topology(self, name: str) -> dict[str, Any]:
        """The NodeResourceTopology object."""

    def apply_node_resource_topology(self, name: str, content: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Server-side apply of it; Conflict where another manager has a field of it."""


class NodeResourceTopologyPublisher:
    """Keeps the object of the node ``name``. ``monotonic`` is the clock.

    What the server refuses, and an object that somebody else writes, is tried again with the next re-check only.
    """

    def __init__(self, client: Client, name: str, monotonic: Callable[[], float]) -> None:
        self._client, self._name = client, name
        self._recheck = Recheck(monotonic)
        self._published: tuple[Mapping[str, Any], NodeFacts] | None = None
        self._server: Mapping[str, Any] | None = None
        self._condition = Condition(CONDITION, "Unknown", "NotTried", "")
        self._given_up = False
        self._status: tuple[Mapping[str, Any], Condition, dict[str, Any]] | None = None

    def publish(
        self, state: NodeState, pods: Iterable[tuple[str, str]], status: Mapping[str, Any], node: NodeFacts
    ) -> Mapping[str, Any]:
        """Have the server hold the node's object, and give ``status`` with the condition that says whether it does.

        ``pods`` are all pods on the node by namespace and name. A node that is not Ready keeps what was published last.
        As long as nothing changes the status is one and the same object. Raises APIError where no answer came.
        """
        ready = next((each["status"] for each in status["conditions"] if each["type"] == "Ready"), "")
        if self._recheck.due():
            self._server, self._published, self._given_up = None, None, False
        if ready != "True":
            self._condition = _failed("NotReady", "the node is not Ready: what was published last stays")
            self._published = None
        elif not self._given_up and not self._is_published(status, node):
            self._condition = self._try(state, pods, node)
            self._published = (status, node)
        return self._with_condition(status)

    def _is_published(self, status: Mapping[str, Any], node: NodeFacts) -> bool:
        return self._published is not None and self._published[0] is status and self._published[1] == node

    def _try(self, state: NodeState, pods: Iterable[tuple[str, str]], node: NodeFacts) -> Condition:
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": node.uid}
        wanted = node_resource_topology(self._name, owner, state.kubelet, zones(state), pod_fingerprint(pods))
        try:
            return self._write(wanted)
        except (ServerFailed, TooManyRequests):
            self._server = None
            raise
        except Refused as error:
            self._server, self._given_up = None, True
            return _why(error)

    def _write(self, wanted: Mapping[str, Any]) -> Condition:
        if self._server is None:
            self._server = self._get()
        if self._server and (other := other_writer(self._server, FIELD_MANAGER)):
            self._given_up = True
            return _failed("OtherWriter", f"{other} writes the {KIND} {self._name}: an object has one writer")
        if not self._server or content_of(self._server) != content_of(wanted):
            self._server = self._client.apply_node_resource_topology(self._name, wanted, FIELD_MANAGER)
        return Condition(CONDITION, "True", "Published", "")

    def _get(self) -> Mapping[str, Any]:
        try:
            return self._client.node_resource_topology(self._name)
        except NotFound:
            return {}

    def _with_condition(self, status: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._status is None or self._status[:2] != (status, self._condition):
            each = self._condition
            fields = {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
            self._status = (status, each, {**status, "conditions": [*status["conditions"], fields]})
        return self._status[2]


def _failed(reason: str, message: str) -> Condition:
    return Condition(CONDITION, "False", reason, message)


def _why(error: Refused) -> Condition:
    if isinstance(error, NotFound):
        return _failed("KindNotInstalled", f"the cluster has no kind {KIND}: install it, or take the flag away")
    if isinstance(error, Forbidden):
        return _failed("Forbidden", f"{error}: apply deploy/overlays/node-resource-topology")
    if isinstance(error, Conflict):
        return _failed("OtherWriter", str(error))
    return _failed("Refused", str(error))
