"""A shape has every field that is asked for where lists are read by it: an object without the others means the same."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.asked_fields import Asked, left_out
from tests.builders import node_state, node_topology_object, pod, pod_manifest
from tests.wire.pods.test_pod_usage import VARIANTS

from topomend.cache.topology_reader import TopologyReader
from topomend.wire.document import MalformedObject
from topomend.wire.node import read_node
from topomend.wire.pods.pod_usage import UsageReader, read_usage
from topomend.wire.shapes import AdmittingTopology, BoundPod, ChosenNode

NOW = datetime(2026, 11, 28, tzinfo=UTC)


def decoded(content: dict[str, Any], shape: Any) -> Any:
    return msgspec.json.decode(json.dumps(content), type=shape)


@pytest.mark.parametrize("content", VARIANTS)
def test_what_a_pod_takes_is_read_of_its_shape(content: dict[str, Any]) -> None:
    seen = set[str]()
    usage = read_usage(Asked(content, seen))
    assert ".spec.containers.resources" in seen
    assert left_out(seen, BoundPod) == set()
    assert UsageReader().read(decoded(content, BoundPod)) == usage


def test_what_is_not_asked_for_is_not_decoded() -> None:
    content = pod_manifest("p", "cpu=1", managedFields=[{"manager": "kubelet"}], spec={"dnsPolicy": "Default"})
    shaped = decoded(content, BoundPod)
    assert (shaped["metadata"].keys(), shaped["spec"].keys()) == ({"name"}, {"containers"})
    assert shaped["spec"]["containers"][0].keys() == {"name", "resources"}


NODE = {
    "metadata": {"name": "n", "uid": "u", "labels": {"zone": "a"}, "resourceVersion": "7"},
    "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}], "unschedulable": True},
    "status": {
        "conditions": [{"type": "Ready", "status": "True", "message": "kubelet is posting ready status"}],
        "allocatable": {"cpu": "4"},
        "capacity": {"cpu": "8"},
        "features": {"supplementalGroupsPolicy": True},
        "images": [{"names": ["registry.example/image"]}],
    },
}
NODES = {
    "whole": NODE,
    "with little": {"metadata": {"name": "n"}, "spec": None, "status": {"conditions": None}},
    "malformed": NODE | {"spec": {"taints": [{"effect": "NoSchedule"}]}},
}


@pytest.mark.parametrize("content", NODES.values(), ids=NODES)
def test_a_node_is_read_of_its_shape(content: dict[str, Any]) -> None:
    seen = set[str]()
    whole = node_of(Asked(content, seen))
    assert ".metadata.name" in seen
    assert left_out(seen, ChosenNode) == set()
    shaped = decoded(content, ChosenNode)
    assert "images" not in shaped["status"]
    assert node_of(shaped) == whole == node_of(content)


def node_of(content: dict[str, Any]) -> object:
    try:
        return read_node(content)
    except MalformedObject as error:
        return str(error)


PCI = [{"address": "0000:00:00.0", "class": "060400", "vendorID": "15b3", "deviceID": "1017"}]
BUSY = node_state("sockets:2 numa:2 cores:4 memory:8Gi", pods=[pod("p", "cpu=2 memory=1Gi")], memory_manager="Static")
TOPOLOGIES = {
    "of a busy node": node_topology_object(BUSY, heartbeatTime="2026-11-28T00:00:00Z", claims=[{"name": "c"}]),
    "malformed": node_topology_object(BUSY, kubelet={"version": 3}),
    "of no machine": node_topology_object(BUSY, machine=None),
    "of no status": node_topology_object(BUSY) | {"status": {}},
    "of an unready agent": node_topology_object(BUSY, conditions=[{"type": "Ready", "status": "False"}]),
}


@pytest.mark.parametrize("content", TOPOLOGIES.values(), ids=TOPOLOGIES)
def test_a_publication_is_read_of_its_shape(content: dict[str, Any]) -> None:
    if machine := content["status"].get("machine"):
        content["status"]["machine"] = machine | {"pciDevices": PCI}
    seen = set[str]()
    whole = outcome(Asked(content, seen))
    assert left_out(seen, AdmittingTopology) == set()
    shaped = decoded(content, AdmittingTopology)
    assert "pciDevices" not in (shaped["status"].get("machine") or {})
    assert outcome(shaped) == whole == outcome(content)


def outcome(content: dict[str, Any]) -> object:
    try:
        return TopologyReader().published(content, NOW)
    except ValueError as error:
        return str(error)
