"""Options of the Topology Manager: what they change, and which end the kubelet's start."""

import pytest
from tests.builders import node_state, pod
from tests.replay.verdicts import Case, of

from topomend.model.nodes.node_state import NodeState
from topomend.replay.admission import start_refusal

CASES = [
    Case(
        "the closest NUMA nodes are preferred",
        node_state(
            "sockets:2 numa:2 cores:2 memory:8Gi",
            "best-effort",
            reserved_cpus="0,2",
            options="prefer-closest-numa-nodes=true",
        ),
        [pod("p", of(4))],
        "[2-3] cpus 4-7",
    ),
    Case(
        "nine NUMA nodes need an option",
        node_state("sockets:9 cores:2 memory:1Gi"),
        [pod("p", of(1))],
        "KubeletWouldNotStart: unsupported on machines with more than 8 NUMA Nodes",
    ),
    Case(
        "eight may be written down", node_state(options="max-allowable-numa-nodes=8"), [pod("p", of(3))], "[0] cpus 1-3"
    ),
    Case(
        "and start with it",
        node_state("sockets:9 cores:2 memory:1Gi", options="max-allowable-numa-nodes=9"),
        [pod("p", of(2))],
        "[1] cpus 2-3",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_kubelet_answers(case: Case) -> None:
    assert case.answer() == case.expected


REFUSALS = [
    (
        "an unknown topology option",
        node_state(options="prefer-most-allocated-numa-node=true"),
        'unknown Topology Manager Policy option: "prefer-most-allocated-numa-node"',
    ),
    (
        "a bad switch",
        node_state(options="prefer-closest-numa-nodes=maybe"),
        'bad value for option "prefer-closest-numa-nodes": strconv.ParseBool: parsing "maybe": invalid syntax',
    ),
    (
        "a limit below eight",
        node_state(options="max-allowable-numa-nodes=4"),
        'the minimum value of "max-allowable-numa-nodes" should not be less than 8',
    ),
    (
        "a limit that is no number",
        node_state(options="max-allowable-numa-nodes=many"),
        (
            'unable to convert policy option to integer "max-allowable-numa-nodes": strconv.Atoi: '
            'parsing "many": invalid syntax'
        ),
    ),
]


@pytest.mark.parametrize(("state", "why"), [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS])
def test_the_kubelet_would_not_start_with(state: NodeState, why: str) -> None:
    assert start_refusal(state) == why
