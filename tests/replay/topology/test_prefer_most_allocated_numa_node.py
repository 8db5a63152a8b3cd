"""Option prefer-most-allocated-numa-node by the text of its KEP: signals, how they combine, when it counts."""

import pytest
from tests.builders import TWO_NUMA_NODES, node_state, pod
from tests.replay.topology.packing import packing_node
from tests.replay.verdicts import admit_all, verdict_line

from topomend.model.nodes.node_state import NodeState
from topomend.replay.admission import admit, start_refusal
from topomend.replay.topology.options import remark
from topomend.replay.topology.prefer_most_allocated_numa_node import OPTION, most_allocated, utilization

GPU_ON_1 = f"{TWO_NUMA_NODES} device:v.com/gpu@1=2"
PINNED_TO_1 = "cpu=1 memory=1Gi v.com/gpu=1"


def last(state: NodeState, *pods: str) -> str:
    verdicts, _ = admit_all(state, [pod(f"p{number}", text) for number, text in enumerate(pods)])
    return verdict_line(verdicts[-1])


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_a_pod_joins_the_one_that_a_device_pinned(scope: str) -> None:
    assert last(node_state(GPU_ON_1, scope=scope), PINNED_TO_1, "cpu=1 memory=1Gi") == "[0] cpus 1"
    assert last(packing_node(GPU_ON_1, scope=scope), PINNED_TO_1, "cpu=1 memory=1Gi") == "[1] cpus 5"


def test_the_larger_pod_then_still_fits() -> None:
    pods = (PINNED_TO_1, "cpu=1 memory=1Gi", "cpu=3 memory=1Gi")
    assert last(node_state(GPU_ON_1), *pods) == "[1] cpus 5-7"
    assert last(packing_node(GPU_ON_1), *pods) == "[0] cpus 1-3"
    assert last(node_state(GPU_ON_1), *pods, "cpu=2 memory=1Gi") == "[0] cpus 2-3"
    assert last(packing_node(GPU_ON_1), *pods, "cpu=2 memory=1Gi") == "[1] cpus 6-7"


@pytest.mark.parametrize("policy", ["best-effort", "restricted"])
def test_other_policies_ignore_it(policy: str) -> None:
    assert last(packing_node(GPU_ON_1, policy), PINNED_TO_1, "cpu=1 memory=1Gi") == "[0] cpus 1"


def test_equally_full_ones_leave_the_lowest_id() -> None:
    assert last(packing_node(TWO_NUMA_NODES), "cpu=1 memory=1Gi") == "[0] cpus 1"


def test_reserved_cpus_are_left_out_of_what_a_numa_node_has() -> None:
    """One CPU is held on each: of three unreserved ones on NUMA node 1 that is more than of four on NUMA node 0."""
    devices = f"{TWO_NUMA_NODES} device:v.com/gpu@0=1,1=1"
    pods = (PINNED_TO_1, PINNED_TO_1, "cpu=1 memory=1Gi")
    assert last(packing_node(devices, reserved_cpus="4"), *pods) == "[1] cpus 6"
    assert last(packing_node(devices, reserved_cpus="0"), *pods) == "[0] cpus 2"


def test_memory_alone_decides_where_no_cpus_are_pinned() -> None:
    state = packing_node(GPU_ON_1, memory_manager="Static", cpu_manager="none")
    assert last(state, PINNED_TO_1, "cpu=1 memory=1Gi") == "[1] memory 1024Mi on 1"


def test_reserved_memory_is_left_out_of_what_a_numa_node_has() -> None:
    """One Gi is held on each, of less on NUMA node 1."""
    devices = f"{TWO_NUMA_NODES} device:v.com/gpu@0=1,1=1"
    pods = (PINNED_TO_1, PINNED_TO_1, "cpu=1 memory=1Gi")
    for reserved, expected in (
        ("100Mi,1000Mi", "[1] memory 1024Mi on 1"),
        ("1000Mi,100Mi", "[0] memory 1024Mi on 0"),
    ):
        state = packing_node(devices, memory_manager="Static", reserved_memory=reserved, cpu_manager="none")
        assert last(state, *pods) == expected


def test_cpus_and_memory_that_contradict_each_other_leave_the_lowest_id() -> None:
    devices = "device:v.com/gpu@1=2 device:v.com/nic@0=2"
    state = packing_node(f"{TWO_NUMA_NODES} {devices}", memory_manager="Static", reserved_memory="512Mi,512Mi")
    more_cpus_on_1 = "cpu=2 memory=1Gi v.com/gpu=1"
    more_memory_on_0 = "cpu=1 memory=2Gi v.com/nic=1"
    assert last(state, more_cpus_on_1, more_memory_on_0, "cpu=1 memory=1Gi").startswith("[0]")
    assert last(state, more_cpus_on_1, "cpu=1 memory=1Gi v.com/nic=1", "cpu=1 memory=1Gi").startswith("[1]")


def test_without_a_manager_that_pins_nothing_is_decided() -> None:
    state = packing_node(f"{TWO_NUMA_NODES} device:v.com/gpu@1=1 device:v.com/nic@0=1,1=1", cpu_manager="none")
    assert last(state, "cpu=1 memory=1Gi v.com/gpu=1", "cpu=1 memory=1Gi v.com/nic=1") == "[0] 1 v.com/nic on 0"


def test_init_containers_cpus_count_as_taken_when_the_next_container_is_placed() -> None:
    state = packing_node(f"{TWO_NUMA_NODES} device:v.com/gpu@1=1")
    verdict, _ = admit(state, pod("p", "init cpu=2 memory=1Gi v.com/gpu=1", "cpu=1 memory=1Gi"))
    assert verdict_line(verdict).endswith("[1] cpus 4")


@pytest.mark.parametrize(
    ("cpu", "memory", "winner"),
    [
        ({0: 50, 1: 50}, {0: 10, 1: 10}, 0),
        ({0: 40, 1: 50}, {0: 10, 1: 10}, 1),
        ({0: 50, 1: 50}, {0: 10, 1: 20}, 1),
        ({0: 40, 1: 50}, {0: 10, 1: 20}, 1),
        ({0: 40, 1: 50}, {0: 20, 1: 10}, 0),
        ({0: 50, 1: 40}, {0: 10, 1: 20}, 0),
        ({0: 50, 1: 40}, {0: 20, 1: 10}, 0),
    ],
    ids=["neither", "cpu only", "memory only", "agree on 1", "disagree", "disagree the other way", "agree on 0"],
)
def test_signals_combine(cpu: dict[int, int], memory: dict[int, int], winner: int) -> None:
    assert most_allocated([0, 1], [cpu, memory]) == winner


def test_winners_are_found_pair_by_pair_from_the_lowest_id_up() -> None:
    """2 beats 0 and 1 does not, although of 1 and 2 alone 1 would stay."""
    cpu, memory = {0: 20, 1: 30, 2: 25}, {0: 20, 1: 10, 2: 20}
    assert most_allocated([0, 1, 2], [cpu, memory]) == 2
    assert most_allocated([1, 2], [cpu, memory]) == 1


@pytest.mark.parametrize(
    ("assigned", "allocatable", "percent"), [(1, 3, 33), (0, 4, 0), (4, 4, 100), (5, 4, 100), (0, 0, 0)]
)
def test_utilization_is_in_whole_percent(assigned: int, allocatable: int, percent: int) -> None:
    assert utilization(assigned, allocatable) == percent


def test_the_verdict_says_that_released_kubelets_refuse_it() -> None:
    verdict, _ = admit(packing_node(TWO_NUMA_NODES), pod("p", "cpu=1 memory=1Gi"))
    assert verdict.unmodelled == (remark(OPTION),)
    assert admit(node_state(), pod("p", "cpu=1 memory=1Gi"))[0].unmodelled == ()


def test_a_switch_set_to_false_changes_nothing_but_the_remark() -> None:
    state = packing_node(GPU_ON_1, options="prefer-most-allocated-numa-node=false")
    verdicts, _ = admit_all(state, [pod("p", PINNED_TO_1), pod("q", "cpu=1 memory=1Gi")])
    assert verdict_line(verdicts[1]) == "[0] cpus 1"
    assert verdicts[1].unmodelled == (remark(OPTION),)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (
            packing_node(TWO_NUMA_NODES, gates=""),
            'unknown Topology Manager Policy option: "prefer-most-allocated-numa-node"',
        ),
        (
            packing_node(TWO_NUMA_NODES, options="prefer-most-allocated-numa-node=perhaps"),
            (
                'bad value for option "prefer-most-allocated-numa-node": '
                'strconv.ParseBool: parsing "perhaps": invalid syntax'
            ),
        ),
        (
            packing_node(TWO_NUMA_NODES, options="prefer-most-allocated=true"),
            'unknown Topology Manager Policy option: "prefer-most-allocated"',
        ),
    ],
    ids=["without its gate", "no switch", "another name"],
)
def test_the_kubelet_would_not_start(state: NodeState, why: str) -> None:
    assert start_refusal(state) == why


def test_policy_none_does_not_read_it() -> None:
    state = packing_node(TWO_NUMA_NODES, "none", options="prefer-most-allocated-numa-node=perhaps")
    assert start_refusal(state) is None
    assert admit(state, pod("p", "cpu=1 memory=1Gi"))[0].unmodelled == ()
