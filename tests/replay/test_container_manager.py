"""What a kubelet refuses to start with, and what it starts with that replay cannot vouch for."""

import gc
import weakref
from dataclasses import replace

import pytest
from tests.builders import node_state

from topomend.model.machine import Core, Machine, NUMANode
from topomend.model.nodes.kubelet import KubeletSettings, MemoryReservation
from topomend.replay import container_manager
from topomend.replay.container_manager import MAX_SETTINGS, ContainerManager, start

GIB = 1 << 30


def machine(*ids: int, distances: tuple[int, ...] = (10, 20)) -> Machine:
    """NUMA nodes with these ids, each of one CPU and 1 GiB."""
    return Machine(
        tuple(NUMANode(numa_id, GIB, distances=distances) for numa_id in ids),
        tuple(Core(1 << place, 0, numa_id) for place, numa_id in enumerate(ids)),
    )


def started(machine: Machine, settings: KubeletSettings) -> ContainerManager:
    kubelet = start(machine, settings)
    assert isinstance(kubelet, ContainerManager), kubelet
    return kubelet


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"topology_manager_policy": "strict"}, 'unknown policy: "strict"'),
        ({"topology_manager_scope": "node"}, 'unknown scope: "node"'),
        ({"cpu_manager_policy": "dynamic"}, 'unknown policy: "dynamic"'),
        ({"memory_manager_policy": "Dynamic"}, 'unknown policy: "Dynamic"'),
        ({"memory_manager_policy": "BestEffort"}, 'policy "BestEffort" is not available for platform "linux"'),
    ],
    ids=["topology policy", "scope", "CPU policy", "memory policy", "Windows' memory policy"],
)
def test_a_name_that_the_kubelet_does_not_know_ends_its_start(wrong: dict[str, str], why: str) -> None:
    state = node_state()
    assert start(state.machine, replace(state.kubelet, **wrong)) == why  # type: ignore[arg-type]


def test_a_kubelet_that_replay_follows_leaves_nothing_unsaid() -> None:
    state = node_state(policy="restricted", memory_manager="Static", options="prefer-closest-numa-nodes=true")
    assert started(state.machine, state.kubelet).unmodelled == ()


def test_more_memory_reserved_than_there_is_is_said() -> None:
    settings = KubeletSettings(
        memory_manager_policy="Static", reserved_memory=(MemoryReservation(1, "memory", GIB + 1),)
    )
    assert started(machine(0, 1), settings).unmodelled == ("more memory is reserved than NUMA nodes 1 have",)


def test_numa_ids_with_gaps_beside_distances_are_said() -> None:
    settings = KubeletSettings(
        topology_manager_policy="best-effort", topology_manager_policy_options={"prefer-closest-numa-nodes": "true"}
    )
    warnings = ("prefer-closest-numa-nodes where NUMA ids have gaps: the kubelet may panic",)
    assert started(machine(0, 2), settings).unmodelled == warnings
    assert started(machine(0, 1), settings).unmodelled == ()


def test_a_machine_without_cpus_ends_the_start_of_the_cpu_manager() -> None:
    settings = KubeletSettings()
    assert start(replace(machine(0), cores=()), settings) == "could not detect number of cpus"
    offline = replace(machine(0), cores=(*machine(0).cores, Core(0, 0, 0)))
    assert start(offline, settings) == "no cpus provided"


def test_reserved_huge_pages_are_no_reserved_memory() -> None:
    settings = KubeletSettings(
        memory_manager_policy="Static", reserved_memory=(MemoryReservation(0, "hugepages-2Mi", 2 << 20),)
    )
    assert start(machine(0), settings) == "[memorymanager] you should specify the system reserved memory"


def test_a_remembered_start_does_not_keep_its_machine_alive() -> None:
    two, settings = machine(0, 1), KubeletSettings(cpu_manager_policy="static", memory_manager_policy="Static")
    assert start(two, settings) is start(two, settings)
    gone = weakref.ref(two)
    del two
    gc.collect()
    assert gone() is None


def test_nodes_that_share_a_machine_and_have_equal_settings_share_one_started_kubelet() -> None:
    state = node_state()
    assert start(state.machine, state.kubelet) is start(state.machine, replace(state.kubelet))
    assert start(state.machine, state.kubelet) is not start(state.machine, replace(state.kubelet, version="v1.30.0"))


def test_a_machine_keeps_few_of_the_kubelets_that_explanations_try() -> None:
    state = node_state()
    for minor in range(3 * MAX_SETTINGS):
        start(state.machine, replace(state.kubelet, version=f"v1.{minor}.0"))
    assert len(state.machine.kept(container_manager._Started)) == MAX_SETTINGS
