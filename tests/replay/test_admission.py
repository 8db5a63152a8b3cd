"""What an admission leaves on the node, what its verdict says, and kubelets that do not start."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import TWO_NUMA_NODES, node_state, pod
from tests.replay.verdicts import REFUSED, admit_all, of, verdict_line

from topomend.model.bitmask import parse_id_list
from topomend.model.nodes.node_state import ContainerAllocation, MemoryBlock, NodeState, PodAllocation
from topomend.model.shapes.known_machines import find_machine
from topomend.replay.admission import admit, release, shared_pool, start_refusal
from topomend.replay.fast_path.admission import FastAdmission
from topomend.replay.gates import not_released

GPU = f"{TWO_NUMA_NODES} device:v.com/gpu@0=2,1=2"


# What a node is left with


def test_a_refused_pod_leaves_nothing_behind() -> None:
    state = node_state(GPU, memory_manager="Static")
    verdict, after = admit(state, pod("p", of(3, rest="v.com/gpu=1"), of(3, rest="v.com/gpu=2"), of(3)))
    assert not verdict.admitted
    assert after == state


def test_a_released_pod_leaves_nothing_behind() -> None:
    state = node_state(GPU, "best-effort", memory_manager="Static")
    first, taken = admit(state, pod("p", of(2, rest="v.com/gpu=1")))
    again, retaken = admit(release(taken, "ns", "p"), pod("p", of(2, rest="v.com/gpu=1")))
    assert again == first
    assert retaken == taken
    assert release(taken, "ns", "p").pods == ()


def test_releasing_an_unknown_pod_changes_nothing() -> None:
    state = node_state()
    assert release(state, "ns", "nobody") is state


def test_a_pod_that_holds_something_is_admitted_to_the_same_again() -> None:
    state = node_state(GPU, memory_manager="Static")
    asked = pod("p", of(2, rest="v.com/gpu=1"), of(1))
    first, taken = admit(state, asked)
    again, retaken = admit(taken, asked)
    assert again.containers == first.containers
    assert retaken.pods == taken.pods


def test_a_running_pod_that_is_refused_after_a_restart_loses_everything() -> None:
    state = node_state()
    _, taken = admit(state, pod("p", of(2)))
    verdict, after = admit(taken, pod("p", of(3)))
    assert verdict_line(verdict) == REFUSED
    assert after.pods == ()


def test_a_pod_of_the_same_name_and_another_uid_inherits_nothing() -> None:
    verdicts, _ = admit_all(node_state(), [pod("p", of(3), uid="old"), pod("p", of(3), uid="new")])
    assert [verdict_line(verdict) for verdict in verdicts] == ["[0] cpus 1-3", "[1] cpus 4-6"]


def test_the_shared_pool_is_what_nobody_holds() -> None:
    _, taken = admit(node_state(), pod("p", of(3)))
    assert shared_pool(taken) == parse_id_list("0,4-7")
    _, strict = admit(node_state(cpu_options="strict-cpu-reservation=true"), pod("p", of(3)))
    assert shared_pool(strict) == parse_id_list("4-7")


def holding(state: NodeState, **allocation: object) -> NodeState:
    """The node with one pod, as an agent tells it that cannot see the kubelet's own pool and book."""
    return replace(state, pods=(replace(PodAllocation("ns", "q", "q"), **allocation),))  # type: ignore[arg-type]


def test_what_containers_hold_is_not_in_a_pool_that_nobody_tells() -> None:
    taken = holding(node_state(), containers=(ContainerAllocation("c0", cpus=parse_id_list("1-2")),))
    assert shared_pool(taken) == parse_id_list("0,3-7")
    assert verdict_line(admit(taken, pod("p", of(3)))[0]) == "[1] cpus 4-6"


def test_what_a_pod_holds_as_a_whole_is_not_in_a_pool_that_nobody_tells() -> None:
    taken = holding(
        node_state(), containers=(ContainerAllocation("c0", cpus=parse_id_list("1")),), cpus=parse_id_list("1-2")
    )
    assert shared_pool(taken) == parse_id_list("0,3-7")
    assert verdict_line(admit(taken, pod("p", of(3)))[0]) == "[1] cpus 4-6"


def test_what_a_pod_holds_as_a_whole_is_in_a_book_that_nobody_tells() -> None:
    share, whole = MemoryBlock("memory", 1, 1 << 30), MemoryBlock("memory", 1, 6 << 30)
    taken = holding(
        node_state(memory_manager="Static"), containers=(ContainerAllocation("c0", memory=(share,)),), memory=(whole,)
    )
    verdict, _ = admit(taken, pod("p", of(1, "3Gi")))
    assert verdict_line(verdict) == "[1] cpus 4 memory 3072Mi on 1"


def test_a_running_pod_that_asks_for_less_after_a_restart_is_refused() -> None:
    _, taken = admit(node_state(), pod("p", of(3)))
    verdict, after = admit(taken, pod("p", of(1)))
    assert verdict_line(verdict) == REFUSED
    assert after.pods == ()


def test_a_placement_says_which_containers_are_init_ones() -> None:
    verdict, _ = admit(node_state(), pod("p", f"init {of(1)}", f"sidecar {of(1)}", of(1)))
    assert [container.init for container in verdict.containers] == [True, False, False]


def test_pod_level_memory_is_released_as_it_was_charged() -> None:
    state = node_state(scope="pod", gates="PodLevelResourceManagers", memory_manager="Static")
    _, taken = admit(state, pod("p", "", "", resources="cpu=1 memory=1Gi"))
    assert taken.memory is not None
    assert [numa_node.reserved for numa_node in taken.memory] == [{"memory": 1 << 30}, {}]
    after = release(taken, "ns", "p").memory
    assert after is not None
    assert [numa_node.reserved for numa_node in after] == [{}, {}]


# What a verdict says


def test_an_unknown_version_is_replayed_and_said_to_be_unknown() -> None:
    verdict, _ = admit(node_state(version="v1.99.0"), pod("p", of(3)))
    assert verdict_line(verdict) == "[0] cpus 1-3"
    assert verdict.unmodelled == (not_released("v1.99.0"),)


def test_an_option_that_an_unknown_version_may_know_is_no_certain_refusal() -> None:
    verdict, _ = admit(node_state(version="v1.99.0", options="numa-allocation-strategy=true"), pod("p", of(3)))
    assert verdict_line(verdict).startswith("KubeletWouldNotStart: unknown Topology Manager Policy option")
    assert verdict.unmodelled


# A kubelet that does not start

REFUSALS = [
    ("an unknown policy", node_state(policy="best"), 'unknown policy: "best"'),
    ("an unknown scope", node_state(scope="node"), 'unknown scope: "node"'),
    (
        "options without a policy to take them",
        node_state(cpu_manager="none", cpu_options="full-pcpus-only=true"),
        "new none policy error: None policy: received unsupported options=map[full-pcpus-only:true]",
    ),
]


@pytest.mark.parametrize(("state", "why"), [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS])
def test_the_kubelet_would_not_start_with(state: NodeState, why: str) -> None:
    assert start_refusal(state) == why
    verdict, after = admit(state, pod("p", of(1)))
    assert (verdict.admitted, verdict.reason, verdict.message) == (False, "KubeletWouldNotStart", why)
    assert after is state


@pytest.mark.parametrize(
    ("settings", "container", "hangs"),
    [
        ({"policy": "best-effort", "memory_manager": "Static"}, "cpu=4 memory=1Gi", True),
        ({"policy": "single-numa-node", "memory_manager": "Static"}, "cpu=4 memory=1Gi", True),
        ({"policy": "none", "memory_manager": "Static"}, "cpu=4 memory=1Gi", True),
        ({"policy": "restricted"}, "cpu=4 memory=1Gi", False),
        ({"policy": "restricted"}, "cpu=4 memory=1Gi nvidia.com/gpu=1", False),
        ({"policy": "restricted", "version": "v1.35.5"}, "cpu=4 memory=1Gi nvidia.com/gpu=1", True),
        ({"policy": "none", "version": "v1.35.5"}, "cpu=4 memory=1Gi nvidia.com/gpu=1", False),
    ],
    ids=["memory", "single nodes", "no policy", "two nodes have CPUs", "four have GPUs", "1.35 asks all", "no hints"],
)
def test_a_kubelet_that_makes_all_masks_of_34_numa_nodes_hangs(
    settings: dict[str, Any], container: str, *, hangs: bool
) -> None:
    """Of the CPU Manager those with CPUs count, of the Device Manager since 1.36 those with such a device."""
    machine = find_machine("GB200")
    assert machine is not None
    settings |= {"reserved_memory": "1Gi"} if "memory_manager" in settings else {}
    state = node_state(machine.shape, options="max-allowable-numa-nodes=34", **settings)
    asking = pod("p", container)
    verdict, _ = admit(state, asking)
    assert (verdict.reason, verdict.admitted) == ("KubeletWouldHang" if hangs else "", not hangs)
    assert FastAdmission(asking).admits(state) == verdict.admitted


def test_policy_none_does_not_read_its_options() -> None:
    assert (
        start_refusal(node_state(policy="none", options="nonsense=1 max-allowable-numa-nodes=1", scope="nowhere"))
        is None
    )
