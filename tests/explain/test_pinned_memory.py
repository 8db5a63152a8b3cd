"""Memory that is free but pinned elsewhere: which NUMA nodes are in the way, and whose end helps."""

from tests.builders import node_state, pod

from topomend.explain.cause import Kind
from topomend.explain.explanation import cause_of
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.replay.admission import admit

NINE = "numa:9 cores:8 memory:8Gi"
WIDER = "max-allowable-numa-nodes=16"


def on_nine(*pods: Pod, policy: str = "restricted", scope: str = "container") -> NodeState:
    return node_state(
        NINE, policy, scope=scope, options=WIDER, memory_manager="Static", reserved_memory="100Mi", pods=pods
    )


def why(state: NodeState, asked: Pod) -> str:
    verdict, _ = admit(state, asked)
    cause = cause_of(verdict, state, asked)
    assert cause.kind is Kind.MEMORY_GROUP, cause
    return cause.text


def test_numa_nodes_with_memory_of_their_own_are_named_where_they_join_no_group() -> None:
    state = on_nine(*(pod(f"q{number}", "cpu=8 memory=1Gi" if number else "cpu=7 memory=1Gi") for number in range(8)))
    text = why(state, pod("p", "cpu=1 memory=9Gi"))
    assert "enough is free in all (free 8Gi on NUMA 8, 7Gi on each of NUMA 1-7, 6.9Gi on NUMA 0)" in text
    assert "NUMA 0,1,2,3,4,5,6,7 hold pinned memory, and a NUMA node that holds pinned memory of its own" in text


def test_only_groups_that_would_have_enough_are_named() -> None:
    state = on_nine(pod("small", "cpu=9 memory=9Gi"), pod("full", "cpu=9 memory=15Gi"))
    full = [pod(f"q{number}", "cpu=1 memory=8Gi") for number in range(4, 9)]
    for each in full:
        verdict, state = admit(state, each)
        assert verdict.admitted, verdict.message
    text = why(state, pod("p", "cpu=1 memory=2Gi"))
    assert "NUMA 0,1 is a group of the Memory Manager" in text
    assert "NUMA 2,3" not in text.partition("but")[2]
    assert text.endswith("waits for ns/small to end")


def test_memory_that_the_pods_own_containers_pinned_is_said_to_be_theirs() -> None:
    state = node_state("sockets:2 cores:4 memory:8Gi", "restricted", memory_manager="Static")
    asked = pod("p", "cpu=5 memory=9Gi", "cpu=1 memory=1Gi")
    assert "its own containers before it have pinned memory" in why(state, asked)
