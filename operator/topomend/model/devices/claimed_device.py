"""Devices that ResourceClaims provide (dynamic resource allocation, KEP-4381)."""

from typing import NamedTuple

DeviceKey = tuple[str, str, str]
"""A driver, a pool and a device."""

CPU_DRIVER = "dra.cpu"
"""The driver whose devices are CPUs (dra-driver-cpu): a container that has some does not share the kubelet's pool."""


class ClaimedDevice(NamedTuple):
    """``device`` of ``pool``, which ``driver`` published, given to the ``request`` of the claim of this name.

    ``numa_node`` is None where the driver does not say.
    """

    claim: str
    request: str
    driver: str
    pool: str
    device: str
    numa_node: int | None = None


class ContainerClaim(NamedTuple):
    """The ``devices`` of one pool that a container has by a claim, as its kubelet lists them.

    The claim is in the namespace of the pod. No kubelet aligns these devices, so replay does not need them.
    """

    namespace: str
    pod: str
    container: str
    claim: str
    driver: str
    pool: str
    devices: tuple[str, ...]
