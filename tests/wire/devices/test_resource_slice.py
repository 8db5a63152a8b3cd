"""ResourceSlices and DeviceTaintRules: which devices there are, and where."""

from typing import Any

import pytest

from topomend.model.devices.offered_device import DeviceCapacity, DeviceTaint
from topomend.wire.devices.resource_slice import offered, read_numa_nodes, read_slice, read_taint_rule, tainted
from topomend.wire.document import MalformedObject


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


def test_names_have_a_domain_whether_or_not_the_driver_wrote_it() -> None:
    attributes = {"model": {"string": "x"}, "gpu.example.com/rev": {"int": 2}, "other.com/ok": {"bool": True}}
    policy = {"default": "1", "validRange": {"min": "1", "step": "1", "max": "4"}}
    capacity = {"memory": {"value": "8"}, "gpu.example.com/cores": {"value": "8", "requestPolicy": policy}}
    (device,) = read_slice(_slice([{"name": "gpu-1", "attributes": attributes, "capacity": capacity}])).devices
    assert device.attributes == {"gpu.example.com/model": "x", "gpu.example.com/rev": 2, "other.com/ok": True}
    assert device.capacity == {
        "gpu.example.com/memory": DeviceCapacity(8000),
        "gpu.example.com/cores": DeviceCapacity(8000, 1000, 1000, 1000, 4000),
    }


def test_a_device_is_on_the_node_of_its_slice_on_its_own_or_on_every_one() -> None:
    plain = {"name": "gpu-1"}
    assert _only(plain, nodeName="node-1").node == "node-1"
    assert _only(plain, allNodes=True).node == ""
    assert _only(plain | {"nodeName": "node-2"}, perDeviceNodeSelection=True).node == "node-2"
    assert (
        _only(plain, nodeSelector={"nodeSelectorTerms": []}).not_judged == "a node selector says where its devices are"
    )
    assert _only(plain | {"consumesCounters": [{"counterSet": "a"}]}).not_judged


def test_a_pool_counts_once_it_is_complete_and_in_its_newest_generation_alone() -> None:
    def part(generation: int, name: str, slices: int = 1) -> Any:
        content = _slice([{"name": name}])
        content["spec"]["pool"] |= {"generation": generation, "resourceSliceCount": slices}
        return read_slice(content)

    assert [device.name for device in offered([part(1, "old"), part(2, "new")])] == ["new"]
    assert [device.name for device in offered([part(2, "a", 2), part(2, "b", 2)])] == ["a", "b"]
    assert list(offered([part(1, "old"), part(2, "a", 2)])) == []


def test_a_device_has_the_taints_of_its_driver_and_of_the_rules_that_select_it() -> None:
    taint = {"key": "broken", "effect": "NoExecute"}
    device = _only({"name": "gpu-1", "taints": [{"key": "old", "value": "yes", "effect": "NoSchedule"}]})
    (rule,) = read_taint_rule({"spec": {"deviceSelector": {"driver": "gpu.example.com"}, "taint": taint}})
    (other,) = read_taint_rule({"spec": {"deviceSelector": {"device": "gpu-2"}, "taint": taint}})
    assert list(read_taint_rule({"spec": {"taint": taint}})) == []
    assert tainted(device, [rule, other]).taints == (
        DeviceTaint("old", "yes", "NoSchedule"),
        DeviceTaint("broken", "", "NoExecute"),
    )
    assert tainted(device, [other]) is device


def _only(device: dict[str, Any], **spec: Any) -> Any:
    content = _slice([device])
    content["spec"] |= spec
    (read,) = read_slice(content).devices
    return read


def _slice(devices: list[Any]) -> dict[str, Any]:
    return {"spec": {"driver": "gpu.example.com", "pool": {"name": "node-1"}, "devices": devices}}
