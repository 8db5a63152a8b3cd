"""ResourceClaims and ResourceSlices: the devices that a pod was given, and where they are."""

from typing import Any

import pytest

from topomend.model.claimed_device import ClaimedDevice
from topomend.wire.document import MalformedObject
from topomend.wire.resource_claim import read_claim_names, read_claimed_devices, read_numa_nodes


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


@pytest.mark.parametrize("attribute", [{"string": "1"}, {"bool": True}])
def test_an_attribute_of_another_type_says_nothing(attribute: Any) -> None:
    assert list(read_numa_nodes(_slice([{"name": "gpu-1", "attributes": {"numaNode": attribute}}]))) == []


def test_a_malformed_slice_is_reported() -> None:
    with pytest.raises(MalformedObject):
        list(read_numa_nodes(_slice([{"name": "gpu-1", "attributes": {"numaNode": {"int": "one"}}}])))


def _slice(devices: list[Any]) -> dict[str, Any]:
    return {"spec": {"driver": "gpu.example.com", "pool": {"name": "node-1"}, "devices": devices}}
