"""Pods, machines and settings that a kubelet refuses or breaks at: each has a verdict, none an exception or no end.

What holds for wild nodes and pods of every kind is sought in test_properties; here each kind stands by its name.
"""

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.replay.nodes import TWO, node, pod, told

from topomend.model.machine import Core, Machine, NUMANode
from topomend.model.node_state import Device, NodeState
from topomend.model.pod import Container, ContainerKind, Pod, Resources
from topomend.model.verdict import Verdict
from topomend.replay.admission import UNCOUNTED, admit
from topomend.wire.document import MalformedObject
from topomend.wire.pod import read_pod

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


def asking(requests: dict[str, int]) -> Pod:
    """A Guaranteed pod of one container; amounts in thousandths."""
    resources = Resources(requests, requests)
    return Pod("d", "p", "p", (Container("a", ContainerKind.APP, resources),), "Guaranteed")


def on_numa_ids(*ids: int, policy: str) -> NodeState:
    machine = Machine(
        tuple(NUMANode(number, 4 << 30) for number in ids),
        tuple(Core(0b1111 << 4 * index, index, number, None) for index, number in enumerate(ids)),
    )
    return replace(node(TWO, policy), machine=machine)


# Huge pages that the machine does not have


@pytest.mark.parametrize("policy", POLICIES)
def test_huge_pages_that_no_numa_node_has_crash_the_memory_manager(policy: str) -> None:
    """It reads the table of the size for its free amount, and there is no table (policy_static.go:getDefaultHint)."""
    state = node(TWO, policy, memory=True)
    verdict, after = admit(state, pod("p", "cpu=1 memory=1Gi hugepages-1Gi=1Gi"))
    assert (verdict.admitted, verdict.reason) == (False, "KubeletWouldCrash")
    assert "hugepages-1Gi" in verdict.message
    assert after is state


def test_huge_pages_that_no_numa_node_has_do_not_matter_without_the_memory_manager() -> None:
    verdict, _ = admit(node(TWO), pod("p", "cpu=1 memory=1Gi hugepages-1Gi=1Gi"))
    assert told(verdict) == "[0] cpus 1"


# NUMA ids that do not fit a mask


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_a_numa_id_over_63_crashes_the_topology_manager(policy: str) -> None:
    for ids in ((0, 64), (64,), (5, 99)):
        verdict, _ = admit(on_numa_ids(*ids, policy=policy), pod("p", "cpu=1 memory=1Gi"))
        assert (verdict.admitted, verdict.reason) == (False, "KubeletWouldCrash")
        assert f"NUMA nodes {ids[-1]} do not fit the kubelet's masks" in verdict.message


def test_a_numa_id_of_63_is_one_as_any_other() -> None:
    verdict, _ = admit(on_numa_ids(0, 63, policy="single-numa-node"), pod("p", "cpu=4 memory=1Gi"))
    assert told(verdict) == "[63] cpus 4-7"


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
    state = node(f"{TWO} device:v.com/gpu@0=1", policy, memory=True)
    verdict, _ = admit(state, asking({"cpu": 1000, "memory": 1 << 40, resource: amount}))
    assert verdict.admitted == (not verdict.reason)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("resource", ["cpu", "memory", "hugepages-2Mi", "v.com/gpu"])
@pytest.mark.parametrize("amount", ["64Ti", "8Ei", "9223372036854775807", "9223372036854775808", "1e30"])
def test_an_overflowing_quantity_has_a_verdict_that_says_it_is_none_to_rely_on(
    policy: str, resource: str, amount: str
) -> None:
    state = node("sockets:2 cores:4 memory:8Gi hugepages-2Mi:8 device:v.com/gpu@0=1", policy, memory=True)
    asked = {"cpu": "1", "memory": "1Gi", resource: amount}
    verdict, _ = admit(state, pod("p", " ".join(f"{name}={text}" for name, text in asked.items())))
    remark = f"how a kubelet counts 64Ti of {resource} and more depends on how it is written"
    assert verdict.unmodelled == (remark,)


def test_the_largest_quantity_that_every_kubelet_counts_alike_is_only_too_much() -> None:
    most = asking({"cpu": 1000, "memory": UNCOUNTED - 1000})
    verdict, _ = admit(node(TWO, memory=True), most)
    assert verdict.unmodelled == ()
    assert "failed to find NUMA nodes to extend the current topology hint" in verdict.message


def test_a_pods_own_overflowing_quantity_is_said_too() -> None:
    asked = pod("p", "cpu=1 memory=1Gi", resources="cpu=2 memory=1e30")
    assert len(admit(node(TWO), asked)[0].unmodelled) == 1


# Devices


def test_a_device_on_an_unknown_numa_node_fits_nowhere() -> None:
    for numa_nodes in ((7,), (-1,), (64,), (7, -1)):
        for policy in POLICIES:
            state = replace(node(TWO, policy), devices=(Device("v.com/gpu", "g", numa_nodes),))
            verdict, _ = admit(state, pod("p", "cpu=1 memory=1Gi v.com/gpu=1"))
            aligned = policy in ("restricted", "single-numa-node")
            assert verdict.reason == ("TopologyAffinityError" if aligned else ""), (numa_nodes, policy)


# Options that exclude each other

PAIRS = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)


@pytest.mark.parametrize("pair", PAIRS, ids=[" and ".join(pair) for pair in PAIRS])
def test_a_forbidden_pair_of_options_ends_the_kubelets_start(pair: tuple[str, str]) -> None:
    options = " ".join(f"{name}=true" for name in pair)
    state = node(TWO, cpu_options=options, gates="CPUManagerPolicyAlphaOptions")
    verdict, after = admit(state, pod("p", "cpu=1 memory=1Gi"))
    assert (verdict.reason, verdict.message) == (
        "KubeletWouldNotStart",
        f"new static policy error: static policy options {pair[0]} and {pair[1]} can not be used at the same time",
    )
    assert after is state


# Wild documents

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
    node,
    st.sampled_from([TWO, "sockets:2 numa:2 cores:2 threads:2 memory:4Gi hugepages-2Mi:64 device:v.com/gpu@0=1,3=1"]),
    st.sampled_from(POLICIES),
    scope=st.sampled_from(["container", "pod", "nowhere"]),
    memory=st.booleans(),
    cpu_options=st.sampled_from(["", *chain.from_iterable((f"{one}=true", f"{other}=1") for one, other in PAIRS)]),
    gates=st.sampled_from(["", "CPUManagerPolicyAlphaOptions PodLevelResourceManagers"]),
    version=st.sampled_from(["v1.30.0", "v1.33.1", "v1.36.3", "v1.37.1"]),
)


@settings(max_examples=300, deadline=None)
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
