"""The pools of a cluster: whose nodes count, and which nodes and pods make one fragmented."""

from dataclasses import replace

import pytest
from tests.builders import node, node_state, pod, snapshot_of

from topomend.cache.snapshot import Snapshot
from topomend.decide.pools.pools import MOST_NODES, Pool, PoolResource, pools
from topomend.decide.pools.typical_pods import kinds_of
from topomend.model.nodes.node_pool import NAMING_LABELS, NO_POOL
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod

POOL = NAMING_LABELS[-1]
FOUR = pod("four", "cpu=4 memory=1Mi")


def halved(name: str) -> NodeState:
    """1 CPU is free on NUMA node 0 and 2 are on NUMA node 1, beside ``y``, without which 4 are."""
    return node_state(name=name, pods=[pod(f"x-{name}", "cpu=2 memory=1Mi"), pod(f"y-{name}", "cpu=2 memory=1Mi")])


def only(snapshot: Snapshot, *pods: Pod) -> Pool:
    [found] = pools(snapshot, lambda _: kinds_of(pods))
    return found


def cpus(pool: Pool) -> PoolResource:
    [found] = [resource for resource in pool.resources if resource.name == "cpu"]
    return found


def test_the_pods_without_which_less_would_be_unusable_are_named() -> None:
    found = cpus(only(snapshot_of(halved("a"), node_state(name="b")), FOUR))
    assert found.free == 3 + 7
    assert found.fragmented is not None
    assert found.fragmented.share == pytest.approx(3 / 10)
    [culprit] = found.culprits
    assert (culprit.node, culprit.fragmented.unusable) == ("a", 3)
    assert [each.name for each in culprit.pods] == ["y-a"], "NUMA node 0 has a reserved CPU"


def test_a_kind_is_shown_with_how_many_nodes_admit_it() -> None:
    [(kind, admitting)] = only(snapshot_of(halved("a"), node_state(name="b")), FOUR).typical
    assert (kind.asked["cpu"], admitting) == (4, 1)


def test_few_nodes_are_named_the_worst_first() -> None:
    larger = node_state(
        "sockets:2 cores:6", name="large", pods=[pod("x", "cpu=3 memory=1Mi"), pod("y", "cpu=3 memory=1Mi")]
    )
    states = [larger, *(halved(name) for name in "abcdef")]
    culprits = cpus(only(snapshot_of(*states), FOUR)).culprits
    assert len(culprits) == MOST_NODES
    assert culprits[0].node == "large"


def test_nodes_that_take_no_pods_or_are_not_known_are_left_out() -> None:
    snapshot = snapshot_of(halved("a"), halved("b"))
    snapshot = replace(snapshot, nodes={**snapshot.nodes, "b": node("b", ready=False), "silent": node("silent")})
    found = only(snapshot, FOUR)
    assert (found.name, found.size, found.nodes) == (NO_POOL, 3, ("a",))


def test_a_pool_of_which_no_node_is_known_has_no_figures() -> None:
    assert only(Snapshot(nodes={"a": node("a")})) == Pool(NO_POOL, 1, (), (), ())
    assert pools(Snapshot(), lambda _: kinds_of([FOUR])) == []


def test_without_any_typical_pod_the_share_is_not_known() -> None:
    found = only(snapshot_of(node_state(name="a")))
    assert (found.typical, cpus(found).free, cpus(found).fragmented) == ((), 7, None)


def test_only_the_named_nodes_are_asked_each_in_its_pool() -> None:
    snapshot = snapshot_of(halved("a"), halved("b"), halved("c"))
    labelled = {name: node(name, labels={POOL: pool}) for name, pool in (("a", "one"), ("b", "two"), ("c", "two"))}
    found = pools(replace(snapshot, nodes=labelled), lambda _: kinds_of([FOUR]), ["c", "a"])
    assert [(pool.name, pool.nodes) for pool in found] == [("one", ("a",)), ("two", ("c",))]
