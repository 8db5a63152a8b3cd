"""What a node lacks for a pod that waits, which one comes closest, and what would help there."""

import pytest
from tests.builders import guaranteed_pod, node, node_state, snapshot_of

from topomend.cache.changes import NodeUpdated, apply
from topomend.decide.diagnosis.feasibility import diagnose
from topomend.decide.diagnosis.near_miss import closest, closest_words, lack_of, remedy_at
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import Placement

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


def test_a_node_that_aligns_as_well_as_it_can_lacks_an_amount_in_all() -> None:
    state = node_state(policy="best-effort", name="half", pods=[guaranteed_pod("low", 2), guaranteed_pod("high", 2)])
    snapshot, pod = snapshot_of(state), guaranteed_pod(cpus=5)
    (status,) = diagnose(snapshot, pod, Placement()).rejected
    assert lack_of(snapshot, pod, status).text.startswith("half lacks 2 of 5 cpu (free 1 on NUMA 0, 2 on NUMA 1)")
    assert closest_words(snapshot, pod, status, {}).startswith("closest: half lacks 2 of 5 cpu")


def test_the_closest_node_lacks_least_and_its_words_say_what_would_help() -> None:
    pod = guaranteed_pod(cpus=3)
    rejected = diagnose(SNAPSHOT, pod, Placement()).rejected
    found = closest(SNAPSHOT, pod, rejected)
    assert found is not None
    assert found.node == "half"
    words = closest_words(SNAPSHOT, pod, found, {})
    assert words.startswith("closest: half lacks 1 of 3 cpu (free ")
    assert "; would be admitted with 2 CPUs or once ns/" in words
    by_selector = diagnose(SNAPSHOT, pod, Placement(node_selector={"disk": "fast"})).rejected
    assert closest(SNAPSHOT, pod, by_selector) is None, "no kubelet was asked"


def test_a_node_that_is_gone_since_is_not_the_closest() -> None:
    pod = guaranteed_pod(cpus=3)
    rejected = diagnose(SNAPSHOT, pod, Placement()).rejected
    found = closest(snapshot_of(FULL), pod, rejected)
    assert found is not None
    assert found.node == "full"


@pytest.mark.parametrize(
    ("left", "words"),
    [(3000, "would be admitted with 2 CPUs or once ns/"), (1000, "would be admitted with 1 CPU"), (None, "")],
    ids=["enough in total", "less in total", "nobody knows"],
)
def test_an_amount_is_named_only_where_the_totals_are_known_and_have_it(left: int | None, words: str) -> None:
    pod = guaranteed_pod(cpus=3)
    (status,) = (one for one in diagnose(SNAPSHOT, pod, Placement()).rejected if one.node == "half")
    used = None if left is None else {"cpu": SNAPSHOT.nodes["half"].allocatable["cpu"] - left}
    told = closest_words(SNAPSHOT, pod, status, used)
    lack, _, remedy = told.partition("; ")
    assert lack == "closest: half lacks 1 of 3 cpu (free 1 on NUMA 0, 2 on NUMA 1)"
    assert remedy.startswith(words)
    assert bool(remedy) == bool(words)


@pytest.mark.parametrize("used", [{"cpu": 4000}, {"cpu": 6000}], ids=["enough left in total", "too little"])
def test_the_end_of_one_pod_is_named_only_where_enough_is_left_in_total(used: dict[str, int]) -> None:
    pod = guaranteed_pod(cpus=3)
    (status,) = (one for one in diagnose(SNAPSHOT, pod, Placement()).rejected if one.node == "half")
    assert bool(remedy_at(SNAPSHOT, pod, status, used).ends) == (used["cpu"] == 4000)
