"""What a kubelet refuses to start with, and what it starts with that replay cannot vouch for."""

import gc
import weakref
from dataclasses import replace

import pytest
from tests.replay.nodes import TWO, node

from topomend.model.kubelet import KubeletSettings, MemoryReservation
from topomend.model.machine import Core, Machine, NUMANode
from topomend.replay.container_manager import ContainerManager, start

GIB = 1 << 30


def machine(*ids: int, distances: tuple[int, ...] = (10, 20)) -> Machine:
    """NUMA nodes of one CPU and 1 GiB each."""
    return Machine(
        tuple(NUMANode(each, GIB, distances=distances) for each in ids),
        tuple(Core(1 << place, 0, each) for place, each in enumerate(ids)),
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
    state = node(TWO)
    assert start(state.machine, replace(state.kubelet, **wrong)) == why  # type: ignore[arg-type]


def test_a_kubelet_that_replay_follows_leaves_nothing_unsaid() -> None:
    state = node(TWO, "restricted", memory=True, options="prefer-closest-numa-nodes=true")
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
    said = ("prefer-closest-numa-nodes where NUMA ids have gaps: the kubelet may panic",)
    assert started(machine(0, 2), settings).unmodelled == said
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


def test_a_beta_option_needs_its_gate_where_that_is_off() -> None:
    state = node(TWO, cpu_options="distribute-cpus-across-numa=true")
    disabled = replace(state.kubelet, feature_gates={"CPUManagerPolicyBetaOptions": False})
    assert start(state.machine, disabled) == (
        "new static policy error: CPU Manager Policy Beta-level Options not enabled, "
        'but option "distribute-cpus-across-numa" provided'
    )


def test_options_that_exclude_each_other_do_not_where_one_is_off() -> None:
    state = node(
        TWO,
        cpu_options="full-pcpus-only=true distribute-cpus-across-cores=false",
        gates="CPUManagerPolicyAlphaOptions",
    )
    assert started(state.machine, state.kubelet).cpu is not None


def test_a_remembered_start_does_not_keep_its_machine_alive() -> None:
    two, settings = machine(0, 1), KubeletSettings(cpu_manager_policy="static", memory_manager_policy="Static")
    assert start(two, settings) is start(two, settings)
    gone = weakref.ref(two)
    del two
    gc.collect()
    assert gone() is None


def test_nodes_with_equal_machines_and_settings_share_one_started_kubelet() -> None:
    state = node(TWO)
    assert start(state.machine, state.kubelet) is start(replace(state.machine), replace(state.kubelet))
    assert start(state.machine, state.kubelet) is not start(state.machine, replace(state.kubelet, version="v1.30.0"))
