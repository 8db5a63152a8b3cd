"""DeviceClasses as the API has them: the extended resources that they map."""

import pytest

from topomend.wire.device_class import read_mapped_resources
from topomend.wire.document import MalformedObject


def test_a_class_maps_the_resource_that_it_names_and_the_one_of_its_own_name() -> None:
    content = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "vendor.com/gpu"}}
    assert read_mapped_resources(content) == ("deviceclass.resource.kubernetes.io/gpu", "vendor.com/gpu")
    assert read_mapped_resources({"metadata": {"name": "gpu"}, "spec": {}}) == (
        "deviceclass.resource.kubernetes.io/gpu",
    )


def test_a_class_of_a_wrong_shape_is_named_as_such() -> None:
    with pytest.raises(MalformedObject, match="extendedResourceName"):
        read_mapped_resources({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": 1}})
