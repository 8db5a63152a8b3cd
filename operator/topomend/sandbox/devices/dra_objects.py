"""The DeviceClass and the ResourceSlice of a made-up DRA driver, as API objects of ``resource.k8s.io/v1``.

The resource ``vendor.com/gpu`` of a shape has the driver ``gpu.vendor.com``, and a DeviceClass of that name, which also
maps the extended resource ``vendor.com/gpu``. So a pod may claim a device by its class, or request the resource. Who
sends the objects is left to ``cluster`` and ``dra_driver``.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from topomend.model.nodes.node_state import Device

API_VERSION = "resource.k8s.io/v1"
GROUP = f"/apis/{API_VERSION}"

NUMA_NODE = "resource.kubernetes.io/numaNode"
"""The standard attribute (KEP-6072; k8s.io/dynamic-resource-allocation/deviceattribute), an int."""

MAX_DRIVER_NAME, MAX_SLICE_DEVICES = 63, 128
"""The API's own limits (api/resource/v1:DriverNameMaxLength and ResourceSliceMaxDevices)."""


def driver_of(resource: str) -> str:
    """The driver of a shape's resource, which is also the name of its class: gpu.vendor.com of vendor.com/gpu."""
    domain, _, name = resource.partition("/")
    return f"{name}.{domain}"


def device_class(resource: str) -> dict[str, Any]:
    """The class of all devices of the resource, in the whole cluster."""
    driver = driver_of(resource)
    return {
        "apiVersion": API_VERSION,
        "kind": "DeviceClass",
        "metadata": {"name": driver},
        "spec": {
            "extendedResourceName": resource,
            "selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}],
        },
    }


def slice_name(node: str, driver: str) -> str:
    """The name of the node's one ResourceSlice of this driver."""
    return f"{node}-{driver}"


def resource_slice(node: Mapping[str, Any], driver: str, devices: Iterable[Device]) -> dict[str, Any]:
    """All devices of one driver on a node, which is given as its Node object; the slice is deleted with that.

    The pool has the name of the node. A device whose NUMA node is not known has no attribute for it.
    """
    metadata = node["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": metadata["name"], "uid": metadata["uid"], "controller": True}
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceSlice",
        "metadata": {"name": slice_name(metadata["name"], driver), "ownerReferences": [owner]},
        "spec": {
            "driver": driver,
            "nodeName": metadata["name"],
            "pool": {"name": metadata["name"], "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": device.id, "attributes": _attributes(device)} for device in devices],
        },
    }


def _attributes(device: Device) -> dict[str, Any]:
    return {NUMA_NODE: {"int": device.numa_nodes[0]}} if device.numa_nodes else {}
