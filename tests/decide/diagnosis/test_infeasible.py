"""A pod is infeasible if no node admits it even when empty; the reason names the node that comes closest."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import TWO_NUMA_NODES, applied, guaranteed_pod, node, node_state, snapshot_of

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.decide.diagnosis.infeasible import devices_not_back, misses, why_infeasible, words_of
from topomend.model.nodes.node import Taint
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import Placement
from topomend.replay.admission import admit

ANYWHERE = Placement()


def one_node(name: str, shape: str = TWO_NUMA_NODES, cpus: int = 7, **fields: Any) -> tuple[changes.Change, ...]:
    """A node and what its agent publishes: empty, with so many CPUs for the scheduler."""
    made = node(name, cpus=cpus, **fields)
    allocatable = {"vendor.com/gpu": 8000, **made.allocatable}
    return changes.NodeUpdated(replace(made, allocatable=allocatable)), changes.Published(
        node_state(shape, name=name), "3"
    )


def told_beside_its_refusal(snapshot: Snapshot, pod: Pod, node: str) -> str:
    """The reason for whoever knows that this node has refused the pod."""
    return words_of(misses(snapshot, pod, ANYWHERE), snapshot, pod, refused_by=node)


def test_the_reason_names_the_closest_node_and_what_it_lacks() -> None:
    snapshot = applied(*one_node("small", "numa:2 cores:3", cpus=6), *one_node("large", "numa:2 cores:5", cpus=9))
    assert why_infeasible(snapshot, guaranteed_pod(cpus=6), ANYWHERE) == (
        "no node admits p even when empty; closest: large refuses container c0: cpu requests 6 and fits no NUMA node: "
        "free 4 on NUMA 0, 5 on NUMA 1, lacks 1; even empty no NUMA node has more than 5 (single-numa-node); "
        "would be admitted with 5 CPUs"
    )


@pytest.mark.parametrize("held", [(), (2, 2)], ids=["empty", "half full"])
def test_a_refusal_that_the_reader_knows_is_not_told_again(held: tuple[int, ...]) -> None:
    state = node_state(name="a", pods=[guaranteed_pod(f"p{number}", cpus) for number, cpus in enumerate(held)])
    snapshot = applied(*one_node("a"), changes.Published(state, "4"))
    assert told_beside_its_refusal(snapshot, guaranteed_pod(cpus=5), "a") == (
        "no node admits p even when empty; closest: a, which refused it; would be admitted with 4 CPUs"
    )
    assert "a refuses container c0" in told_beside_its_refusal(snapshot, guaranteed_pod(cpus=5), "b")


def test_of_equally_close_nodes_the_one_whose_refusal_is_known_is_named() -> None:
    snapshot = applied(*one_node("a"), *one_node("b"))
    assert "closest: b, which refused it;" in told_beside_its_refusal(snapshot, guaranteed_pod(cpus=5), "b")


def test_a_refusal_for_another_cause_than_that_of_the_empty_node_does_not_stand_for_it() -> None:
    shape = "numa:2 cores:4 device:vendor.com/gpu@0=1,1=1"
    full = node_state(shape, name="a", pods=[guaranteed_pod("low", 1, gpu=1), guaranteed_pod("high", 1, gpu=1)])
    snapshot = applied(*one_node("a", shape), changes.Published(full, "4"))
    asked = guaranteed_pod(cpus=5, gpu=1)
    assert not admit(full, asked)[0].admitted
    assert "a refuses container c0: cpu requests 5" in told_beside_its_refusal(snapshot, asked, "a")


def test_a_pod_that_would_fit_an_empty_node_only_waits() -> None:
    full = node_state(pods=[guaranteed_pod("low", 2), guaranteed_pod("high", 2)])
    snapshot = snapshot_of(full)
    assert not admit(full, guaranteed_pod(cpus=3))[0].admitted
    assert why_infeasible(snapshot, guaranteed_pod(cpus=3), ANYWHERE) == ""


def test_a_node_whose_total_is_too_small_is_named_with_both_amounts() -> None:
    assert why_infeasible(applied(*one_node("a")), guaranteed_pod(cpus=9), ANYWHERE) == (
        "no node admits p even when empty; closest: a has 7 cpu in total, p requests 9"
    )


def test_memory_is_shown_with_a_unit() -> None:
    small = {"cpu": 7000, "memory": 1000 << 19, "pods": 110000}
    snapshot = applied(*one_node("a"), changes.NodeUpdated(node("a", allocatable=small)))
    assert why_infeasible(snapshot, guaranteed_pod(cpus=3), ANYWHERE).endswith(
        "a has 512Ki memory in total, p requests 1Mi"
    )


@pytest.mark.parametrize(
    "temporary",
    [{"ready": False}, {"unschedulable": True}, {"taints": (Taint("k", "NoSchedule"),)}],
    ids=["not ready", "cordoned", "tainted"],
)
def test_a_temporary_state_of_a_node_does_not_make_a_pod_infeasible(temporary: dict[str, Any]) -> None:
    assert why_infeasible(applied(*one_node("a", **temporary)), guaranteed_pod(cpus=3), ANYWHERE) == ""
    assert why_infeasible(applied(*one_node("a", **temporary)), guaranteed_pod(cpus=5), ANYWHERE)


def test_a_node_without_an_agent_might_admit_the_pod() -> None:
    assert (
        why_infeasible(applied(*one_node("a"), changes.NodeUpdated(node("b"))), guaranteed_pod(cpus=5), ANYWHERE) == ""
    )


def test_only_nodes_that_the_pod_selects_count() -> None:
    snapshot = applied(*one_node("a"), *one_node("b", "numa:2 cores:8", cpus=15))
    assert why_infeasible(snapshot, guaranteed_pod(cpus=5), ANYWHERE) == ""
    assert why_infeasible(snapshot, guaranteed_pod(cpus=5), Placement({"kubernetes.io/hostname": "a"})).endswith(
        "(single-numa-node); would be admitted with 4 CPUs"
    )
    assert why_infeasible(snapshot, guaranteed_pod(cpus=5), Placement({"no": "such"})) == ""


def test_resources_that_no_numa_node_has_together_are_a_near_miss() -> None:
    snapshot = applied(*one_node("a", f"{TWO_NUMA_NODES} device:vendor.com/gpu@0=1"))
    assert why_infeasible(snapshot, guaranteed_pod(cpus=4, gpu=1), ANYWHERE) == (
        "no node admits p even when empty; closest: a refuses container c0: vendor.com/gpu fits NUMA 0 only, "
        "cpu fits NUMA 1 only (single-numa-node); would be admitted with 3 CPUs"
    )


def test_the_closest_node_lacks_the_smallest_share_of_all_resources_together() -> None:
    """``z`` lacks half of the CPUs; ``b`` lacks a third of the CPUs and a third of the devices."""
    few_cpus = one_node("z", "numa:2 cores:3 device:vendor.com/gpu@0=3,1=3")
    few_of_both = one_node("b", f"{TWO_NUMA_NODES} device:vendor.com/gpu@0=2,1=2")
    closest = why_infeasible(applied(*few_cpus, *few_of_both), guaranteed_pod(cpus=6, gpu=3), ANYWHERE)
    assert closest.startswith("no node admits p even when empty; closest: z refuses container c0: cpu requests 6")


GPU = "vendor.com/gpu"


@pytest.mark.parametrize(
    ("capacity", "allocatable", "expected"),
    [
        ({GPU: 0}, {GPU: 0}, f"{GPU} of a is unhealthy, or its device plugin is not back yet"),
        ({GPU: 2000}, {GPU: 0}, f"{GPU} of a is unhealthy, or its device plugin is not back yet"),
        ({GPU: 2000}, {GPU: 2000}, ""),
    ],
    ids=["plugin not back", "unhealthy", "healthy"],
)
def test_a_pod_waits_for_devices_that_are_not_back_and_is_told_so(
    capacity: dict[str, int], allocatable: dict[str, int], expected: str
) -> None:
    made = node()
    made = replace(made, allocatable={**made.allocatable, **allocatable}, capacity=capacity)
    snapshot = applied(changes.NodeUpdated(made), changes.Published(node_state(), "3"))
    asked = guaranteed_pod(cpus=2, gpu=2)
    assert why_infeasible(snapshot, asked, ANYWHERE) == ""
    assert devices_not_back(snapshot, asked, ANYWHERE) == expected
    assert why_infeasible(snapshot, guaranteed_pod(cpus=5, gpu=2), ANYWHERE)  # too many CPUs whatever the plugin says


def test_a_pod_that_asks_for_more_devices_than_a_node_has_is_infeasible() -> None:
    made = node()
    made = replace(made, allocatable={**made.allocatable, GPU: 0}, capacity={GPU: 2000})
    snapshot = applied(changes.NodeUpdated(made), changes.Published(node_state(), "3"))
    assert "a has 0 vendor.com/gpu in total" in why_infeasible(snapshot, guaranteed_pod(cpus=2, gpu=3), ANYWHERE)
    assert devices_not_back(snapshot, guaranteed_pod(cpus=2, gpu=3), ANYWHERE) == ""
    assert why_infeasible(applied(*one_node("a")), guaranteed_pod(cpus=2, nic=1), ANYWHERE)  # nobody offers any


def test_unhealthy_devices_that_the_node_publishes_may_recover() -> None:
    state = node_state(f"{TWO_NUMA_NODES} device:{GPU}@0=1,1=1")
    sick = replace(state, devices=tuple(replace(device, healthy=False) for device in state.devices))
    made = node()
    made = replace(made, allocatable={**made.allocatable, GPU: 0}, capacity={GPU: 2000})
    snapshot = applied(changes.NodeUpdated(made), changes.Published(sick, "3"))
    assert why_infeasible(snapshot, guaranteed_pod(cpus=2, gpu=1), ANYWHERE) == ""
    assert why_infeasible(snapshot, guaranteed_pod(cpus=2, gpu=2), ANYWHERE)  # one on each NUMA node, and two asked
