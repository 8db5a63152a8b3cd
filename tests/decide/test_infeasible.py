from dataclasses import replace
from typing import Any

import pytest

from topomend.cache import changes
from topomend.cache.changes import apply
from topomend.cache.snapshot import Snapshot, topology_changed
from topomend.decide.infeasible import why_infeasible
from topomend.model.bitmask import parse_id_list
from topomend.model.cluster import Node, Placement, Taint
from topomend.model.kubelet import KubeletSettings
from topomend.model.node_state import NodeState
from topomend.model.pod import Container, ContainerKind, Pod, Resources
from topomend.model.shape import parse_shape
from topomend.replay.admission import admit

SETTINGS = KubeletSettings(
    topology_manager_policy="single-numa-node", cpu_manager_policy="static", reserved_cpus=parse_id_list("0")
)
ANYWHERE = Placement()


def asking(cpus: int, name: str = "p", **devices: int) -> Pod:
    amounts = {"cpu": cpus * 1000, "memory": 1000 << 20} | {f"vendor.com/{key}": n * 1000 for key, n in devices.items()}
    return Pod("ns", name, name, (Container("main", ContainerKind.APP, Resources(amounts, amounts)),))


def state(name: str, shape: str = "numa:2 cores:4") -> NodeState:
    read = parse_shape(shape)
    return NodeState(name, read.machine(), SETTINGS, read.offered_devices())


def node(name: str, cpus: int = 7, **fields: object) -> Node:
    allocatable = {"cpu": cpus * 1000, "memory": 16000 << 30, "pods": 110000, "vendor.com/gpu": 8000}
    return replace(Node(name, labels={"kubernetes.io/hostname": name}, allocatable=allocatable), **fields)  # type: ignore[arg-type]


def view_of(*seen: changes.Change) -> Snapshot:
    snapshot = Snapshot()
    for each in seen:
        snapshot = apply(snapshot, each)
    return snapshot


def both(name: str, shape: str = "numa:2 cores:4", cpus: int = 7, **fields: Any) -> tuple[changes.Change, ...]:
    return changes.NodeUpdated(node(name, cpus, **fields)), changes.Published(state(name, shape), "3")


def test_of_a_pod_larger_than_any_numa_node_the_closest_node_and_what_it_lacks_are_named() -> None:
    snapshot = view_of(*both("small", "numa:2 cores:3", cpus=6), *both("large", "numa:2 cores:5", cpus=9))
    assert why_infeasible(snapshot, asking(6), ANYWHERE) == (
        "no node admits p even when empty; closest: large refuses container main: cpu asks 6 and fits no NUMA node: "
        "free 4 on NUMA 0, 5 on NUMA 1, lacks 1 (single-numa-node)"
    )


def test_a_pod_that_would_fit_an_empty_node_only_waits() -> None:
    _, held = admit(state("a"), asking(2, "held"))
    full = admit(held, asking(2, "other"))[1]
    snapshot = view_of(changes.NodeUpdated(node("a")), changes.Published(full, "3"))
    assert not admit(full, asking(3))[0].admitted
    assert why_infeasible(snapshot, asking(3), ANYWHERE) == ""


def test_a_node_whose_total_is_too_small_says_so() -> None:
    assert why_infeasible(view_of(*both("a")), asking(9), ANYWHERE) == (
        "no node admits p even when empty; closest: a has 7 cpu in total, p asks 9"
    )


def test_memory_is_shown_with_a_unit() -> None:
    small = {"cpu": 7000, "memory": 1000 << 19, "pods": 110000}
    snapshot = view_of(*both("a"), changes.NodeUpdated(node("a", allocatable=small)))
    assert why_infeasible(snapshot, asking(3), ANYWHERE).endswith("a has 512Ki memory in total, p asks 1Mi")


@pytest.mark.parametrize(
    "passing",
    [{"ready": False}, {"unschedulable": True}, {"taints": (Taint("k", "NoSchedule"),)}],
    ids=["not ready", "cordoned", "tainted"],
)
def test_what_passes_by_itself_is_no_reason_for_never(passing: dict[str, Any]) -> None:
    assert why_infeasible(view_of(*both("a", **passing)), asking(3), ANYWHERE) == ""
    assert why_infeasible(view_of(*both("a", **passing)), asking(5), ANYWHERE)


def test_a_node_whose_state_nobody_publishes_might_admit_it() -> None:
    assert why_infeasible(view_of(*both("a"), changes.NodeUpdated(node("b"))), asking(5), ANYWHERE) == ""


def test_only_nodes_that_the_pod_selects_count() -> None:
    snapshot = view_of(*both("a"), *both("b", "numa:2 cores:8", cpus=15))
    assert why_infeasible(snapshot, asking(5), ANYWHERE) == ""
    assert why_infeasible(snapshot, asking(5), Placement({"kubernetes.io/hostname": "a"})).endswith(
        "(single-numa-node)"
    )
    assert why_infeasible(snapshot, asking(5), Placement({"no": "such"})) == ""


def test_resources_that_no_numa_node_has_together_are_a_near_miss() -> None:
    snapshot = view_of(*both("a", "numa:2 cores:4 device:vendor.com/gpu@0=1"))
    assert why_infeasible(snapshot, asking(4, gpu=1), ANYWHERE) == (
        "no node admits p even when empty; closest: a refuses container main: vendor.com/gpu fits NUMA 0 only, "
        "cpu fits NUMA 1 only (single-numa-node)"
    )


def test_the_closest_node_lacks_the_smallest_share_of_all_resources_together() -> None:
    """``z`` lacks half of the CPUs; ``b`` lacks a third of the CPUs and a third of the devices."""
    few_cpus = both("z", "numa:2 cores:3 device:vendor.com/gpu@0=3,1=3")
    few_of_both = both("b", "numa:2 cores:4 device:vendor.com/gpu@0=2,1=2")
    closest = why_infeasible(view_of(*few_cpus, *few_of_both), asking(6, gpu=3), ANYWHERE)
    assert closest.startswith("no node admits p even when empty; closest: z refuses container main: cpu asks 6")


def test_pods_that_come_and_go_change_no_machine_and_devices_do() -> None:
    before = view_of(*both("a"))
    used = apply(before, changes.Published(admit(state("a"), asking(2))[1], "4"))
    assert not topology_changed(before, used)
    with_device = state("a", "numa:2 cores:4 device:vendor.com/gpu@0=1")
    assert topology_changed(used, apply(used, changes.Published(with_device, "5")))
    assert topology_changed(used, apply(used, changes.Published(state("a"), "5", problem="its agent says so")))
    assert topology_changed(used, apply(used, changes.NodeUpdated(node("a", unschedulable=True))))
    assert topology_changed(used, apply(used, changes.Unpublished("a")))
