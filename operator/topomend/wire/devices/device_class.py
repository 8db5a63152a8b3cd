"""Read resource.k8s.io/v1 DeviceClasses: which devices they select, and which extended resources claims provide."""

from dataclasses import dataclass
from typing import Any

from topomend.model.devices.offered_device import Selectors
from topomend.wire.devices.device_selector import read_selectors
from topomend.wire.document import Document, MalformedObject, unreadable

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
"""With a DeviceClass's name, the extended resource that it always maps
(k8s.io/api/resource/v1:ResourceDeviceClassPrefix)."""


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A class of devices: its selectors, and the extended resources that it maps (KEP-5004).

    ``problem`` says in words why it cannot be read; empty where it can. Then nothing is known of its selectors.
    """

    name: str
    selectors: Selectors
    resources: tuple[str, ...]
    problem: str = ""


def read_device_class(content: Any) -> DeviceClass:
    """A DeviceClass object, with what can be read of it. Raises MalformedObject for one without a name."""
    document = Document(content)
    name, spec = document["metadata"]["name"].text(), document["spec"]
    resources: tuple[str, ...] = (f"{IMPLICIT_PREFIX}{name}",)
    try:
        named = spec["extendedResourceName"].text("")
        resources += (named,) if named else ()
        return DeviceClass(name, read_selectors(spec), resources)
    except MalformedObject as error:
        return DeviceClass(name, (), resources, unreadable("DeviceClass", content, error))
