"""What a kubelet refuses to start with, and what it starts with that replay cannot vouch for."""

from dataclasses import replace

import pytest
from tests.replay.nodes import TWO, node

from topomend.model.kubelet import KubeletSettings, MemoryReservation
from topomend.model.machine import Core, Machine, NUMANode
from topomend.replay.kubelet import StartedKubelet, start

GIB = 1 << 30


def machine(*ids: int, distances: tuple[int, ...] = (10, 20)) -> Machine:
    """NUMA nodes of one CPU and 1 GiB each."""
    return Machine(
        tuple(NUMANode(each, GIB, distances=distances) for each in ids),
        tuple(Core(1 << place, 0, each) for place, each in enumerate(ids)),
    )


def started(machine: Machine, settings: KubeletSettings) -> StartedKubelet:
    kubelet = start(machine, settings)
    assert isinstance(kubelet, StartedKubelet), kubelet
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


def test_numa_ids_beyond_the_masks_are_said() -> None:
    said = ("NUMA nodes 64 do not fit the kubelet's masks",)
    assert started(machine(63, 64), KubeletSettings()).unmodelled == said
    assert started(machine(62, 63), KubeletSettings()).unmodelled == ()
