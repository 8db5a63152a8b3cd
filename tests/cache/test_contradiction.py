"""What a Node refutes of its agent's publication, and what it does not."""

from dataclasses import replace

import pytest
from tests.builders import applied, node, node_state, snapshot_of

from topomend.cache import changes
from topomend.cache.contradiction import contradiction
from topomend.cache.snapshot import Snapshot
from topomend.model.machine import HugePages
from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import NodeState
from topomend.model.quantity import parse_quantity

GPU = "vendor.com/gpu"
MANY = "numa:16 cores:1 memory:256Mi"
WIDE = "max-allowable-numa-nodes=64"


def posted(name: str = "a", **capacity: str) -> Node:
    """A Node whose kubelet has posted this capacity; two NUMA nodes' worth by default."""
    amounts = {"cpu": "8", "memory": "16Gi"} | capacity
    return node(name, capacity={key: parse_quantity(amount) for key, amount in amounts.items()}, version="1")


def gpus(count: int) -> NodeState:
    return node_state(f"sockets:2 cores:4 memory:8Gi device:{GPU}@0={count}")


def with_pages(count: int) -> NodeState:
    """A node with so many huge pages of 1Gi on NUMA node 0."""
    state = node_state()
    first, *others = state.machine.numa_nodes
    first = replace(first, hugepages=(HugePages(1 << 30, count),))
    return replace(state, machine=replace(state.machine, numa_nodes=(first, *others)))


@pytest.mark.parametrize(
    ("state", "its_node", "claim"),
    [
        (node_state("sockets:2 cores:512 memory:8Gi"), posted(), "1024 CPUs, its Node has 8"),
        (node_state("sockets:2 cores:4 memory:64Gi"), posted(), "128Gi of memory, its Node has 16Gi of memory"),
        (with_pages(65), posted(), "65Gi of huge pages, its Node has 16Gi of memory"),
        (gpus(5), posted(**{GPU: "4"}), "5 vendor.com/gpu, its Node has 4"),
        (node_state(MANY), posted(cpu="64"), "16 NUMA nodes, with its options a kubelet starts with at most 8"),
        (
            node_state("numa:64 cores:1 memory:256Mi", options="max-allowable-numa-nodes=32"),
            posted(cpu="64"),
            "64 NUMA nodes, with its options a kubelet starts with at most 32",
        ),
        (
            replace(node_state(MANY, options=WIDE), machine=replace(node_state(MANY).machine, cores=())),
            posted(),
            "16 NUMA nodes, its Node has 8 CPUs",
        ),
    ],
)
def test_more_than_the_node_has_is_named_with_both_values(state: NodeState, its_node: Node, claim: str) -> None:
    assert contradiction(its_node, state) == f"its agent is not believed: it publishes {claim}"


@pytest.mark.parametrize(
    ("state", "its_node"),
    [
        (node_state(), posted()),
        (node_state(), node()),  # its kubelet has not posted its capacity yet
        (node_state(), posted(cpu="16", memory="64Gi")),  # CPUs were taken offline
        (node_state(), replace(posted(), allocatable={"cpu": 1000})),  # the kubelet reserves most of it
        (node_state("sockets:2 cores:4 memory:32Gi"), posted()),  # memory was plugged in
        (node_state(), posted(memory="16383Mi")),  # the kernel's own share is counted differently
        (with_pages(8), posted()),  # huge pages were set aside while the kubelet ran
        (gpus(4), posted(**{GPU: "4"})),
        (gpus(4), posted(**{GPU: "8"})),  # the plugin lists fewer than before
        (gpus(4), posted(**{GPU: "0"})),  # the plugin restarts
        (gpus(4), posted()),  # the kubelet has not posted it yet
        (node_state(MANY, options=WIDE), posted(cpu="16")),
        (node_state(MANY, policy="none"), posted(cpu="16")),  # a kubelet that does not check
        (node_state(MANY, options="no-such-option=1"), posted(cpu="16")),  # replay says that it does not start
    ],
)
def test_what_may_truly_differ_is_believed(state: NodeState, its_node: Node) -> None:
    assert contradiction(its_node, state) == ""


def problem(snapshot: Snapshot) -> str:
    return snapshot.why_unknown("a")


def test_a_publication_is_not_believed_as_long_as_it_contradicts_its_node_whichever_comes_first() -> None:
    lie = changes.Published(node_state("sockets:2 cores:8 memory:8Gi"), "4")
    words = "its agent is not believed: it publishes 16 CPUs, its Node has 8"
    node_first = applied(lie, to=applied(changes.NodeUpdated(posted())))
    node_last = applied(changes.NodeUpdated(posted()), to=applied(lie))
    listed = applied(changes.NodesListed((posted(),), "9"), to=applied(lie))
    assert {problem(node_first), problem(node_last), problem(listed)} == {words}
    for grown in (changes.NodeUpdated(posted(cpu="16")), changes.NodesListed((posted(cpu="16"),), "9")):
        assert problem(applied(grown, to=node_first)) == ""
    assert problem(applied(changes.Published(node_state(), "5"), to=node_first)) == ""


def test_what_an_agent_says_of_itself_is_said_before_what_its_node_refutes() -> None:
    lie = changes.Published(node_state("sockets:2 cores:8 memory:8Gi"), "4", problem="its agent says so")
    assert problem(applied(changes.NodeUpdated(posted()), lie)) == "its agent says so"


def test_another_nodes_publication_is_left_as_it_is() -> None:
    before = snapshot_of(node_state(name="b"))
    after = applied(changes.NodeUpdated(posted()), to=before)
    assert after.publications is before.publications
