"""Options of the CPU Manager that end the kubelet's start."""

from dataclasses import replace

import pytest
from tests.builders import node_state

from topomend.model.machine import Core, Machine, NUMANode
from topomend.model.nodes.node_state import NodeState
from topomend.replay.admission import start_refusal

REFUSALS = [
    (
        "an alpha option without its gate",
        node_state(policy="restricted", cpu_options="align-by-socket=true"),
        (
            "new static policy error: CPU Manager Policy Alpha-level Options not enabled, but "
            'option "align-by-socket" provided'
        ),
    ),
    (
        "an unknown CPU option",
        node_state(cpu_options="turbo=true"),
        'new static policy error: unknown CPU Manager Policy option: "turbo"',
    ),
    (
        "align-by-socket with single-numa-node",
        node_state(cpu_options="align-by-socket=true", gates="CPUManagerPolicyAlphaOptions"),
        (
            "new static policy error: Topolgy manager single-numa-node policy is incompatible "
            "with CPUManager align-by-socket policy option"
        ),
    ),
]


@pytest.mark.parametrize(("state", "why"), [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS])
def test_the_kubelet_would_not_start_with(state: NodeState, why: str) -> None:
    assert start_refusal(state) == why


PAIRS = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)


@pytest.mark.parametrize("pair", PAIRS, ids=[" and ".join(pair) for pair in PAIRS])
def test_a_forbidden_pair_of_options_ends_the_kubelets_start(pair: tuple[str, str]) -> None:
    options = " ".join(f"{name}=true" for name in pair)
    state = node_state(cpu_options=options, gates="CPUManagerPolicyAlphaOptions")
    assert start_refusal(state) == (
        f"new static policy error: static policy options {pair[0]} and {pair[1]} can not be used at the same time"
    )


def test_options_that_exclude_each_other_do_not_where_one_is_off() -> None:
    options = "full-pcpus-only=true distribute-cpus-across-cores=false"
    assert start_refusal(node_state(cpu_options=options, gates="CPUManagerPolicyAlphaOptions")) is None


def test_a_beta_option_needs_its_gate_where_that_is_off() -> None:
    state = node_state(cpu_options="distribute-cpus-across-numa=true")
    disabled = replace(state.kubelet, feature_gates={"CPUManagerPolicyBetaOptions": False})
    assert start_refusal(replace(state, kubelet=disabled)) == (
        "new static policy error: CPU Manager Policy Beta-level Options not enabled, "
        'but option "distribute-cpus-across-numa" provided'
    )


@pytest.mark.parametrize(("numa_nodes", "starts"), [(1, False), (2, True)])
def test_align_by_socket_needs_a_numa_node_for_each_socket(numa_nodes: int, starts: bool) -> None:
    state = node_state(policy="restricted", cpu_options="align-by-socket=true", gates="CPUManagerPolicyAlphaOptions")
    two_sockets = Machine(
        tuple(NUMANode(number, 1 << 30) for number in range(numa_nodes)),
        tuple(Core(1 << cpu, socket=cpu, numa_node=min(cpu, numa_nodes - 1)) for cpu in range(2)),
    )
    why = (
        "new static policy error: "
        "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
    )
    assert start_refusal(replace(state, machine=two_sockets)) == (None if starts else why)
