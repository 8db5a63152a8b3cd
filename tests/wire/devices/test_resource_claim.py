"""ResourceClaims: the devices that a pod was given, and those that it requests."""

from typing import Any

from topomend.model.devices.claimed_device import ClaimedDevice
from topomend.model.devices.offered_device import DeviceRequest, DeviceToleration, Selector
from topomend.wire.devices.resource_claim import (
    Taken,
    Unhealthy,
    read_claim_names,
    read_claimed_devices,
    read_claims_by_container,
    read_requests,
    read_taken,
    read_unhealthy,
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


def test_a_request_has_its_class_its_number_and_what_it_tolerates() -> None:
    exactly = {
        "deviceClassName": "gpu.example.com",
        "count": 2,
        "selectors": [{"cel": {"expression": 'device.attributes["resource.kubernetes.io"].numaNode == 1'}}],
        "tolerations": [{"key": "broken", "operator": "Exists", "effect": "NoSchedule"}, {"key": "old"}],
        "capacity": {"requests": {"memory": "1Ki"}},
    }
    (request,) = read_requests({"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}})
    assert request == DeviceRequest(
        "gpu",
        "gpu.example.com",
        2,
        (Selector(attributes=(("resource.kubernetes.io/numaNode", 1),)),),
        (DeviceToleration("broken", "Exists", effect="NoSchedule"), DeviceToleration("old")),
        {"memory": 1024 * 1000},
    )


def test_what_only_the_scheduler_can_judge_is_named() -> None:
    def why(request: dict[str, Any], **devices: Any) -> str:
        return read_requests({"devices": {"requests": [{"name": "a"} | request], **devices}})[0].not_judged

    plain = {"exactly": {"deviceClassName": "x"}}
    assert why(plain) == ""
    assert why({"firstAvailable": [{"name": "b", "deviceClassName": "x"}]}) == "it names alternatives"
    assert why({"exactly": {"deviceClassName": "x", "allocationMode": "All"}}) == "it asks for all devices"
    assert "administrator" in why({"exactly": {"deviceClassName": "x", "adminAccess": True}})
    assert why(plain, constraints=[{"matchAttribute": "d/x"}]) == "a constraint binds it"
    assert why(plain, constraints=[{"requests": ["a/b"], "matchAttribute": "d/x"}]) == "a constraint binds it"
    assert why(plain, constraints=[{"requests": ["c"], "matchAttribute": "d/x"}]) == ""


def test_a_device_with_access_for_administrators_is_left_to_others_and_a_shared_one_is_taken_in_part() -> None:
    result = {"request": "a", "driver": "dra.cpu", "pool": "n", "device": "numa0"}
    taken = result | {"consumedCapacity": {"cpu": "4", "other.com/x": "1"}}
    claim = {"status": {"allocation": {"devices": {"results": [taken, result | {"adminAccess": True}]}}}}
    assert list(read_taken(claim)) == [Taken(("dra.cpu", "n", "numa0"), {"dra.cpu/cpu": 4000, "other.com/x": 1000})]
    assert list(read_taken({})) == []


def test_only_unhealthy_devices_of_claims_are_told() -> None:
    resources = [
        {"resourceID": "gpu.example.com/device=gpu-1", "health": "Unhealthy", "message": "too hot"},
        {"resourceID": "gpu.example.com/device=gpu-2", "health": "Unknown"},
        {"resourceID": "gpu.example.com/device=gpu-3", "health": "Healthy"},
    ]
    of_plugin = {"name": "vendor.com/gpu", "resources": [{"resourceID": "g", "health": "Unhealthy"}]}
    statuses = [{"name": "claim:gpu/first", "resources": resources}, of_plugin]
    pod = {"status": {"containerStatuses": [{"name": "main", "allocatedResourcesStatus": statuses}]}}
    assert list(read_unhealthy(pod)) == [Unhealthy("main", "gpu/first", "gpu.example.com/device=gpu-1", "too hot")]
    assert list(read_unhealthy({})) == []
