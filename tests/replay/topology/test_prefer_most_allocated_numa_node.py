"""Option prefer-most-allocated-numa-node by the text of its KEP: signals, how they combine, when it counts."""

from dataclasses import replace

import pytest
from tests.replay.nodes import TWO, admit_all, node, pod, told

from topomend.model.kubelet import MemoryReservation
from topomend.model.node_state import NodeState
from topomend.replay.admission import admit, start_refusal
from topomend.replay.topology.prefer_most_allocated_numa_node import REMARK, most_allocated, utilization

NAMED = "prefer-most-allocated-numa-node=true"
GATE = "TopologyManagerPolicyAlphaOptions"
GPU_ON_1 = f"{TWO} device:v.com/gpu@1=2"
PINNED_TO_1 = "cpu=1 memory=1Gi v.com/gpu=1"


def packing(shape: str, policy: str = "single-numa-node", **settings: object) -> NodeState:
    return node(shape, policy, **{"options": NAMED, "gates": GATE, **settings})


def reserving(state: NodeState, *megabytes: int) -> NodeState:
    reserved = tuple(MemoryReservation(number, "memory", each << 20) for number, each in enumerate(megabytes))
    return replace(state, kubelet=replace(state.kubelet, reserved_memory=reserved))


def last(state: NodeState, *pods: str) -> str:
    verdicts, _ = admit_all(state, [pod(f"p{number}", text) for number, text in enumerate(pods)])
    return told(verdicts[-1])


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_a_pod_joins_the_one_that_a_device_pinned(scope: str) -> None:
    assert last(node(GPU_ON_1, scope=scope), PINNED_TO_1, "cpu=1 memory=1Gi") == "[0] cpus 1"
    assert last(packing(GPU_ON_1, scope=scope), PINNED_TO_1, "cpu=1 memory=1Gi") == "[1] cpus 5"


def test_the_larger_pod_then_still_fits() -> None:
    pods = (PINNED_TO_1, "cpu=1 memory=1Gi", "cpu=3 memory=1Gi")
    assert last(node(GPU_ON_1), *pods) == "[1] cpus 5-7"
    assert last(packing(GPU_ON_1), *pods) == "[0] cpus 1-3"
    assert last(node(GPU_ON_1), *pods, "cpu=2 memory=1Gi") == "[0] cpus 2-3"
    assert last(packing(GPU_ON_1), *pods, "cpu=2 memory=1Gi") == "[1] cpus 6-7"


@pytest.mark.parametrize("policy", ["best-effort", "restricted"])
def test_other_policies_ignore_it(policy: str) -> None:
    assert last(packing(GPU_ON_1, policy), PINNED_TO_1, "cpu=1 memory=1Gi") == "[0] cpus 1"


def test_equally_full_ones_leave_the_lowest_id() -> None:
    assert last(packing(TWO), "cpu=1 memory=1Gi") == "[0] cpus 1"


def test_reserved_cpus_are_left_out_of_what_a_numa_node_has() -> None:
    """One CPU is held on each: of three unreserved ones on NUMA node 1 that is more than of four on NUMA node 0."""
    devices = f"{TWO} device:v.com/gpu@0=1,1=1"
    pods = (PINNED_TO_1, PINNED_TO_1, "cpu=1 memory=1Gi")
    assert last(packing(devices, reserved="4"), *pods) == "[1] cpus 6"
    assert last(packing(devices, reserved="0"), *pods) == "[0] cpus 2"


def test_memory_alone_decides_where_no_cpus_are_pinned() -> None:
    state = packing(GPU_ON_1, memory=True, cpu_policy="none")
    assert last(state, PINNED_TO_1, "cpu=1 memory=1Gi") == "[1] memory 1024Mi on 1"


def test_reserved_memory_is_left_out_of_what_a_numa_node_has() -> None:
    """One Gi is held on each, of less on NUMA node 1."""
    devices = f"{TWO} device:v.com/gpu@0=1,1=1"
    pods = (PINNED_TO_1, PINNED_TO_1, "cpu=1 memory=1Gi")
    state = packing(devices, memory=True, cpu_policy="none")
    assert last(reserving(state, 100, 1000), *pods) == "[1] memory 1024Mi on 1"
    assert last(reserving(state, 1000, 100), *pods) == "[0] memory 1024Mi on 0"


def test_cpus_and_memory_that_contradict_each_other_leave_the_lowest_id() -> None:
    state = reserving(packing(f"{TWO} device:v.com/gpu@1=2 device:v.com/nic@0=2", memory=True), 512, 512)
    more_cpus_on_1 = "cpu=2 memory=1Gi v.com/gpu=1"
    more_memory_on_0 = "cpu=1 memory=2Gi v.com/nic=1"
    assert last(state, more_cpus_on_1, more_memory_on_0, "cpu=1 memory=1Gi").startswith("[0]")
    assert last(state, more_cpus_on_1, "cpu=1 memory=1Gi v.com/nic=1", "cpu=1 memory=1Gi").startswith("[1]")


def test_without_a_manager_that_pins_nothing_is_decided() -> None:
    state = packing(f"{TWO} device:v.com/gpu@1=1 device:v.com/nic@0=1,1=1", cpu_policy="none")
    assert last(state, "cpu=1 memory=1Gi v.com/gpu=1", "cpu=1 memory=1Gi v.com/nic=1") == "[0] 1 v.com/nic on 0"


def test_init_containers_cpus_count_as_held_when_the_next_container_is_placed() -> None:
    state = packing(f"{TWO} device:v.com/gpu@1=1")
    verdict, _ = admit(state, pod("p", "init cpu=2 memory=1Gi v.com/gpu=1", "cpu=1 memory=1Gi"))
    assert told(verdict).endswith("[1] cpus 4")


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
    verdict, _ = admit(packing(TWO), pod("p", "cpu=1 memory=1Gi"))
    assert verdict.unmodelled == (REMARK,)
    assert admit(node(TWO), pod("p", "cpu=1 memory=1Gi"))[0].unmodelled == ()


def test_a_switch_set_to_false_changes_nothing_but_the_remark() -> None:
    state = packing(GPU_ON_1, options="prefer-most-allocated-numa-node=false")
    verdicts, _ = admit_all(state, [pod("p", PINNED_TO_1), pod("q", "cpu=1 memory=1Gi")])
    assert told(verdicts[1]) == "[0] cpus 1"
    assert verdicts[1].unmodelled == (REMARK,)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (packing(TWO, gates=""), 'unknown Topology Manager Policy option: "prefer-most-allocated-numa-node"'),
        (
            packing(TWO, options="prefer-most-allocated-numa-node=perhaps"),
            (
                'bad value for option "prefer-most-allocated-numa-node": '
                'strconv.ParseBool: parsing "perhaps": invalid syntax'
            ),
        ),
        (
            packing(TWO, options="prefer-most-allocated=true"),
            'unknown Topology Manager Policy option: "prefer-most-allocated"',
        ),
    ],
    ids=["without its gate", "no switch", "another name"],
)
def test_the_kubelet_would_not_start(state: NodeState, why: str) -> None:
    assert start_refusal(state) == why


def test_policy_none_does_not_read_it() -> None:
    state = packing(TWO, "none", options="prefer-most-allocated-numa-node=perhaps")
    assert start_refusal(state) is None
    assert admit(state, pod("p", "cpu=1 memory=1Gi"))[0].unmodelled == ()
