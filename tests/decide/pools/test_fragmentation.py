"""The fragmentation: exact on nodes that one can count by hand, and of what it depends."""

from dataclasses import replace

import pytest
from tests.builders import node, node_state, pod, snapshot_of

from topomend.decide.pools.fragmentation import Fragmented, NodeAnswers, Questions, counts, fragmentation_of
from topomend.decide.pools.typical_pods import Mix, kinds_of, merged, mix_of, times
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.replay.admission import admit

GPU = "vendor.com/gpu"
FOUR, TWO = pod("p", "cpu=4 memory=1Mi"), pod("p", "cpu=2 memory=1Mi")
EMPTY = node_state(name="empty")
"""3 CPUs are free on NUMA node 0 and 4 on NUMA node 1."""

SPLIT = node_state(name="split", pods=[pod("a", "cpu=1 memory=1Mi"), pod("b", "cpu=3 memory=1Mi")])


def number(mix: Mix, *states: NodeState) -> Fragmented:
    return fragmentation_of(map(Questions(mix).ask, states), mix)["cpu"]


def mix(*pods: tuple[Pod, int]) -> Mix:
    return mix_of(merged(times(kinds_of([kind]), count) for kind, count in pods))


def test_what_is_free_where_the_typical_pod_is_refused_is_unusable() -> None:
    verdict, _ = admit(SPLIT, replace(FOUR, name="new"))
    free = 7 - 4
    assert not verdict.admitted
    assert number(mix((FOUR, 1)), SPLIT) == Fragmented(free, free)
    assert number(mix((FOUR, 1)), EMPTY) == Fragmented(7, 0)
    assert number(mix((FOUR, 1)), EMPTY, SPLIT).share == pytest.approx(3 / 10)


def test_each_kind_counts_for_what_it_asks_for() -> None:
    room_for_two = node_state(name="c", pods=[pod("a", "cpu=2 memory=1Mi"), pod("b", "cpu=2 memory=1Mi")])
    assert number(mix((FOUR, 1), (TWO, 2)), room_for_two).share == pytest.approx(0.5)
    assert number(mix((FOUR, 1), (TWO, 6)), room_for_two).share == pytest.approx(0.25)


def test_a_full_cluster_and_one_that_nobody_asks_of_have_no_number() -> None:
    full = node_state(name="full", pods=[pod("a", "cpu=4 memory=1Mi"), pod("b", "cpu=3 memory=1Mi")])
    assert number(mix((FOUR, 1)), full).share is None
    assert fragmentation_of(map(Questions(Mix()).ask, [EMPTY]), Mix()) == {}
    assert fragmentation_of([], mix((FOUR, 1))) == {}


def test_a_node_without_the_devices_that_a_pod_asks_for_is_of_no_use_to_it() -> None:
    gpu = mix((pod("p", f"cpu=2 memory=1Mi {GPU}=1"), 1))
    assert number(gpu, EMPTY).share == 1.0
    with_one = node_state(f"numa:2 cores:4 memory:8Gi device:{GPU}@0=1")
    assert fragmentation_of([Questions(gpu).ask(with_one)], gpu)[GPU] == Fragmented(1, 0.0)


def test_a_policy_that_refuses_nothing_leaves_everything_usable_but_to_pods_that_ask_for_alignment() -> None:
    loose = node_state(
        name="loose", policy="best-effort", pods=[pod("a", "cpu=1 memory=1Mi"), pod("b", "cpu=3 memory=1Mi")]
    )
    wide = pod("p", "cpu=3 memory=1Mi")
    assert number(mix((wide, 1)), loose).share == 0.0
    assert number(mix((replace(FOUR, alignment="single-numa-node"), 1)), loose).share == 1.0


def test_what_a_pod_takes_from_typical_ones_is_the_difference_on_its_node() -> None:
    """Whoever places pods compares nodes by it: a pod of one CPU does less harm where no large one fits anyway."""
    typical, small = mix((FOUR, 1)), pod("s", "cpu=1 memory=1Mi")

    def harm(state: NodeState) -> float:
        _, after = admit(state, small)
        return number(typical, after).unusable - number(typical, state).unusable

    almost = node_state(name="almost", pods=[pod("a", "cpu=3 memory=1Mi")])
    assert harm(SPLIT) == -1
    assert harm(almost) == 3
    assert harm(EMPTY) == 0


def test_known_answers_are_not_asked_again() -> None:
    four = mix((FOUR, 1))
    [key] = [typical.key for typical in four.pods]
    assert Questions(four).ask(SPLIT, {key: True, "gone": False}) == NodeAnswers({"cpu": 3}, {key: True})


def test_a_node_counts_if_pods_may_go_there_and_its_state_is_known() -> None:
    snapshot = snapshot_of(EMPTY)
    assert counts(snapshot, "empty")
    assert not counts(snapshot, "other")
    for unfit in (node("empty", ready=False), node("empty", unschedulable=True)):
        assert not counts(replace(snapshot, nodes={"empty": unfit}), "empty")
    assert not counts(replace(snapshot, publications={}), "empty")
