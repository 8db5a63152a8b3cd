"""Where the devices are that drivers publish for claims, as their ResourceSlices say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from topomend.cli.numa.cluster.cluster import Cluster
from topomend.kube.errors import APIError
from topomend.kube.resources import RESOURCE_SLICES
from topomend.model.devices.claimed_device import DeviceKey
from topomend.wire.devices.resource_slice import read_numa_nodes
from topomend.wire.document import MalformedObject


@dataclass(frozen=True)
class DevicePlaces:
    """The NUMA nodes of devices, as their ResourceSlices have them, and why none is known; empty where they are."""

    numa_nodes: Mapping[DeviceKey, int] = field(default_factory=dict)
    problem: str = ""

    def numa_node(self, driver: str, pool: str, device: str) -> int | None:
        """The NUMA node of a device; None where its driver does not say."""
        return self.numa_nodes.get((driver, pool, device))


def device_places(cluster: Cluster) -> DevicePlaces:
    """Where the devices of all drivers are, as far as the user may read that."""
    try:
        return DevicePlaces(dict(cluster.client.read(RESOURCE_SLICES, _numa_nodes, cached=True).items))
    except APIError as error:
        return DevicePlaces(problem=f"on which NUMA nodes the devices of claims are is unknown: {error}")


def _numa_nodes(content: dict[str, Any]) -> tuple[tuple[DeviceKey, int], ...]:
    """Nothing of a slice that cannot be read: of its devices alone the place is unknown."""
    try:
        return tuple(read_numa_nodes(content))
    except MalformedObject:
        return ()
