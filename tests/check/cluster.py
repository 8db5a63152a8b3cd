"""A cluster as API objects, and the facts that the readers of the room make of them."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from tests.builders import node_topology_object

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.cache.topology_reader import TopologyReader
from topomend.check.catalogue import examine
from topomend.check.facts import Facts, Kind
from topomend.check.finding import Finding
from topomend.check.node_objects import read_labels, read_publication
from topomend.model.condition import Condition
from topomend.model.nodes.node_state import NodeState
from topomend.wire.condition import condition_fields
from topomend.wire.document import MalformedObject
from topomend.wire.node import read_node
from topomend.wire.pods.running_pod import read_running_pod
from topomend.wire.pods.scheduling import read_watched_pod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BEFORE = "2026-01-01T11:59:00Z"

INSTALLED = (Kind("nodetopologies.topomend.io"),)

Object = dict[str, Any]


def node_object(state: NodeState, labels: Mapping[str, str] | None = None, *, kept: int | None = None) -> Object:
    """A Node of the state's amounts. ``kept`` is the memory that its kubelet keeps from pods; as reserved if None."""
    cpus = state.machine.cpus.bit_count()
    memory = sum(numa_node.memory for numa_node in state.machine.numa_nodes)
    pages = {
        page.resource: page.size * sum(its.count for node in state.machine.numa_nodes for its in node.hugepages)
        for numa_node in state.machine.numa_nodes
        for page in numa_node.hugepages
    }
    reserved = sum(each.size for each in state.kubelet.reserved_memory if each.resource == "memory")
    devices = {device.resource: str(len(state.devices)) for device in state.devices}
    amounts = {"cpu": str(cpus), "pods": "110", **{name: str(size) for name, size in pages.items()}, **devices}
    left = memory - sum(pages.values()) - (reserved if kept is None else kept)
    return {
        "metadata": {"name": state.name, "labels": {"kubernetes.io/os": "linux", **(labels or {})}},
        "status": {
            "capacity": {**amounts, "memory": str(memory)},
            "allocatable": {**amounts, "memory": str(left)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def published(state: NodeState, **status: Any) -> Object:
    """A NodeTopology that its agent has just confirmed."""
    return node_topology_object(state, **{"heartbeatTime": BEFORE, **status})


def facts_of(
    nodes: Iterable[Object] = (), topologies: Iterable[Object] = (), pods: Iterable[Object] = (), **fields: Any
) -> Facts:
    """The facts of these objects as the command reads them; ``fields`` are further ones of Facts."""
    nodes, topologies, pods = list(nodes), list(topologies), list(pods)
    reader = TopologyReader()
    read = [_publication(reader, content) for content in topologies]
    snapshot = changes.apply(Snapshot(), changes.NodesListed(tuple(map(read_node, nodes)), ""))
    snapshot = changes.apply(snapshot, changes.PublicationsListed(tuple(read), ""))
    gated = [pod for pod in pods if pod["spec"].get("schedulingGates")]
    return Facts(
        NOW,
        "0.1.0",
        **{
            "kinds": INSTALLED,
            "snapshot": snapshot,
            "node_labels": {content["metadata"]["name"]: read_labels(content) for content in nodes},
            "published": {
                content["metadata"]["name"]: read_publication(content)
                for content in topologies
                if content.get("status")
            },
            "running": tuple(read_running_pod(pod) for pod in pods if pod not in gated),
            "waiting": tuple(read_watched_pod(pod) for pod in gated),
            **fields,
        },
    )


def _publication(reader: TopologyReader, content: Object) -> changes.Published | changes.Unreadable:
    try:
        return reader.published(content, NOW)
    except MalformedObject as error:
        return changes.Unreadable(content["metadata"]["name"], str(error))


def findings(facts: Facts, group: str = "TM") -> list[Finding]:
    """What the checks of a group find, ``TM2`` for nodes."""
    return [finding for finding in examine(facts).findings if finding.code.startswith(group)]


def codes(facts: Facts, group: str = "TM") -> dict[str, list[str]]:
    """By code, the names of the objects with a finding."""
    found: dict[str, list[str]] = {}
    for finding in findings(facts, group):
        found.setdefault(finding.code, []).append(finding.subject.name)
    return found


def seen(state: NodeState, *, kept: int | None = None, **status: Any) -> Facts:
    """The facts of one node that publishes the state."""
    return facts_of([node_object(state, kept=kept)], [published(state, **status)])


def condition(kind: str, status: str, reason: str, message: str = "why") -> Object:
    return condition_fields(Condition(kind, status, reason, message))


READY = condition("Ready", "True", "Ready", "")
