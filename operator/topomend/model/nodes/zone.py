"""A NUMA node as NUMA-aware schedulers read it: the amount of each resource, and the free amount."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ZoneResource:
    """One resource of a NUMA node, in CPUs, bytes or devices.

    ``allocatable`` is the part of ``capacity`` that is not reserved, ``available`` the part of it that is unallocated.
    """

    name: str
    capacity: int
    allocatable: int
    available: int


@dataclass(frozen=True, slots=True)
class Zone:
    """One NUMA node: its id, its distance to each NUMA node by id, and the resources that can be aligned on it.

    ``placement`` encodes the containers on it (``publish/numa_placement.py``); None where nothing is told of them.
    """

    numa_node: int
    distances: Mapping[int, int]
    resources: tuple[ZoneResource, ...]
    placement: str | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """The one NUMA node from which a container has all its exclusive resources."""

    namespace: str
    pod: str
    container: str
    numa_node: int
