"""Nodes, and what every node knows of DeviceClasses."""

from tests.builders import applied, node, node_state

from topomend.cache import changes
from topomend.model.nodes.node import Node

EMPTY = node_state()
PUBLISHED = changes.Published(EMPTY, "3")


def test_every_node_knows_the_resources_that_claims_provide_whatever_was_listed_first() -> None:
    mapped = frozenset({"vendor.com/gpu"})
    snapshot = applied(
        changes.NodeUpdated(Node("before")),
        changes.DeviceClassesListed(mapped),
        changes.NodeUpdated(Node("after", labels={"zone": "a"})),
    )
    assert {node.by_claim for node in snapshot.nodes.values()} == {mapped}
    relisted = changes.apply(snapshot, changes.NodesListed((Node("before"), Node("after", labels={"zone": "a"})), "9"))
    assert relisted is snapshot
    assert {
        node.by_claim for node in applied(changes.DeviceClassesListed(frozenset()), to=snapshot).nodes.values()
    } == {frozenset()}


def test_a_relisted_node_that_has_not_changed_stays_the_same_object_whatever_others_did() -> None:
    snapshot = applied(*(changes.NodeUpdated(node(name, version="5")) for name in "ab"))
    listed = (node("a", version="8"), node("b", version="8", unschedulable=True))
    relisted = applied(changes.NodesListed(listed, "9"), to=snapshot)
    assert relisted.nodes["a"] is snapshot.nodes["a"]
    assert relisted.nodes["b"].unschedulable
    assert applied(changes.NodesListed(listed[:1], "9"), to=relisted).nodes == {"a": node("a")}


def test_a_new_version_of_an_equal_node_changes_nothing() -> None:
    snapshot = applied(changes.NodeUpdated(Node("a", version="1")))
    assert applied(changes.NodeUpdated(Node("a", version="2")), to=snapshot).nodes is snapshot.nodes


def test_a_list_replaces_every_node_and_publication_that_is_not_newer_than_it() -> None:
    snapshot = applied(
        PUBLISHED, changes.NodeUpdated(Node("a", version="1")), changes.NodeUpdated(Node("new", version="9"))
    )
    snapshot = applied(
        changes.NodesListed((Node("b", version="2"),), "5"), changes.PublicationsListed((), "5"), to=snapshot
    )
    assert set(snapshot.nodes) == {"b", "new"}
    assert not snapshot.publications
