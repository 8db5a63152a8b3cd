import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import kubelet_settings, pod_allocation

from topomend.discover.allocations import Allocations
from topomend.discover.assemble import Discovery, assemble
from topomend.discover.host import Host
from topomend.discover.kubelet_config import KubeletConfig
from topomend.discover.kubelet_settings import FLAGS_UNSEEN
from topomend.discover.state_files import StateFiles
from topomend.model.bitmask import format_id_list, mask_of
from topomend.model.machine import HugePages, Machine
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node_state import (
    ContainerAllocation,
    Device,
    MemoryBlock,
    NUMANodeMemory,
    PodAllocation,
)
from topomend.model.shapes.shape import parse_shape
from topomend.replay.container_manager import start
from topomend.replay.startup.state.restore import CPU_STATE, MEMORY_STATE

GIB = 1 << 30
MACHINE = parse_shape("sockets:1 numa:2 cores:4 memory:8Gi").machine()
STATIC = kubelet_settings("none", memory_manager="Static", reserved_memory="1Gi")
ALLOCATABLE = MACHINE.cpus & ~1


def discovered(
    allocations: Allocations | None = None, settings: KubeletSettings = STATIC, host: Host | None = None, **config: Any
) -> Discovery:
    allocations = allocations or Allocations(allocatable_cpus=ALLOCATABLE)
    return assemble("n1", host or Host(MACHINE), KubeletConfig(settings, **config), allocations)


def condition(discovery: Discovery, kind: str) -> tuple[str, str, str]:
    return next(
        (condition.status, condition.reason, condition.message)
        for condition in discovery.conditions
        if condition.type == kind
    )


def holder(name: str, *cpus: int) -> ContainerAllocation:
    return ContainerAllocation(name, cpus=mask_of(cpus))


def test_a_node_is_ready_when_every_part_is_known() -> None:
    discovery = discovered()
    assert {part.type: (part.status, part.reason) for part in discovery.conditions} == {
        "Ready": ("True", "Ready"),
        "HostDiscovered": ("True", "Discovered"),
        "KubeletConfigRead": ("True", "Read"),
        "AllocationsRead": ("True", "Read"),
    }
    assert discovery.summary.status == discovery.conditions[0].message


def test_a_node_is_not_ready_for_the_first_part_that_is_missing_and_says_all_of_them() -> None:
    discovery = discovered(
        Allocations(reason="PodResourcesUnavailable", problem="no answer"),
        KubeletSettings(),
        reason="Invalid",
        problems=("cpuManagerPolicy is wrong",),
    )
    assert condition(discovery, "Ready") == ("False", "Invalid", "cpuManagerPolicy is wrong; no answer")


def test_free_cpus_and_memory_are_counted_by_node() -> None:
    allocations = Allocations(
        pods=(pod_allocation("p", "1-2", memory=[MemoryBlock("memory", 0b1, 3 * GIB)]),),
        devices=(Device("v.com/gpu", "0", (0,)), Device("v.com/gpu", "1", (1,), healthy=False)),
        allocatable_cpus=ALLOCATABLE,
        memory=(
            NUMANodeMemory(0, 1, mask_of([0]), {"memory": 3 * GIB}),
            NUMANodeMemory(1, 0, mask_of([1])),
        ),
    )
    summary = discovered(allocations).summary
    assert (summary.cpus_free, summary.memory_free, summary.devices) == ("1,4", "4,8", 1)


def test_without_static_managers_there_is_nothing_to_count() -> None:
    summary = discovered(Allocations(), KubeletSettings()).summary
    assert (summary.cpus_free, summary.memory_free) == ("", "")


def test_reserved_cpus_are_those_that_the_kubelet_does_not_offer() -> None:
    settings = replace(STATIC, reserved_cpus=None, reserved_cpu_millis=1500)
    discovery = discovered(Allocations(allocatable_cpus=MACHINE.cpus & ~mask_of([0, 4])), settings)
    assert discovery.state.kubelet.reserved_cpus == mask_of([0, 4])
    assert condition(discovery, "Ready")[0] == "True"


def test_reserved_cpus_are_left_to_the_rule_where_nobody_tells_them() -> None:
    settings = replace(STATIC, reserved_cpus=None, reserved_cpu_millis=1500)
    discovery = discovered(Allocations(reason="PodResourcesUnavailable", problem="no answer"), settings)
    assert discovery.state.kubelet.reserved_cpus is None
    assert discovery.summary.cpus_free == "2,4"


def test_reserved_cpus_other_than_the_configured_ones_are_a_contradiction() -> None:
    discovery = discovered(Allocations(allocatable_cpus=MACHINE.cpus & ~mask_of([0, 1])))
    status, reason, message = condition(discovery, "KubeletConfigRead")
    assert (status, reason) == ("False", "Contradicted")
    assert "reservedSystemCPUs is 0, but the kubelet reserves 0-1" in message


SIBLINGS = parse_shape("sockets:1 numa:2 cores:4 threads:2 memory:8Gi").machine()
"""CPU 8 is the second thread of CPU 0's core."""

TWO_CPUS = replace(STATIC, reserved_cpus=None, reserved_cpu_millis=1500)


@pytest.mark.parametrize(
    ("started_without", "offline_now", "words"),
    [
        ([], [8], "amount to 2 CPUs, but the kubelet cannot allocate 1 of this machine's (0)"),
        ([], [0, 8], "cannot allocate 0 of this machine's (none)"),
        ([], [3], "can allocate CPUs 3, which this machine does not have"),
        (range(8, 16), [], "cannot allocate 10 of this machine's (0-1,8-15)"),
    ],
    ids=["a reserved CPU goes", "all reserved CPUs go", "another CPU goes", "CPUs come"],
)
@pytest.mark.parametrize("files", [False, True], ids=["pod-resources", "state files too"])
def test_cpus_that_came_or_went_since_the_kubelet_started_leave_the_node_unknown(
    started_without: Sequence[int], offline_now: Sequence[int], words: str, files: bool
) -> None:
    counted = _without_cpus(SIBLINGS, started_without)
    kubelet = start(counted, TWO_CPUS)
    assert not isinstance(kubelet, str)
    assert kubelet.cpu is not None
    allocations = Allocations(
        allocatable_cpus=counted.cpus & ~kubelet.cpu.reserved, cpu_pool=counted.cpus if files else None
    )
    assert condition(discovered(allocations, TWO_CPUS, Host(counted)), "Ready")[0] == "True"
    status, reason, message = condition(
        discovered(allocations, TWO_CPUS, Host(_without_cpus(SIBLINGS, offline_now))), "Ready"
    )
    assert (status, reason) == ("False", "Contradicted")
    assert words in message
    assert "the machine's CPUs have changed since the kubelet started: restart the kubelet" in message


def test_another_amount_than_the_files_is_none_where_flags_that_cannot_be_seen_may_reserve_it() -> None:
    allocations = Allocations(allocatable_cpus=MACHINE.cpus & ~mask_of([0]))
    assert condition(discovered(allocations, TWO_CPUS), "Ready")[0] == "False"
    assert condition(discovered(allocations, TWO_CPUS, remarks=(FLAGS_UNSEEN,)), "Ready")[0] == "True"


def test_a_shared_pool_with_a_cpu_that_went_is_a_contradiction_also_where_the_reserved_ones_are_listed() -> None:
    allocations = Allocations(allocatable_cpus=ALLOCATABLE, cpu_pool=MACHINE.cpus | 1 << 8)
    status, reason, message = condition(discovered(allocations), "AllocationsRead")
    assert (status, reason) == ("False", "Contradicted")
    assert "cpu_manager_state has CPUs 8, which this machine does not have" in message


@pytest.mark.parametrize(("millis", "cpus"), [(1, 1), (1000, 1), (1001, 2), (2000, 2)])
def test_a_part_of_a_cpu_is_reserved_as_a_whole_one(millis: int, cpus: int) -> None:
    settings = replace(TWO_CPUS, reserved_cpu_millis=millis)
    allocations = Allocations(allocatable_cpus=MACHINE.cpus & ~mask_of(range(cpus)))
    assert condition(discovered(allocations, settings), "Ready")[0] == "True"


def _without_cpus(machine: Machine, cpus: Sequence[int]) -> Machine:
    gone = mask_of(cpus)
    cores = (replace(core, threads=core.threads & ~gone) for core in machine.cores)
    return replace(machine, cores=tuple(core for core in cores if core.threads), offline=gone)


def test_a_policy_other_than_the_configured_one_is_a_contradiction() -> None:
    allocations = Allocations(allocatable_cpus=ALLOCATABLE, policies={CPU_STATE: "none", MEMORY_STATE: "Static"})
    assert (
        "cpu_manager_state is of policy none, but the configuration says static"
        in condition(discovered(allocations), "Ready")[2]
    )


def test_cpus_given_out_exclusively_contradict_a_configuration_without_a_policy() -> None:
    """Without the state files this alone shows that a configuration is not the running kubelet's own."""
    status, reason, message = condition(discovered(settings=KubeletSettings()), "KubeletConfigRead")
    assert (status, reason) == ("False", "Contradicted")
    assert "the kubelet allocates exclusive CPUs, but cpuManagerPolicy is none" in message
    assert condition(discovered(Allocations(), KubeletSettings()), "KubeletConfigRead")[0] == "True"


def test_cpus_that_the_machine_does_not_have_are_a_contradiction() -> None:
    allocations = Allocations(allocatable_cpus=mask_of(range(1, 10)))
    assert "can allocate CPUs 8-9, which this machine does not have" in condition(discovered(allocations), "Ready")[2]


def test_reserved_cpus_that_do_not_exist_are_a_contradiction_under_any_policy() -> None:
    for settings in (KubeletSettings(reserved_cpus=mask_of([0, 99])), replace(STATIC, reserved_cpus=mask_of([0, 99]))):
        status, reason, message = condition(discovered(Allocations(), settings), "KubeletConfigRead")
        assert (status, reason) == ("False", "Contradicted")
        words = f"reserved-cpus: 0,99 is not a subset of online-cpus: {format_id_list(MACHINE.cpus)}"
        assert f"would not start on this machine: {words}" in message


@pytest.mark.parametrize(
    ("allocations", "words"),
    [
        ({"pods": (pod_allocation("p", "1,99"),)}, "pod ns/p holds CPUs 99, which this machine does not have"),
        ({"pods": (pod_allocation("p", "0-1"),)}, "pod ns/p holds CPUs 0, which are reserved"),
        (
            {"pods": (pod_allocation("p", "1-2"), pod_allocation("q", "2"))},
            "pod ns/q holds CPUs 2, which another pod holds",
        ),
        (
            {"pods": (pod_allocation("p", "1-2"),), "cpu_pool": mask_of([0, 2, 3, 4, 5, 6, 7])},
            "pod ns/p holds CPUs 2, which are in the shared pool of cpu_manager_state",
        ),
        (
            {"pods": (PodAllocation("d", "p", containers=(holder("a", 1, 2), holder("b", 2, 3))),)},
            "pod d/p holds CPUs 2 in two containers",
        ),
        (
            {"pods": (PodAllocation("d", "p", memory=(MemoryBlock("memory", mask_of([0, 7]), GIB),)),)},
            "pod d/p holds memory of NUMA nodes 7, which this machine does not have",
        ),
        (
            {"memory": (NUMANodeMemory(0, 0, 1), NUMANodeMemory(1, 0, 2), NUMANodeMemory(2, 0, 4))},
            "memory_manager_state is of NUMA nodes 0-2, but this machine has 0-1",
        ),
    ],
)
def test_what_cannot_be_held_on_this_machine_is_a_contradiction(allocations: dict[str, Any], words: str) -> None:
    discovery = discovered(Allocations(allocatable_cpus=ALLOCATABLE, **allocations))
    assert condition(discovery, "AllocationsRead") == ("False", "Contradicted", words)
    assert condition(discovery, "Ready")[0] == "False"


UNEVEN = replace(MACHINE, cores=(replace(MACHINE.cores[0], threads=0b100000001), *MACHINE.cores[1:]))
"""The first core has two threads, CPUs 0 and 8."""


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ((pod_allocation("p", "0,8"),), "pod ns/p holds CPUs 0, which are reserved"),
        (
            (pod_allocation("p", "1-2"), pod_allocation("q", "2")),
            "pod ns/q holds CPUs 2, which another pod holds",
        ),
    ],
)
def test_what_a_kubelet_does_on_cores_of_different_sizes_is_a_remark(
    pods: tuple[PodAllocation, ...], words: str
) -> None:
    allocations = Allocations(pods=pods, allocatable_cpus=UNEVEN.cpus & ~1)
    discovery = discovered(allocations, host=Host(UNEVEN))
    status, reason, message = condition(discovery, "AllocationsRead")
    assert (status, reason) == ("True", "Read")
    assert message.startswith(f"{words}; on this machine its kubelet counts cores as free that are not")
    assert condition(discovery, "Ready")[:2] == ("True", "Ready")
    assert words in discovery.summary.status


def saved(pool: str) -> StateFiles:
    content = json.dumps({"policyName": "static", "defaultCpuSet": pool, "checksum": 0}).encode()
    return StateFiles("/var/lib/kubelet", {CPU_STATE: content})


def test_a_file_with_which_the_kubelet_would_not_start_again_leaves_what_it_has_allocated_known() -> None:
    allocations = Allocations(allocatable_cpus=ALLOCATABLE, cpu_pool=MACHINE.cpus & ~0x80, files=saved("0-6"))
    discovery = discovered(allocations)
    words = 'current set of available CPUs "0-7" doesn\'t match with CPUs in state "0-6"'
    for kind in ("AllocationsRead", "Ready"):
        status, reason, message = condition(discovery, kind)
        assert (status, reason) == ("True", "WouldNotStartAgain")
        assert words in message
        assert "drain the node, stop the kubelet, delete /var/lib/kubelet/cpu_manager_state" in message
    assert discovery.state.cpu_pool == MACHINE.cpus & ~0x80, "a CPU that is nowhere is nobody's"


def test_what_a_restart_would_find_is_told_of_a_kubelet_that_does_not_answer() -> None:
    discovery = discovered(Allocations(reason="PodResourcesUnavailable", problem="no answer", files=saved("0-6")))
    status, reason, message = condition(discovery, "AllocationsRead")
    assert (status, reason) == ("False", "PodResourcesUnavailable")
    assert message.startswith("no answer; after a restart the kubelet would not start: start cpu manager error: ")
    assert condition(discovery, "Ready")[2] == message


def test_a_restart_is_judged_by_the_file_that_a_kubelet_would_then_read() -> None:
    allocations = Allocations(allocatable_cpus=ALLOCATABLE, files=saved("0-7"))
    assert condition(discovered(allocations), "Ready")[1] == "Ready"
    other = replace(STATIC, cpu_manager_policy="none")
    message = condition(discovered(allocations, source="FileContradicted", after_restart=other), "Ready")[2]
    assert 'configured policy "none" differs from state checkpoint policy "static"' in message


def test_a_configuration_that_is_not_known_says_nothing_of_a_restart() -> None:
    allocations = Allocations(allocatable_cpus=ALLOCATABLE, files=saved("0-6"))
    unread = discovered(allocations, reason="NotGiven", problems=("no file",))
    assert condition(unread, "AllocationsRead")[:2] == ("True", "Read")


def test_containers_of_one_pod_may_hold_the_same_cpus() -> None:
    """An init container's go to the others, and those of a pod are shared by its containers."""
    containers = (
        ContainerAllocation("i", init=True, cpus=mask_of([1, 2])),
        ContainerAllocation("c", cpus=mask_of([2])),
    )
    both = PodAllocation("default", "p", "u", containers, cpus=mask_of([1, 2]))
    assert condition(discovered(Allocations(pods=(both,), allocatable_cpus=ALLOCATABLE)), "Ready")[0] == "True"


def test_a_configuration_with_which_no_kubelet_starts_is_a_contradiction() -> None:
    settings = replace(STATIC, topology_manager_policy="restricted", topology_manager_policy_options={"new": "1"})
    message = condition(discovered(settings=settings), "KubeletConfigRead")[2]
    assert 'would not start on this machine: unknown Topology Manager Policy option: "new"' in message


def test_memory_is_what_the_kubelet_counted_when_it_started() -> None:
    allocations = Allocations(
        allocatable_cpus=ALLOCATABLE, memory_totals={(0, "memory"): 7 * GIB, (1, "memory"): 8 * GIB}
    )
    discovery = discovered(allocations)
    assert [node.memory for node in discovery.state.machine.numa_nodes] == [7 * GIB, 8 * GIB]
    status, _, message = condition(discovery, "HostDiscovered")
    assert status == "True"
    assert "NUMA node 0 has 8Gi of memory, the kubelet counted 7Gi at its start" in message


def test_without_state_files_memory_is_what_the_kubelet_can_give_and_what_it_reserves_or_gives_as_huge_pages() -> None:
    machine = parse_shape("sockets:1 numa:2 cores:4 memory:8Gi hugepages-2Mi:16").machine()
    pages = 16 * (2 << 20)
    given = {(0, "memory"): 7 * GIB - pages, (1, "memory"): 8 * GIB - pages}
    given |= {(node, "hugepages-2Mi"): pages for node in (0, 1)}
    allocations = Allocations(allocatable_cpus=ALLOCATABLE, allocatable_memory=given)
    assert discovered(allocations, host=Host(machine)).state.machine == machine
    first, second = machine.numa_nodes
    more = replace(first, memory=first.memory + GIB), replace(second, hugepages=(HugePages(2 << 20, 20),))
    discovery = discovered(allocations, host=Host(replace(machine, numa_nodes=more)))
    assert discovery.state.machine == machine
    message = condition(discovery, "HostDiscovered")[2]
    assert "NUMA node 0 has 9Gi of memory, the kubelet counted 8Gi at its start" in message
    assert "NUMA node 1 has 40Mi of hugepages-2Mi, the kubelet counted 32Mi at its start" in message


def test_what_ended_pods_still_hold_is_given_back_before_it_is_shown() -> None:
    stale = pod_allocation("gone", "5", memory=[MemoryBlock("memory", 0b1, 2 * GIB)], uid="gone", namespace="")
    allocations = Allocations(
        pods=(pod_allocation("p", "1", memory=[MemoryBlock("memory", 0b1, GIB)], uid="u1"),),
        stale=(stale,),
        allocatable_cpus=ALLOCATABLE,
        memory=(
            NUMANodeMemory(0, 2, mask_of([0]), {"memory": 3 * GIB}),
            NUMANodeMemory(1, 0, mask_of([1])),
        ),
        cpu_pool=mask_of([0, 2, 3, 4, 6, 7]),
    )
    discovery = discovered(allocations)
    assert [allocation.name for allocation in discovery.state.pods] == ["p"]
    assert discovery.state.memory is not None
    assert discovery.state.memory[0] == NUMANodeMemory(0, 1, mask_of([0]), {"memory": GIB})
    assert discovery.state.cpu_pool is None
    assert discovery.summary.cpus_free == "2,4"


def test_a_shared_pool_other_than_what_nobody_holds_is_carried() -> None:
    allocations = Allocations(allocatable_cpus=ALLOCATABLE, cpu_pool=mask_of([0, 1]))
    assert discovered(allocations).state.cpu_pool == mask_of([0, 1])


def test_what_the_sources_in_use_cannot_tell_is_said_and_the_node_is_ready() -> None:
    allocations = Allocations(allocatable_cpus=ALLOCATABLE, remark="allocations of init containers are unknown")
    assert condition(discovered(allocations), "AllocationsRead") == ("True", "PodResourcesOnly", allocations.remark)
    assert condition(discovered(allocations), "Ready")[0] == "True"
    assert allocations.remark in condition(discovered(allocations), "Ready")[2]


@pytest.mark.parametrize("count", [1, 6, 7, 500])
def test_however_much_is_wrong_the_message_stays_within_its_column(count: int) -> None:
    problems = tuple(f"/sys/file-{number} is missing: something follows from that" for number in range(count))
    message = condition(discovered(host=Host(MACHINE, problems)), "Ready")[2]
    assert len(message) <= 1000
    assert (f"and {count - 6} more" in message) == (count > 6)
