"""Changes of nodes and of the DeviceClasses that every node knows.

A node that changes may bear out what its agent published, or no longer: that is ``trust``'s.
"""

from dataclasses import replace
from typing import NamedTuple

from topomend.cache.assumed import used_on
from topomend.cache.changes.trust import with_distrust
from topomend.cache.snapshot import Snapshot, excluding, including, is_newer
from topomend.model.nodes.node import Node


class NodeUpdated(NamedTuple):
    """A node was created or has changed."""

    node: Node

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Replace the node, and compare what its agent published with it."""
        nodes = including(snapshot.nodes, self.node.name, _known(self.node, snapshot))
        return snapshot if nodes is snapshot.nodes else with_distrust(replace(snapshot, nodes=nodes), (self.node.name,))


class NodeRemoved(NamedTuple):
    """A node was deleted."""

    name: str

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Forget it."""
        totals = excluding(snapshot.totals, self.name)
        return replace(snapshot, nodes=excluding(snapshot.nodes, self.name), totals=totals)


class NodesListed(NamedTuple):
    """Every node. ``changed`` are those of which a watch has brought something newer."""

    nodes: tuple[Node, ...]
    version: str
    changed: frozenset[str] = frozenset()

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Replace all nodes, and compare what their agents published with those that changed.

        A node that has not changed stays the same object, for answers of nodes are remembered by node.
        """
        before = snapshot.nodes
        newer = {
            name: node for name, node in before.items() if name in self.changed or is_newer(node.version, self.version)
        }
        others = (node for node in self.nodes if node.name not in self.changed)
        listed = {node.name: _known(node, snapshot) for node in others} | newer
        nodes = {name: before[name] if before.get(name) == node else node for name, node in listed.items()}
        changed = [name for name, node in nodes.items() if before.get(name) is not node]
        if not changed and len(nodes) == len(before):
            return snapshot
        totals = {name: totals for name, totals in snapshot.totals.items() if name in nodes}
        return with_distrust(replace(snapshot, nodes=nodes, totals=totals), changed)


class DeviceClassesListed(NamedTuple):
    """Every DeviceClass. ``by_claim`` are the extended resources that they map."""

    by_claim: frozenset[str]

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Have every node know them: answers of nodes are remembered by node."""
        if self.by_claim == snapshot.by_claim:
            return snapshot
        nodes = {name: replace(node, by_claim=self.by_claim) for name, node in snapshot.nodes.items()}
        return replace(snapshot, nodes=nodes, by_claim=self.by_claim)


def _known(node: Node, snapshot: Snapshot) -> Node:
    """The node with what the snapshot knows and its object does not say."""
    return replace(node, by_claim=snapshot.by_claim, used=used_on(snapshot, node.name))
