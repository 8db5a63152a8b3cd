"""DeviceClasses as the API has them: the extended resources that they map."""

import pytest

from topomend.wire.devices.device_class import read_device_class
from topomend.wire.document import MalformedObject


def test_a_class_maps_the_resource_that_it_names_and_the_one_of_its_own_name() -> None:
    content = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "vendor.com/gpu"}}
    assert read_device_class(content).resources == ("deviceclass.resource.kubernetes.io/gpu", "vendor.com/gpu")
    without = read_device_class({"metadata": {"name": "gpu"}, "spec": {}})
    assert (without.resources, without.problem) == (("deviceclass.resource.kubernetes.io/gpu",), "")


def test_a_class_of_a_wrong_shape_says_why_and_what_of_it_can_be_read() -> None:
    of_nothing = read_device_class({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": 1}})
    assert of_nothing.resources == ("deviceclass.resource.kubernetes.io/gpu",)
    assert of_nothing.problem.startswith("DeviceClass gpu cannot be read: spec.extendedResourceName: 1 where")
    spec = {"extendedResourceName": "vendor.com/gpu", "selectors": 1}
    of_resource = read_device_class({"metadata": {"name": "gpu"}, "spec": spec})
    assert of_resource.resources == ("deviceclass.resource.kubernetes.io/gpu", "vendor.com/gpu")
    assert of_resource.problem.startswith("DeviceClass gpu cannot be read: spec.selectors: 1 where")


def test_a_class_without_a_name_is_none() -> None:
    with pytest.raises(MalformedObject, match=r"metadata\.name"):
        read_device_class({"metadata": {}, "spec": {}})
