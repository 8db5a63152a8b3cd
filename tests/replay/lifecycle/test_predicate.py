"""The kubelet's fit check. Random nodes and pods meet the kubelet's own in tests/verify/oracle/test_fit.py."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import pod

from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node import Node, Taint
from topomend.model.pods.bound_pod import BoundPod, HostPort
from topomend.model.pods.scheduling import Placement
from topomend.model.quantity import parse_quantity
from topomend.replay.errors import Rejection
from topomend.replay.gates import Gates, read_gates
from topomend.replay.lifecycle.predicate import check

NEWEST = read_gates(KubeletSettings())


def node(**amounts: str) -> Node:
    given = {"cpu": "4", "memory": "8Gi", "pods": "110"} | {
        name.replace("_", "-"): text for name, text in amounts.items()
    }
    return Node("n1", allocatable={name: parse_quantity(text) for name, text in given.items()})


def bound(*containers: str, name: str = "p", **facts: Any) -> BoundPod:
    return BoundPod(pod(name, *containers), **facts)


def refusal(given: BoundPod, on: Node, *others: BoundPod, gates: Gates = NEWEST, **held: int) -> Rejection | None:
    return check(given, on, others, gates, held or None).rejection


def test_the_first_resource_of_which_too_little_is_left_is_named() -> None:
    rejected = refusal(bound("cpu=3 memory=9Gi"), node(), bound("cpu=1500m memory=1Gi", name="o"))
    assert rejected == Rejection(
        "OutOfcpu", "Node didn't have enough resource: cpu, requested: 3000, used: 1500, capacity: 4000"
    )


def test_the_number_of_pods_comes_before_all() -> None:
    rejected = refusal(bound("cpu=30 memory=1Gi"), node(pods="1"), bound(name="o"))
    assert rejected is not None
    assert (rejected.reason, rejected.message[-37:]) == ("OutOfpods", "pods, requested: 1, used: 1, capacity: 1"[-37:])


def test_memory_counts_in_whole_bytes_rounded_up() -> None:
    assert refusal(bound("request:memory=8589934591500m"), node()) is None
    assert refusal(bound("request:memory=8589934592001m"), node()) is not None


def test_storage_of_a_node_without_any_is_not_enough() -> None:
    rejected = refusal(bound("request:ephemeral-storage=1"), node())
    assert rejected is not None
    assert rejected.reason == "OutOfephemeral-storage"
    assert refusal(bound("request:ephemeral-storage=1"), node(ephemeral_storage="1Gi")) is None


def test_an_extended_resource_that_the_node_lacks_altogether_does_not_count() -> None:
    asking = bound("cluster.io/licence=2")
    assert refusal(asking, node()) is None
    with_one = replace(node(), allocatable={**node().allocatable, "cluster.io/licence": 1000})
    assert refusal(asking, with_one) is not None


def test_before_1_31_init_containers_must_find_it() -> None:
    asking, old = bound("init cluster.io/licence=1", ""), read_gates(KubeletSettings("v1.30.14"))
    assert refusal(asking, node()) is None
    assert refusal(asking, node(), gates=old) is not None


def test_devices_that_are_allocated_already_count_as_there() -> None:
    asking = bound("vendor.com/gpu=2")
    one = replace(node(), allocatable={**node().allocatable, "vendor.com/gpu": 1000})
    assert refusal(asking, one) is not None
    assert check(asking, one, (), NEWEST, {"vendor.com/gpu": 2}).rejection is None


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (bound("", placement=Placement(node_selector={"pool": "a"})), "NodeAffinity"),
        (bound("", node="n2"), "NodeName"),
        (bound("", host_ports=(HostPort(80),)), "NodePorts"),
        (bound("", os="windows"), "PodOSNotSupported"),
        (bound("", os_label="windows"), "PodOSSelectorNodeLabelDoesNotMatch"),
        (bound("", strict_groups=True), "SupplementalGroupsPolicyNotSupported"),
    ],
)
def test_what_has_nothing_to_do_with_resources_is_named_after_its_check(given: BoundPod, reason: str) -> None:
    rejected = refusal(given, node(), bound("", name="o", host_ports=(HostPort(80, "10.0.0.1"),)))
    assert rejected is not None
    assert rejected.reason == reason


def test_ports_collide_only_on_the_same_address_and_protocol() -> None:
    taken = bound("", name="o", host_ports=(HostPort(80, "10.0.0.1"),))
    assert refusal(bound("", host_ports=(HostPort(80, "10.0.0.2"),)), node(), taken) is None
    assert refusal(bound("", host_ports=(HostPort(80, "", "UDP"),)), node(), taken) is None
    assert refusal(bound("", host_ports=(HostPort(80, "10.0.0.1"),)), node(), taken) is not None


def test_ports_of_sidecars_count_since_1_34() -> None:
    taken = bound("", name="o", host_ports=(HostPort(80, sidecar=True),))
    asking, old = bound("", host_ports=(HostPort(80),)), read_gates(KubeletSettings("v1.33.5"))
    assert refusal(asking, node(), taken) is not None
    assert refusal(asking, node(), taken, gates=old) is None


def test_only_taints_that_evict_count_and_not_for_static_pods() -> None:
    tainted = replace(node(), taints=(Taint("gone", "NoExecute"), Taint("other", "NoSchedule")))
    rejected = refusal(bound(""), tainted)
    assert rejected == Rejection(
        "TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
    )
    assert refusal(bound("", static=True), tainted) is None


def test_a_kubelet_1_30_does_not_describe_what_failed() -> None:
    rejected = refusal(bound("", node="n2"), node(), gates=read_gates(KubeletSettings("v1.30.14")))
    assert rejected == Rejection("NodeName", "Predicate NodeName failed")


def test_a_critical_pod_is_refused_for_other_reasons_first() -> None:
    rejected = refusal(bound("cpu=9", node="n2", critical=True), node())
    assert rejected is not None
    assert rejected.reason == "NodeName"
