"""The examples of KEP "Prefer most allocated NUMA node", each by the name that its text gives it.

The KEP lists five suites of unit tests, scenarios end to end, and the figures of its motivation; its formula and its
rules of combination are tried further in test_prefer_most_allocated_numa_node.
"""

import pytest
from tests.builders import TWO_NUMA_NODES, node_state, pod
from tests.replay.topology.packing import OPTION, packing_node
from tests.replay.verdicts import admit_all, verdict_line

from topomend.model.nodes.node_state import NodeState
from topomend.replay.admission import start_refusal
from topomend.replay.topology.prefer_most_allocated_numa_node import most_allocated

ON_EACH = f"{TWO_NUMA_NODES} device:v.com/gpu@1=4 device:v.com/nic@0=4"
"""Two NUMA nodes; a GPU pins a pod to NUMA node 1, an adapter to NUMA node 0."""

FREE = "cpu=1 memory=64Mi"
"""A pod that fits either NUMA node."""


def winner(state: NodeState, *pods: str) -> str:
    """Where the last pod stands, as ``[0]``."""
    verdicts, _ = admit_all(state, [pod(f"p{number}", text) for number, text in enumerate(pods)])
    return verdict_line(verdicts[-1]).split()[0]


# "CPU signal scoring"


def test_kep_cpu_signal_equal_utilization_is_undecided() -> None:
    """One CPU of four is held on each, none reserved there: Narrowest decides."""
    state = packing_node(ON_EACH, reserved_cpus="0,4")
    assert winner(state, "cpu=1 memory=64Mi v.com/gpu=1", "cpu=1 memory=64Mi v.com/nic=1", FREE) == "[0]"


def test_kep_cpu_signal_higher_utilization_prefers_that_numa_node() -> None:
    assert winner(packing_node(ON_EACH), "cpu=1 memory=64Mi v.com/gpu=1", FREE) == "[1]"


def test_kep_cpu_signal_of_a_policy_that_is_not_static_is_undecided() -> None:
    """Two CPUs are asked for on NUMA node 1, but nobody counts them; memory is held alike on both."""
    others = ("cpu=2 memory=64Mi v.com/gpu=1", "cpu=1 memory=64Mi v.com/nic=1")
    assert winner(memory_node("512Mi,512Mi"), *others, FREE) == "[0]"
    both = packing_node(ON_EACH, memory_manager="Static", reserved_memory="512Mi,512Mi", reserved_cpus="0,4")
    assert winner(both, *others, FREE) == "[1]"


def test_kep_cpu_signal_asymmetric_reserved_cpus_change_the_outcome_of_equal_counts() -> None:
    """One CPU is held on each; the reserved ones make it more of NUMA node 1's, or of NUMA node 0's."""
    others = ("cpu=1 memory=64Mi v.com/gpu=1", "cpu=1 memory=64Mi v.com/nic=1")
    assert winner(packing_node(ON_EACH, reserved_cpus="0,4-5"), *others, FREE) == "[1]"
    assert winner(packing_node(ON_EACH, reserved_cpus="0-1,4"), *others, FREE) == "[0]"


# "Memory signal scoring"


def memory_node(reserved: str) -> NodeState:
    return packing_node(ON_EACH, memory_manager="Static", reserved_memory=reserved, cpu_manager="none")


def test_kep_memory_signal_equal_utilization_is_undecided() -> None:
    others = ("cpu=1 memory=1Gi v.com/gpu=1", "cpu=1 memory=1Gi v.com/nic=1")
    assert winner(memory_node("512Mi,512Mi"), *others, FREE) == "[0]"


def test_kep_memory_signal_higher_utilization_prefers_that_numa_node() -> None:
    assert winner(memory_node("512Mi,512Mi"), "cpu=1 memory=1Gi v.com/gpu=1", FREE) == "[1]"


def test_kep_memory_signal_of_a_policy_that_is_not_static_is_undecided() -> None:
    """4Gi are asked for on NUMA node 1, but nobody counts them; CPUs are held alike on both."""
    others = ("cpu=1 memory=4Gi v.com/gpu=1", "cpu=1 memory=64Mi v.com/nic=1")
    assert winner(packing_node(ON_EACH, reserved_cpus="0,4"), *others, FREE) == "[0]"
    both = packing_node(ON_EACH, memory_manager="Static", reserved_memory="512Mi,512Mi", reserved_cpus="0,4")
    assert winner(both, *others, FREE) == "[1]"


def test_kep_memory_signal_asymmetric_reserved_memory_changes_the_outcome_of_equal_bytes() -> None:
    others = ("cpu=1 memory=1Gi v.com/gpu=1", "cpu=1 memory=1Gi v.com/nic=1")
    assert winner(memory_node("100Mi,2000Mi"), *others, FREE) == "[1]"
    assert winner(memory_node("2000Mi,100Mi"), *others, FREE) == "[0]"


# "Aggregator combine rules"

UNDECIDED, FOR_0, FOR_1 = {0: 50, 1: 50}, {0: 60, 1: 50}, {0: 50, 1: 60}


@pytest.mark.parametrize(
    ("cpu", "memory", "numa_node"),
    [
        (UNDECIDED, UNDECIDED, 0),
        (FOR_1, UNDECIDED, 1),
        (UNDECIDED, FOR_1, 1),
        (FOR_1, FOR_1, 1),
        (FOR_1, FOR_0, 0),
        (FOR_0, FOR_1, 0),
    ],
    ids=["both undecided", "CPU-only", "memory-only", "agree", "disagree, fallback", "disagree, fallback either way"],
)
def test_kep_aggregator_combine_rules(cpu: dict[int, int], memory: dict[int, int], numa_node: int) -> None:
    assert most_allocated([0, 1], [cpu, memory]) == numa_node


# "Topology Manager merge"


def test_kep_merge_the_tie_breaker_overrides_the_default() -> None:
    pinned = "cpu=1 memory=64Mi v.com/gpu=1"
    assert winner(node_state(ON_EACH), pinned, FREE) == "[0]"
    assert winner(packing_node(ON_EACH), pinned, FREE) == "[1]"


def test_kep_merge_an_absent_tie_breaker_falls_back_to_narrowest() -> None:
    """Neither manager pins anything, so that neither gives a signal."""
    state = packing_node(ON_EACH, cpu_manager="none")
    assert winner(state, "cpu=1 memory=64Mi v.com/gpu=2", "cpu=1 memory=64Mi v.com/nic=1") == "[0]"


@pytest.mark.parametrize("policy", ["best-effort", "restricted"])
def test_kep_merge_other_policies_ignore_it(policy: str) -> None:
    assert winner(packing_node(ON_EACH, policy=policy), "cpu=1 memory=64Mi v.com/gpu=1", FREE) == "[0]"


# "Policy option gating"


def test_kep_gating_the_option_is_accepted_only_with_the_alpha_gate() -> None:
    assert start_refusal(packing_node(ON_EACH)) is None
    assert start_refusal(packing_node(ON_EACH, gates="")) == f'unknown Topology Manager Policy option: "{OPTION}"'


@pytest.mark.parametrize("version", ["v1.30.14", "v1.33.13", "v1.36.3", "v1.37.1"])
def test_kep_gating_holds_for_every_version(version: str) -> None:
    assert start_refusal(packing_node(ON_EACH, version=version)) is None
    assert start_refusal(packing_node(ON_EACH, version=version, gates="")) is not None


# End to end: "baseline vs option", "one NUMA already holds an exclusive / device-bound pod", the two figures


def test_kep_end_to_end_ordered_admission_without_devices() -> None:
    """The first pod meets a tie and takes NUMA node 0, and each further one joins it while it is the fuller one."""
    ordered = ("cpu=1 memory=64Mi", "cpu=1 memory=64Mi", "cpu=1 memory=64Mi", "cpu=1 memory=64Mi")
    for count in (1, 2, 3):
        assert winner(packing_node(TWO_NUMA_NODES), *ordered[:count]) == "[0]"
    assert winner(packing_node(TWO_NUMA_NODES), *ordered) == "[1]"


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_kep_end_to_end_beside_a_device_bound_pod_the_option_changes_which_numa_node_wins(scope: str) -> None:
    bound = "cpu=1 memory=64Mi v.com/gpu=1"
    assert winner(node_state(ON_EACH, scope=scope), bound, FREE) == "[0]"
    assert winner(packing_node(ON_EACH, scope=scope), bound, FREE) == "[1]"


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_kep_figures_the_large_pod_fits_only_where_use_was_concentrated(scope: str) -> None:
    """Pod B is bound to NUMA node 1 by its device; today pod C takes NUMA node 0, and pod D's four CPUs fit nowhere."""
    pods = ("cpu=2 memory=64Mi v.com/gpu=1", "cpu=1 memory=64Mi", "cpu=4 memory=64Mi")
    shape = "sockets:2 cores:5 memory:8Gi device:v.com/gpu@1=1"
    assert winner(node_state(shape, scope=scope), *pods) == "TopologyAffinityError:"
    assert winner(packing_node(shape, scope=scope), *pods) == "[0]"
