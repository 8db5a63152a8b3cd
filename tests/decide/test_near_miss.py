"""What a node lacks for a pod that waits, which one comes closest, and what would help there."""

import pytest
from tests.builders import guaranteed_pod, node, node_state, snapshot_of

from topomend.cache.changes import NodeUpdated, apply
from topomend.decide.feasibility import diagnose
from topomend.decide.near_miss import closest, closest_words, lack_of, remedy_at
from topomend.model.cluster import Placement
from topomend.model.pod import Pod

HALF = node_state(name="half", pods=[guaranteed_pod("low", 2), guaranteed_pod("high", 2)])
"""On NUMA nodes 0 and 1, 1 and 2 CPUs are free."""

FULL = node_state(name="full", pods=[guaranteed_pod("low", 3), guaranteed_pod("high", 4)])

SNAPSHOT = snapshot_of(HALF, FULL)


def lacks(pod: Pod, placement: Placement = Placement()) -> dict[str, str]:  # noqa: B008  a frozen value
    """What each node lacks, by its name."""
    rejected = diagnose(SNAPSHOT, pod, placement).rejected
    return {status.node: lack_of(SNAPSHOT, pod, status).text for status in rejected}


def test_a_node_whose_kubelet_refuses_lacks_an_amount_on_its_best_numa_node() -> None:
    found = lacks(guaranteed_pod(cpus=3))
    assert found["half"].startswith("half lacks 1 of 3 cpu (free ")
    assert found["full"].startswith("full lacks 3 of 3 cpu (free ")


def test_a_node_that_the_scheduler_would_not_use_lacks_what_that_asks() -> None:
    found = lacks(guaranteed_pod(cpus=3), Placement(node_selector={"disk": "fast"}))
    assert set(found.values()) == {
        "half lacks what the scheduler asks: NodeSelector",
        "full lacks what the scheduler asks: NodeSelector",
    }


def test_a_node_that_is_too_small_in_total_or_publishes_nothing_is_said_to_be() -> None:
    big = guaranteed_pod(cpus=9)
    assert lacks(big)["half"] == "half lacks room in total"
    snapshot = apply(SNAPSHOT, NodeUpdated(node("new")))
    small = guaranteed_pod(cpus=3)
    (unknown,) = (status for status in diagnose(snapshot, small, Placement()).rejected if status.node == "new")
    assert lack_of(snapshot, small, unknown).text == "new lacks a published state that can be used"


def test_the_closest_node_lacks_least_and_its_words_say_what_would_help() -> None:
    pod = guaranteed_pod(cpus=3)
    rejected = diagnose(SNAPSHOT, pod, Placement()).rejected
    found = closest(SNAPSHOT, pod, rejected)
    assert found is not None
    assert found.node == "half"
    words = closest_words(SNAPSHOT, pod, rejected)
    assert words.startswith("closest: half lacks 1 of 3 cpu (free ")
    assert "; would be admitted with 2 CPUs or once ns/" in words
    by_selector = diagnose(SNAPSHOT, pod, Placement(node_selector={"disk": "fast"})).rejected
    assert closest_words(SNAPSHOT, pod, by_selector) == "", "no kubelet was asked"


@pytest.mark.parametrize("used", [{"cpu": 4000}, {"cpu": 6000}], ids=["enough left in total", "too little"])
def test_the_end_of_one_pod_is_named_only_where_enough_is_left_in_total(used: dict[str, int]) -> None:
    pod = guaranteed_pod(cpus=3)
    (status,) = (one for one in diagnose(SNAPSHOT, pod, Placement()).rejected if one.node == "half")
    assert bool(remedy_at(SNAPSHOT, pod, status, used).ends) == (used["cpu"] == 4000)
