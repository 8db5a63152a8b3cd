"""Settings that get a pod admitted where no amount of it is at fault."""

from dataclasses import replace

from tests.builders import node_state, pod
from verify.nearest.counterfactual import RefusedPod
from verify.nearest.remedies import wrong_remedies

from topomend.explain.remedy import Remedy, remedy_of
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.replay.admission import admit

HALF_CORES = "0,4,8,24,12,28"
"""A CPU of a core on NUMA nodes 0 and 1, a whole core on 2 and 3."""

TWO_SMT = "sockets:2 cores:4 threads:2 memory:8Gi"
WIDER = "max-allowable-numa-nodes=16"


def remedies(state: NodeState, asked: Pod) -> Remedy:
    """The remedies of a refused pod. Each gets it admitted when it is carried out."""
    verdict, _ = admit(state, asked)
    assert not verdict.admitted
    remedy = remedy_of(state, asked, verdict)
    assert wrong_remedies(RefusedPod(0, state, asked), remedy) == []
    return remedy


def test_an_option_that_hangs_the_kubelet_is_dropped_or_whole_cores_are_reserved() -> None:
    state = node_state(
        "sockets:4 cores:4 threads:2 memory:32Gi",
        "none",
        cpu_options="distribute-cpus-across-numa=true full-pcpus-only=true",
        reserved_cpus=HALF_CORES,
    )
    remedy = remedies(state, pod("big", "cpu=22 memory=1Gi"))
    assert remedy.words == (
        "would be admitted without the option distribute-cpus-across-numa "
        "or with whole cores reserved, such as CPUs 0,4,8,12,16,20,24,28"
    )
    assert [dict(setting.changes) for setting in remedy.settings] == [
        {"cpuManagerPolicyOptions.distribute-cpus-across-numa": None},
        {"reservedSystemCPUs": "0,4,8,12,16,20,24,28"},
    ]
    assert [(amount.asked, amount.admitted) for amount in remedy.amounts] == [(22, 20)]


def test_an_option_that_crashes_the_kubelet_is_dropped() -> None:
    state = node_state("sockets:2 cores:40 memory:256Gi", "restricted", options="prefer-closest-numa-nodes=true")
    machine = state.machine
    gap = replace(machine.numa_nodes[1], id=8)
    cores = tuple(replace(core, numa_node=8) if core.numa_node == 1 else core for core in machine.cores)
    state = replace(state, machine=replace(machine, numa_nodes=(machine.numa_nodes[0], gap), cores=cores))
    remedy = remedies(state, pod("a", "cpu=4 memory=8Gi"))
    assert remedy.words == "would be admitted without the option prefer-closest-numa-nodes"


def test_whole_cores_help_where_reserved_cpus_are_parts_of_more_cores_than_they_fill() -> None:
    """Four reserved CPUs are parts of four cores, and two cores have as many."""
    state = node_state(TWO_SMT, "none", cpu_options="full-pcpus-only=true", reserved_cpus="0,1,2,3")
    words = remedies(state, pod("p", "cpu=12 memory=1Gi")).words
    assert words.endswith("or with whole cores reserved, such as CPUs 0-1,8-9")
    assert words.startswith("would be admitted with 8 CPUs or without the option full-pcpus-only")


def test_reserved_cpus_are_not_at_fault_where_they_are_whole_cores() -> None:
    state = node_state(TWO_SMT, "none", cpu_options="full-pcpus-only=true", reserved_cpus="0,8")
    assert "reserved" not in remedies(state, pod("p", "cpu=16 memory=1Gi")).words


def test_no_core_is_reserved_of_which_a_container_has_a_cpu() -> None:
    state = node_state(TWO_SMT, "none", reserved_cpus="0,1", pods=[pod("q", "cpu=14 memory=1Gi")])
    state = replace(state, kubelet=replace(state.kubelet, cpu_manager_policy_options={"full-pcpus-only": "true"}))
    assert "reserved" not in remedies(state, pod("p", "cpu=2 memory=1Gi")).words


KINDS = [f"example.com/d{number}" for number in range(4)]
FOUR_KINDS = "numa:8 cores:4 " + " ".join(
    f"device:{kind}@" + ",".join(f"{numa}=1" for numa in range(8)) for kind in KINDS
)
ONE_OF_EACH = " ".join(f"{kind}=1" for kind in KINDS)


def test_too_many_hints_are_fewer_under_another_policy() -> None:
    words = remedies(node_state(FOUR_KINDS, "restricted"), pod("p", f"cpu=2 memory=1Gi {ONE_OF_EACH}")).words
    assert words == "would be admitted with policy single-numa-node"


def test_too_many_hints_are_fewer_without_a_kind_of_devices() -> None:
    words = remedies(node_state(FOUR_KINDS, "best-effort"), pod("p", f"cpu=5 memory=1Gi {ONE_OF_EACH}")).words
    assert words == "would be admitted " + " or ".join(f"without {kind}" for kind in KINDS)


def test_more_numa_nodes_than_a_kubelet_starts_with_are_allowed() -> None:
    state = node_state("sockets:9 cores:2 memory:8Gi", "restricted")
    words = remedies(state, pod("p", "cpu=1 memory=1Gi")).words
    assert words == "would be admitted with the option max-allowable-numa-nodes=9"


def test_an_option_that_no_kubelet_knows_is_dropped() -> None:
    state = node_state("sockets:2 cores:2 memory:8Gi", cpu_options="no-such-option=true")
    assert remedies(state, pod("p", "cpu=1 memory=1Gi")).words == "would be admitted without the option no-such-option"
