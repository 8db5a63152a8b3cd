"""Publish the node's NodeResourceTopology, if asked to: on each change, and only if no other program writes it.

Owns when it is written, and the condition in the NodeTopology that says whether it is. Leaves the layout to
``wire.published.node_resource_topology`` and the figures to ``discover.zones``. A refusal of this object never delays
the NodeTopology.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from topomend.kube.errors import Conflict, Forbidden, NotFound, Refused, ServerFailed, TooManyRequests
from topomend.model.condition import Condition
from topomend.model.kubelet import KubeletSettings
from topomend.model.zone import Zone
from topomend.publish.pod_fingerprint import pod_fingerprint
from topomend.publish.publisher import FIELD_MANAGER, NodeFacts
from topomend.publish.recheck import Recheck
from topomend.wire.condition import condition_fields
from topomend.wire.published.node_resource_topology import KIND, content_of, node_resource_topology, other_writer

CONDITION = "NodeResourceTopologyPublished"


class Client(Protocol):
    """The requests that publishing needs (``kube.agent_client``). All raise APIError."""

    def node_resource_topology(self, name: str) -> dict[str, Any]:
        """The NodeResourceTopology object."""

    def apply_node_resource_topology(self, name: str, content: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Apply the object without force. Raises Conflict where another field manager owns one of its fields."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What the object says of the node.

    ``zones`` computes its NUMA nodes; it is called only where something is to be published. ``pods`` are all pods on
    the node, by namespace and name.
    """

    kubelet: KubeletSettings
    pods: Iterable[tuple[str, str]]
    zones: Callable[[], Iterable[Zone]]


class NodeResourceTopologyPublisher:
    """Publishes the object of the node ``name``. ``monotonic`` is a clock in seconds.

    After a refusal, or where somebody else writes the object, the next attempt waits for the next re-check.
    """

    def __init__(self, client: Client, name: str, monotonic: Callable[[], float]) -> None:
        self._client, self._name = client, name
        self._recheck = Recheck(monotonic)
        self._published: tuple[Mapping[str, Any], NodeFacts] | None = None
        self._server: Mapping[str, Any] | None = None
        self._condition = Condition(CONDITION, "Unknown", "NotTried", "")
        self._is_refused = False
        self._status: tuple[Mapping[str, Any], Condition, dict[str, Any]] | None = None

    def publish(self, figures: Figures, status: Mapping[str, Any], node: NodeFacts) -> Mapping[str, Any]:
        """Publish the node's object, and return ``status`` with the condition that says whether that succeeded.

        While the node is not Ready, its last published object
        stays. As long as nothing changes, the same object is returned. Raises APIError where no answer arrived.
        """
        ready = next((condition["status"] for condition in status["conditions"] if condition["type"] == "Ready"), "")
        if self._recheck.due():
            self._server, self._published, self._is_refused = None, None, False
        if ready != "True":
            self._condition = _failed("NotReady", "the node is not Ready; the last published object stays")
            self._published = None
        elif not self._is_refused and not self._is_published(status, node):
            self._condition = self._attempt(figures, node)
            self._published = (status, node)
        return self._with_condition(status)

    def _is_published(self, status: Mapping[str, Any], node: NodeFacts) -> bool:
        return self._published is not None and self._published[0] is status and self._published[1] == node

    def _attempt(self, figures: Figures, node: NodeFacts) -> Condition:
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": node.uid}
        fingerprint = pod_fingerprint(figures.pods)
        wanted = node_resource_topology(self._name, owner, figures.kubelet, figures.zones(), fingerprint)
        try:
            return self._write(wanted)
        except (ServerFailed, TooManyRequests):
            self._server = None
            raise
        except Refused as error:
            self._server, self._is_refused = None, True
            return _failure_of(error)

    def _write(self, wanted: Mapping[str, Any]) -> Condition:
        if self._server is None:
            self._server = self._get()
        if self._server and (other := other_writer(self._server, FIELD_MANAGER)):
            self._is_refused = True
            return _failed(
                "OtherWriter", f"{other} writes the {KIND} {self._name}, so the agent does not; stop one of the two"
            )
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
            conditions = [*status["conditions"], condition_fields(self._condition)]
            self._status = (status, self._condition, {**status, "conditions": conditions})
        return self._status[2]


def _failed(reason: str, message: str) -> Condition:
    return Condition(CONDITION, "False", reason, message)


def _failure_of(error: Refused) -> Condition:
    if isinstance(error, NotFound):
        return _failed(
            "KindNotInstalled", f"the cluster has no kind {KIND}: install it, or remove --node-resource-topology"
        )
    if isinstance(error, Forbidden):
        return _failed("Forbidden", f"{error}; apply deploy/overlays/node-resource-topology")
    if isinstance(error, Conflict):
        return _failed("OtherWriter", str(error))
    return _failed("Refused", str(error))
