"""The cases are at the limits that a node's policies decide, fit its totals, and are there for every machine."""

from dataclasses import replace

import pytest
from tests.builders import guaranteed_pod, node_state, pod, running
from tests.check.test_recorded_machines import careful_state
from tests.selftest.seen import OWN, choice_of, node_of, predicted
from verify.oracle.random_cases.recorded import RECORDED, unpacked

from topomend.discover.host import read_host
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import requests_of, usage_of
from topomend.selftest.cases import MOST_RESOURCES, choose
from topomend.selftest.compare import Seen, predict
from topomend.selftest.manifest import pod_manifest
from topomend.wire.pods.bound_pod import read_bound_pod

GPUS = "sockets:2 cores:4 memory:8Gi device:vendor.com/gpu@0=1,1=1"


def names(state: NodeState) -> list[str]:
    return [case.name for case in choice_of(state).cases]


def test_a_node_that_pins_nothing_is_tried_with_shared_cpus_alone() -> None:
    assert names(node_state(policy="none", cpu_manager="none")) == ["shared-cpu", "one-cpu"]


def test_exclusive_cpus_are_tried_up_to_a_numa_nodes_and_one_more() -> None:
    cases = {case.name: case.what for case in choice_of(node_state()).cases}
    assert cases["numa-node"] == "4 CPUs, the most free on a NUMA node"
    assert cases["beyond"] == "5 CPUs, more than any NUMA node has free"
    assert predicted(node_state(), "numa-node").verdict.admitted
    assert predicted(node_state(), "beyond").verdict.reason == "TopologyAffinityError"


def test_what_other_pods_hold_is_not_free() -> None:
    state = running(node_state(), guaranteed_pod("other", 3), guaranteed_pod("another", 3))
    assert {case.name: case.what for case in choice_of(state).cases}["beyond"].startswith("2 CPUs")


def test_two_containers_tell_the_scopes_apart() -> None:
    assert predicted(node_state(scope="container"), "two-containers").verdict.admitted
    assert not predicted(node_state(scope="pod"), "two-containers").verdict.admitted


def test_a_core_of_several_threads_is_tried_as_a_whole() -> None:
    assert "whole-core" in names(node_state("sockets:2 cores:4 threads:2 memory:8Gi"))
    assert "whole-core" not in names(node_state())


def test_on_one_numa_node_nothing_is_asked_for_that_spans_several() -> None:
    state = node_state("cores:8 memory:8Gi device:vendor.com/gpu@0=2", memory_manager="Static")
    assert not [name for name in names(state) if "beyond" in name or name == "two-containers"]


def test_devices_are_tried_alone_with_a_cpu_and_beyond_a_numa_node() -> None:
    assert [name for name in names(node_state(GPUS)) if name.startswith("device")] == [
        "device-1",
        "device-1-cpu",
        "device-1-beyond",
    ]
    assert predicted(node_state(GPUS), "device-1-beyond").verdict.reason == "TopologyAffinityError"


def test_devices_of_several_plugins_are_also_tried_together() -> None:
    state = node_state(f"{GPUS} device:vendor.com/nic@0=1,1=1")
    assert names(state)[-1] == "devices"
    assert predicted(state, "devices").verdict.admitted


def test_of_many_resources_the_first_are_tried_and_the_others_named() -> None:
    offered = " ".join(f"device:vendor.com/kind-{number}@0=1" for number in range(MOST_RESOURCES + 1))
    choice = choice_of(node_state(f"sockets:2 cores:4 memory:8Gi {offered}"))
    assert f"vendor.com/kind-{MOST_RESOURCES}: 4 resources are tried at most" in choice.left_out


def test_taken_devices_are_not_tried() -> None:
    state = running(node_state(GPUS), pod("other", "cpu=1 memory=1Mi vendor.com/gpu=1", "vendor.com/gpu=1"))
    assert not [name for name in names(state) if name.startswith("device")]


def test_memory_and_huge_pages_are_tried_where_the_memory_manager_pins_them() -> None:
    shape = "sockets:2 cores:4 memory:8Gi hugepages-2Mi:64"
    pinned = names(node_state(shape, memory_manager="Static"))
    assert {"memory", "memory-beyond", "huge-pages-1", "huge-pages-1-beyond"} <= set(pinned)
    assert not {"memory", "huge-pages-1"} & set(names(node_state(shape)))


def test_all_the_memory_of_a_numa_node_is_admitted_and_more_is_not() -> None:
    state = node_state(memory_manager="Static")
    assert predicted(state, "memory").verdict.admitted
    assert predicted(state, "memory-beyond").verdict.reason == "TopologyAffinityError"


def test_no_case_asks_for_more_than_other_pods_leave_in_total() -> None:
    state = node_state(memory_manager="Static")
    busy = usage_of(pod("shared", "request:cpu=4500m request:memory=12Gi"))
    choice = choose(state, node_of(state), busy)
    assert choice.cases
    left = {"cpu": 2500, "memory": node_of(state).allocatable["memory"] - busy["memory"]}
    for case in choice.cases:
        asked = requests_of(case.pod)
        assert all(asked[resource] <= left[resource] for resource in left if resource in asked), case
    assert "4 CPUs, the most free on a NUMA node: too little cpu is left in total" in choice.left_out


def test_a_full_node_has_no_case() -> None:
    state = node_state()
    assert not choose(state, node_of(state), {"pods": 110_000}).cases


@pytest.mark.skipif(not RECORDED, reason="no recorded machines beside the project (../shared/data/hwloc)")
@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_machine_has_cases_of_different_names_that_fit_and_can_be_predicted(name: str) -> None:
    state = careful_state(read_host(unpacked(name)).machine)
    node = node_of(state)
    if not node.allocatable["memory"]:  # of some machines nobody recorded it
        node = replace(node, allocatable={**node.allocatable, "memory": 1 << 50})
    choice = choose(state, node, {})
    assert bool(choice.cases) is bool(node.allocatable["cpu"]), (
        choice.left_out
    )  # some have no core but the reserved one
    assert len({case.name for case in choice.cases}) == len(choice.cases)
    for case in choice.cases:
        stored = read_bound_pod(pod_manifest(case, node, OWN, "any"))
        verdict = predict(Seen(node, state, (), frozenset()), stored).verdict
        assert not verdict.reason.startswith("OutOf"), (case, verdict)
