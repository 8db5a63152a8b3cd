"""Read resource.k8s.io/v1 ResourceClaims and ResourceSlices: which devices a pod was given, and where they are."""

from collections.abc import Iterator
from typing import Any

from topomend.model.bitmask import MAX_ID
from topomend.model.claimed_device import ClaimedDevice
from topomend.model.quantity import MAX_INT64
from topomend.wire.document import Document

NUMA_NODE = "resource.kubernetes.io/numaNode"
"""The standard attribute of a device that has its NUMA node (KEP-6072): an int, or ints with the device's own first."""

NUMA_ATTRIBUTES = frozenset(("numaNode", "numaNodeID", "numa"))
"""What drivers called it in their own domain before."""

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


def read_claims_by_container(pod: Any) -> dict[str, list[tuple[str, str]]]:
    """By container of a Pod object, the ResourceClaims that it has: the name, and the one request or empty for all.

    Raises MalformedObject.
    """
    document = Document(pod)
    spec, status = document["spec"], document["status"]
    names = {
        claim["name"].text(): claim["resourceClaimName"].text("")
        for claim in (*spec["resourceClaims"], *status["resourceClaimStatuses"])
        if not claim["resourceClaimName"].absent
    }
    claims: dict[str, list[tuple[str, str]]] = {}
    for container in (*spec["initContainers"], *spec["containers"]):
        for claim in container["resources"]["claims"]:
            if name := names.get(claim["name"].text()):
                claims.setdefault(container["name"].text(), []).append((name, claim["request"].text("")))
    extended = status["extendedResourceClaimStatus"]
    for mapping in extended["requestMappings"]:
        pair = (extended["resourceClaimName"].text(), mapping["requestName"].text())
        claims.setdefault(mapping["containerName"].text(), []).append(pair)
    return claims


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
        found = {name: attribute for name, attribute in device["attributes"].fields() if _names_numa_node(name)}
        if found and (node := _numa_node(found.get(NUMA_NODE, next(iter(found.values()))))) is not None:
            yield (driver, pool, device["name"].text()), node


def _names_numa_node(attribute: str) -> bool:
    return attribute.rpartition("/")[2] in NUMA_ATTRIBUTES


def _numa_node(attribute: Document) -> int | None:
    """The number; None for a number that no NUMA node can have, -1 among them, and for an attribute of another type."""
    number = next(iter(attribute["ints"]), attribute["int"])
    node = number.integer(-1, least=-MAX_INT64 - 1)
    return node if 0 <= node < MAX_ID else None
