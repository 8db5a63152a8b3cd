"""Read resource.k8s.io/v1 ResourceClaims and ResourceSlices: which devices a pod was given, and where they are."""

from collections.abc import Iterator
from typing import Any

from topomend.model.claimed_device import ClaimedDevice
from topomend.wire.document import Document

NUMA_ATTRIBUTES = frozenset(("numaNode", "numaNodeID", "numa"))
"""The attribute of a device that has its NUMA node: ``resource.kubernetes.io/numaNode`` (KEP-6072), or one of the
driver's own domain."""

DeviceKey = tuple[str, str, str]
"""A driver, a pool and a device."""


def read_claim_names(pod: Any) -> tuple[str, ...]:
    """The ResourceClaims of a Pod object: named in its spec, made from templates, and made for extended resources.

    Raises MalformedObject.
    """
    document = Document(pod)
    spec, status = document["spec"], document["status"]
    named = [
        *(claim["resourceClaimName"].text("") for claim in spec["resourceClaims"]),
        *(claim["resourceClaimName"].text("") for claim in status["resourceClaimStatuses"]),
        status["extendedResourceClaimStatus"]["resourceClaimName"].text(""),
    ]
    return tuple(dict.fromkeys(name for name in named if name))


def read_claimed_devices(claim: Any) -> Iterator[ClaimedDevice]:
    """The devices that a ResourceClaim was given, none before the scheduler has. Raises MalformedObject."""
    document = Document(claim)
    name = document["metadata"]["name"].text()
    for result in document["status"]["allocation"]["devices"]["results"]:
        yield ClaimedDevice(
            claim=name,
            request=result["request"].text(""),
            driver=result["driver"].text(),
            pool=result["pool"].text(),
            device=result["device"].text(),
        )


def read_numa_nodes(resource_slice: Any) -> Iterator[tuple[DeviceKey, int]]:
    """The NUMA nodes of the devices of a ResourceSlice, of those that have one. Raises MalformedObject."""
    spec = Document(resource_slice)["spec"]
    driver, pool = spec["driver"].text(), spec["pool"]["name"].text()
    for device in spec["devices"]:
        for name, attribute in device["attributes"].fields():
            if name.rpartition("/")[2] in NUMA_ATTRIBUTES and not attribute["int"].absent:
                yield (driver, pool, device["name"].text()), attribute["int"].integer(-1, least=-1)
