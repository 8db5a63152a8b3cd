"""Publish the node's NodeResourceTopology while the node is Ready.

Leaves the layout to ``wire.published.node_resource_topology`` and the figures to ``discover.zones``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.zone import Placement, Zone
from topomend.publish.numa_placement import numa_placement
from topomend.publish.pod_fingerprint import pod_fingerprint
from topomend.publish.publisher import NodeFacts
from topomend.publish.second_object import SecondKind, SecondObject, ready_of
from topomend.wire.published.node_resource_topology import (
    ALL_PODS,
    FINGERPRINT,
    FINGERPRINT_METHOD,
    KIND,
    PLACEMENT,
    content_of,
    node_resource_topology,
)
from topomend.wire.published.writers import other_writer

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

    ``zones`` computes its NUMA nodes, ``placements`` where its containers are, None where that is not told; they are
    called only where something is to be published. ``pods`` are all pods on the node, by namespace and name.
    """

    kubelet: KubeletSettings
    pods: Iterable[tuple[str, str]]
    zones: Callable[[], Sequence[Zone]]
    placements: Callable[[], Iterable[Placement] | None]


class NodeResourceTopologyPublisher:
    """Publishes the object of the node ``name``. ``monotonic`` is a clock in seconds."""

    def __init__(self, client: Client, name: str, monotonic: Callable[[], float]) -> None:
        self._name = name
        kind = SecondKind(
            kind=KIND,
            condition=CONDITION,
            flag="--node-resource-topology",
            rights="deploy/overlays/node-resource-topology",
            get=partial(client.node_resource_topology, name),
            apply=partial(client.apply_node_resource_topology, name),
            content_of=content_of,
            other_writer=other_writer,
        )
        self._object = SecondObject(kind, name, monotonic)

    def publish(self, figures: Figures, status: Mapping[str, Any], node: NodeFacts) -> Mapping[str, Any]:
        """Publish the node's object, and return ``status`` with the condition that says whether that succeeded.

        While the node is not Ready, its last published object stays. As long as nothing changes, the same object is
        returned.
        """
        if ready_of(status) == "True":
            self._object.publish(partial(self._wanted, figures, node), status, node)
        else:
            self._object.withhold("NotReady", "the node is not Ready; the last published object stays")
        return self._object.with_condition(status)

    def _wanted(self, figures: Figures, node: NodeFacts) -> Mapping[str, Any]:
        zones, placements = figures.zones(), figures.placements()
        attributes = {FINGERPRINT: pod_fingerprint(figures.pods), FINGERPRINT_METHOD: ALL_PODS}
        if zones and placements is not None:
            placed = numa_placement(placements, 1 + max(zone.numa_node for zone in zones))
            attributes[PLACEMENT] = placed.metadata
            zones = [replace(zone, placement=placed.vectors.get(zone.numa_node)) for zone in zones]
        return node_resource_topology(self._name, self._object.owner(node), figures.kubelet, zones, attributes)
