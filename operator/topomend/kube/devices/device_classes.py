"""Which extended resources DeviceClasses map.

Leaves to its callers how often to ask, and what to do where that fails.
"""

from collections.abc import Iterable
from typing import Any

from topomend.kube.client import Client
from topomend.kube.resources import DEVICE_CLASSES
from topomend.wire.devices.device_class import read_device_class
from topomend.wire.document import MalformedObject


def mapped_resources(client: Client) -> frozenset[str]:
    """The extended resources that a DeviceClass maps, as far as can be read. Raises APIError."""

    def read(content: Any) -> Iterable[str]:
        try:
            return read_device_class(content).resources
        except MalformedObject:
            return ()

    return frozenset(client.read(DEVICE_CLASSES, read, cached=True).items)
