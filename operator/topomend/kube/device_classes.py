"""Which extended resources DeviceClasses map.

Leaves to its callers how often to ask, and what to do where that fails.
"""

from topomend.kube.client import DEVICE_CLASSES, Client
from topomend.wire.device_class import read_mapped_resources


def mapped_resources(client: Client) -> frozenset[str]:
    """The extended resources that a DeviceClass maps. Raises APIError."""
    return frozenset(client.read(DEVICE_CLASSES, read_mapped_resources, cached=True).items)
