"""Pods, machines and settings that a kubelet refuses or breaks at: each has a verdict, none an exception or no end.

What holds for wild nodes and pods of every kind is sought in test_properties; here each kind stands by its name.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import TWO_NUMA_NODES, node_state, pod
from tests.replay.verdicts import POLICIES
from tests.seeds import cases

from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Container, ContainerKind, Pod, Resources
from topomend.model.verdict import Verdict
from topomend.replay.admission import UNCOUNTED, admit
from topomend.wire.document import MalformedObject
from topomend.wire.pods.pod import read_pod


def asking(requests: dict[str, int]) -> Pod:
    """A Guaranteed pod of one container; amounts in thousandths."""
    resources = Resources(requests, requests)
    return Pod("ns", "p", "p", (Container("a", ContainerKind.APP, resources),), "Guaranteed")


# Quantities


def test_a_negative_quantity_is_refused_where_it_is_read() -> None:
    """The API server lets none through (validation.go:ValidateResourceQuantityValue)."""
    container = {"name": "a", "resources": {"limits": {"cpu": "-1"}}}
    with pytest.raises(MalformedObject, match="a quantity that is not negative"):
        read_pod({"metadata": {"name": "p"}, "spec": {"containers": [container]}})


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("resource", ["cpu", "memory", "hugepages-2Mi", "v.com/gpu"])
@pytest.mark.parametrize("amount", [-1, -1000, -(1 << 70)])
def test_a_negative_quantity_that_comes_through_has_a_verdict(policy: str, resource: str, amount: int) -> None:
    state = node_state(f"{TWO_NUMA_NODES} device:v.com/gpu@0=1", policy, memory_manager="Static")
    verdict, _ = admit(state, asking({"cpu": 1000, "memory": 1 << 40, resource: amount}))
    assert verdict.admitted == (not verdict.reason)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("resource", ["cpu", "memory", "hugepages-2Mi", "v.com/gpu"])
@pytest.mark.parametrize("amount", ["64Ti", "8Ei", "9223372036854775807", "9223372036854775808", "1e30"])
def test_an_overflowing_quantity_has_a_verdict_that_says_it_is_none_to_rely_on(
    policy: str, resource: str, amount: str
) -> None:
    state = node_state(
        "sockets:2 cores:4 memory:8Gi hugepages-2Mi:8 device:v.com/gpu@0=1", policy, memory_manager="Static"
    )
    asked = {"cpu": "1", "memory": "1Gi", resource: amount}
    verdict, _ = admit(state, pod("p", " ".join(f"{name}={text}" for name, text in asked.items())))
    remark = f"how a kubelet counts 64Ti of {resource} and more depends on how it is written"
    assert verdict.unmodelled == (remark,)


def test_the_largest_quantity_that_every_kubelet_counts_alike_is_only_too_much() -> None:
    most = asking({"cpu": 1000, "memory": UNCOUNTED - 1000})
    verdict, _ = admit(node_state(memory_manager="Static"), most)
    assert verdict.unmodelled == ()
    assert "failed to find NUMA nodes to extend the current topology hint" in verdict.message


def test_a_pods_own_overflowing_quantity_is_said_too() -> None:
    asked = pod("p", "cpu=1 memory=1Gi", resources="cpu=2 memory=1e30")
    assert len(admit(node_state(), asked)[0].unmodelled) == 1


# Wild documents

CPU_OPTIONS = (
    "full-pcpus-only=true",
    "distribute-cpus-across-numa=1",
    "distribute-cpus-across-cores=true",
    "prefer-align-cpus-by-uncorecache=1",
)

texts = st.sampled_from(["0", "1", "2", "500m", "-1", "1e30", "8Ei", "", "many", "1.5Gi", "-0", "0.1n", "9" * 30])
resource_names = st.sampled_from(["cpu", "memory", "hugepages-2Mi", "hugepages-1Gi", "v.com/gpu", "pods", ""])
amounts = st.dictionaries(resource_names, texts | st.integers() | st.none() | st.floats(allow_nan=False), max_size=3)
documents: st.SearchStrategy[Any] = (
    st.fixed_dictionaries({"limits": amounts, "requests": amounts}) | st.none() | st.just({"limits": []})
)
wild_containers = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["a", "b", ""]), "resources": documents},
        optional={"restartPolicy": st.sampled_from(["Always", "Never", 1])},
    ),
    max_size=3,
)
wild_nodes = st.builds(
    node_state,
    st.sampled_from(
        [TWO_NUMA_NODES, "sockets:2 numa:2 cores:2 threads:2 memory:4Gi hugepages-2Mi:64 device:v.com/gpu@0=1,3=1"]
    ),
    st.sampled_from(POLICIES),
    scope=st.sampled_from(["container", "pod", "nowhere"]),
    memory_manager=st.sampled_from(["None", "Static"]),
    cpu_options=st.lists(st.sampled_from(CPU_OPTIONS), max_size=2, unique=True).map(" ".join),
    gates=st.sampled_from(["", "CPUManagerPolicyAlphaOptions PodLevelResourceManagers"]),
    version=st.sampled_from(["v1.30.0", "v1.33.1", "v1.36.3", "v1.37.1"]),
)


@settings(max_examples=cases(100, 300), deadline=None)
@given(wild_nodes, wild_containers, wild_containers, documents)
def test_a_wild_pod_document_is_malformed_or_has_a_verdict(
    state: NodeState, containers: list[object], initial: list[object], whole: object
) -> None:
    spec = {"containers": containers, "initContainers": initial, "resources": whole}
    try:
        asked = read_pod({"metadata": {"name": "p"}, "spec": spec})
    except MalformedObject:
        return
    verdict, _ = admit(state, asked)
    assert isinstance(verdict, Verdict)
    assert verdict.admitted == (not verdict.reason)
