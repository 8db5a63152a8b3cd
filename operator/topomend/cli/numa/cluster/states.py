"""The nodes of a cluster and what they publish, of the objects that a verb reads.

Leaves lists to ``cluster``, which imports this where a verb asks for nodes.
"""

import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.cache.topology_reader import TopologyReader
from topomend.cli.numa.cluster.picture import Picture
from topomend.cli.output.console import echo
from topomend.kube.resources import NODE_TOPOLOGIES, NODES
from topomend.model.nodes.node import HOSTNAME_LABEL, Node
from topomend.model.nodes.node_state import NodeState
from topomend.wire.document import MalformedObject
from topomend.wire.node import read_node


class PublishedReader:
    """Reads NodeTopology objects. Several threads may use it."""

    def __init__(self) -> None:
        self._topologies = TopologyReader()

    def read(
        self, content: dict[str, Any], *, is_small: bool = False
    ) -> Iterable[changes.Published | changes.Unreadable]:
        """What a NodeTopology object says of its node. ``is_small`` is as for ``TopologyReader.published``."""
        try:
            return [self._topologies.published(content, datetime.now(UTC), is_small=is_small)]
        except MalformedObject as error:
            return [changes.Unreadable(content["metadata"]["name"], f"its NodeTopology is malformed: {error}")]


def readable_nodes(content: dict[str, Any]) -> Iterable[Node]:
    """The Node; none, which is said, for one that is malformed."""
    try:
        return [read_node(content)]
    except MalformedObject as error:
        echo(f"Node {content['metadata']['name']} is skipped: {error}", err=True)
        return []


def snapshot_of(picture: Picture) -> Snapshot:
    """The nodes and their published states in a picture of ``Cluster.states``."""
    snapshot = changes.apply(Snapshot(), changes.NodesListed(tuple(picture[NODES]), ""))
    return changes.apply(snapshot, changes.PublicationsListed(tuple(picture[NODE_TOPOLOGIES]), ""))


def snapshot_of_published(picture: Picture) -> Snapshot:
    """The same for a user who may not list nodes: those that publish, of which nothing else is known."""
    snapshot = snapshot_of(picture)
    nodes = (_published_node(publication.state) for publication in snapshot.publications.values())
    unreadable = (Node(name, labels={HOSTNAME_LABEL: name}) for name in snapshot.unreadable)
    return changes.apply(snapshot, changes.NodesListed((*nodes, *unreadable), ""))


def _published_node(state: NodeState) -> Node:
    """The Node of a user who may not list nodes. No kubelet checks storage by NUMA node: any request is let through."""
    from topomend.replay.lifecycle.node_allocatable import node_allocatable  # noqa: PLC0415
    from topomend.replay.lifecycle.predicate import EPHEMERAL_STORAGE  # noqa: PLC0415

    allocatable = {**node_allocatable(state), EPHEMERAL_STORAGE: sys.maxsize}
    return Node(state.name, labels={HOSTNAME_LABEL: state.name}, allocatable=allocatable)
