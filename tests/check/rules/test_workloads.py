"""Pods that look aligned and are not, and pods that wait for long, are named by their codes; sound ones are not."""

from typing import Any

import pytest
from tests.builders import node_state, pod, pod_manifest
from tests.check.cluster import Object, codes, facts_of, findings, node_object, published

from topomend.check.facts import GroupOfPods
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import PodGroup
from topomend.wire.group import FIT_GATE, RELAUNCH_ANNOTATION

EARLIER, JUST_NOW = "2026-01-01T11:00:00Z", "2026-01-01T11:58:00Z"


def running(*containers: str, name: str = "p", namespace: str = "ns") -> Object:
    statuses = [{"name": f"c{index}", "state": {"running": {}}} for index in range(len(containers))]
    metadata: dict[str, Any] = {"namespace": namespace, "uid": name}
    return pod_manifest(name, *containers, node="a", status={"containerStatuses": statuses}, **metadata)


def gated(created: str, *other_gates: str, **metadata: Any) -> Object:
    given = {"namespace": "ns", "uid": "g", "creationTimestamp": created, **metadata}
    return pod_manifest("g", "cpu=2 memory=1Mi", gates=[FIT_GATE, *other_gates], **given)


def seen(state: NodeState, *pods: Object) -> dict[str, list[str]]:
    return codes(facts_of([node_object(state)], [published(state)], pods), "TM3")


@pytest.mark.parametrize(
    "containers",
    [
        ("cpu=2 memory=1Mi",),
        ("cpu=500m memory=1Mi",),
        ("request:cpu=2 memory=1Mi",),
        ("cpu=1 memory=1Mi", "cpu=100m memory=1Mi"),
    ],
)
def test_a_pod_that_is_what_it_looks_has_no_finding(containers: tuple[str, ...]) -> None:
    state = node_state(pods=[pod("p", *containers)])
    assert seen(state, running(*containers)) == {}


def test_a_container_with_whole_cpus_in_a_pod_that_is_not_guaranteed_is_named_with_the_reason() -> None:
    containers = ("cpu=2 memory=1Mi", "request:cpu=100m")
    state = node_state(pods=[pod("p", *containers)])
    facts = facts_of([node_object(state)], [published(state)], [running(*containers)])
    (finding,) = findings(facts, "TM3")
    assert finding.code == "TM301"
    assert "container c0 looks pinned and shares its CPUs: the pod is Burstable, not Guaranteed" in finding.message


def test_a_pod_of_the_clusters_own_is_left_alone() -> None:
    containers = ("cpu=1", "")
    assert seen(node_state(), running(*containers, namespace="kube-system")) == {}


def test_a_container_with_a_device_whose_cpus_roam_is_named() -> None:
    containers = ("cpu=1500m memory=1Mi vendor.com/gpu=1",)
    state = node_state("sockets:2 cores:4 device:vendor.com/gpu@0=1,1=1", pods=[pod("p", *containers)])
    assert seen(state, running(*containers)) == {"TM302": ["p"]}


def test_a_container_that_spans_numa_nodes_though_it_would_fit_one_is_named() -> None:
    def filler(name: str) -> Pod:
        return pod(name, "cpu=2 memory=1Mi")

    state = node_state(policy="best-effort", pods=[filler("f"), filler("g"), pod("p", "cpu=3 memory=1Mi")])
    assert seen(state, running("cpu=3 memory=1Mi")) == {"TM303": ["p"]}
    wide = node_state(policy="best-effort", pods=[pod("p", "cpu=6 memory=1Mi")])
    assert seen(wide, running("cpu=6 memory=1Mi")) == {}


def test_a_pod_that_has_waited_gated_for_long_is_named_and_a_young_one_is_not() -> None:
    assert seen(node_state(), gated(EARLIER)) == {"TM304": ["g"]}
    assert seen(node_state(), gated(JUST_NOW)) == {}
    assert seen(node_state(), gated("no time")) == {}
    assert seen(node_state(), gated(EARLIER, "kueue.x-k8s.io/admission")) == {}, "Kueue has not admitted it yet"


def test_a_group_that_is_not_complete_is_named_with_both_numbers() -> None:
    group = PodGroup("kueue.x-k8s.io", "train", 12)
    groups = (GroupOfPods("ns", group, 12, 3), GroupOfPods("ns", group, None, 3), GroupOfPods("ns", group, 3, 3))
    (finding,) = findings(facts_of(groups=groups), "TM3")
    assert (finding.code, "3 of its 12 pods have come" in finding.message) == ("TM305", True)


@pytest.mark.parametrize("value", ["no", "False", "off"])
def test_an_annotation_that_means_nothing_is_named(value: str) -> None:
    assert seen(node_state(), gated(JUST_NOW, annotations={RELAUNCH_ANNOTATION: value})) == {"TM306": ["g"]}


def test_a_meant_annotation_is_not_named() -> None:
    assert seen(node_state(), gated(JUST_NOW, annotations={RELAUNCH_ANNOTATION: "false"})) == {}
