"""ResourceClaims and ResourceSlices: the devices that a pod was given, and where they are."""

from typing import Any

import pytest

from topomend.model.claimed_device import ClaimedDevice
from topomend.wire.document import MalformedObject
from topomend.wire.resource_claim import (
    read_claim_names,
    read_claimed_devices,
    read_claims_by_container,
    read_numa_nodes,
)


def test_a_pod_s_claims_are_named_in_its_spec_and_in_its_status() -> None:
    pod = {
        "spec": {"resourceClaims": [{"name": "a", "resourceClaimName": "shared"}, {"name": "b"}]},
        "status": {
            "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "train-b-x7k"}, {"name": "c"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "train-extended"},
        },
    }
    assert read_claim_names(pod) == ("shared", "train-b-x7k", "train-extended")
    assert read_claim_names({"spec": {}}) == ()


def test_each_container_has_the_claims_that_it_names_and_those_of_its_extended_resources() -> None:
    pod = {
        "spec": {
            "resourceClaims": [
                {"name": "a", "resourceClaimName": "shared"},
                {"name": "b", "resourceClaimTemplateName": "gpus"},
                {"name": "not-made", "resourceClaimTemplateName": "gpus"},
            ],
            "initContainers": [{"name": "setup", "resources": {"claims": [{"name": "a"}]}}],
            "containers": [
                {"name": "main", "resources": {"claims": [{"name": "a", "request": "nic"}, {"name": "b"}]}},
                {"name": "side", "resources": {"claims": [{"name": "not-made"}]}},
                {"name": "none"},
            ],
        },
        "status": {
            "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "train-b-x7k"}, {"name": "not-made"}],
            "extendedResourceClaimStatus": {
                "resourceClaimName": "train-extended",
                "requestMappings": [{"containerName": "none", "resourceName": "a/b", "requestName": "r-0"}],
            },
        },
    }
    assert read_claims_by_container(pod) == {
        "setup": [("shared", "")],
        "main": [("shared", "nic"), ("train-b-x7k", "")],
        "none": [("train-extended", "r-0")],
    }
    assert read_claims_by_container({"spec": {}}) == {}


def test_the_devices_of_a_claim_are_those_that_the_scheduler_allocated() -> None:
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-1"}
    claim = {"metadata": {"name": "train"}, "status": {"allocation": {"devices": {"results": [result]}}}}
    assert list(read_claimed_devices(claim)) == [ClaimedDevice("train", "gpu", "gpu.example.com", "node-1", "gpu-1")]
    assert list(read_claimed_devices({"metadata": {"name": "train"}})) == []


@pytest.mark.parametrize(
    "attribute", ["resource.kubernetes.io/numaNode", "numaNode", "dra.cpu/numaNodeID", "gpu.example.com/numa"]
)
def test_a_device_s_numa_node_is_an_attribute_of_the_standard_or_of_its_driver(attribute: str) -> None:
    devices = [{"name": "gpu-1", "attributes": {attribute: {"int": 1}, "model": {"string": "x"}}}, {"name": "gpu-2"}]
    content = _slice(devices)
    assert list(read_numa_nodes(content)) == [(("gpu.example.com", "node-1", "gpu-1"), 1)]


def test_the_standard_attribute_comes_before_the_driver_s_own_and_a_list_begins_with_the_device_s_own() -> None:
    attributes = {"numaNode": {"int": 0}, "resource.kubernetes.io/numaNode": {"ints": [1, 0]}, "numa": {"int": 0}}
    content = _slice([{"name": "gpu-1", "attributes": attributes}])
    assert list(read_numa_nodes(content)) == [(("gpu.example.com", "node-1", "gpu-1"), 1)]


@pytest.mark.parametrize(
    "attribute",
    [{"string": "1"}, {"bool": True}, {"int": -1}, {"int": 2**63 - 1}, {"int": -(2**63)}, {"ints": []}],
)
def test_an_attribute_of_another_type_or_of_no_numa_node_says_nothing(attribute: Any) -> None:
    assert list(read_numa_nodes(_slice([{"name": "gpu-1", "attributes": {"numaNode": attribute}}]))) == []


def test_a_malformed_slice_is_reported() -> None:
    with pytest.raises(MalformedObject):
        list(read_numa_nodes(_slice([{"name": "gpu-1", "attributes": {"numaNode": {"int": "one"}}}])))


def _slice(devices: list[Any]) -> dict[str, Any]:
    return {"spec": {"driver": "gpu.example.com", "pool": {"name": "node-1"}, "devices": devices}}
