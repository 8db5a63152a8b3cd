"""Read resource.k8s.io/v1 ResourceClaims: which devices a pod was given, and which it requests.

Leaves where the devices are to ``resource_slice``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from topomend.model.devices.claimed_device import ClaimedDevice, DeviceKey
from topomend.model.devices.offered_device import DeviceRequest, DeviceToleration
from topomend.model.quantity import MilliQuantity
from topomend.wire.devices.device_selector import read_selectors
from topomend.wire.devices.resource_slice import consumed_capacity
from topomend.wire.document import Document, MalformedObject

_CLAIM_PREFIX, _UNHEALTHY = "claim:", "Unhealthy"

EXACT_COUNT = "ExactCount"
"""The one mode of allocation that asks for a number of devices; the other one is ``All``."""


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


@dataclass(frozen=True, slots=True)
class Unhealthy:
    """A resource of a container's claim that its driver calls unhealthy, and what it says of it (KEP-4680).

    ``claim`` is the name in the pod, followed by a request after / where the container has that one only. ``resource``
    is the device's CDI name, or driver, pool and device where it has none
    (pkg/kubelet/cm/dra/manager.go:buildResourceHealth).
    """

    container: str
    claim: str
    resource: str
    message: str


def read_unhealthy(pod: Any) -> Iterator[Unhealthy]:
    """What the kubelet writes of claimed devices into the status of a Pod object. Raises MalformedObject."""
    for container in Document(pod)["status"]["containerStatuses"]:
        for status in container["allocatedResourcesStatus"]:
            name = status["name"].text()
            for resource in status["resources"] if name.startswith(_CLAIM_PREFIX) else ():
                if resource["health"].text("") == _UNHEALTHY:
                    claim, where = name.removeprefix(_CLAIM_PREFIX), resource["resourceID"].text()
                    yield Unhealthy(container["name"].text(), claim, where, resource["message"].text(""))


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


def read_requests(spec: Any) -> tuple[DeviceRequest, ...]:
    """What the spec of a ResourceClaim, or of its template, requests. Raises MalformedObject."""
    devices = Document(spec)["devices"]
    bound = [[name.text().partition("/")[0] for name in each["requests"]] for each in devices["constraints"]]
    return tuple(
        _request(request, is_bound=any(not names or request["name"].text() in names for names in bound))
        for request in devices["requests"]
    )


def _request(request: Document, *, is_bound: bool) -> DeviceRequest:
    exactly = request["exactly"]
    return DeviceRequest(
        name=request["name"].text(),
        device_class=exactly["deviceClassName"].text(""),
        count=exactly["count"].integer(1, least=1),
        selectors=read_selectors(exactly),
        tolerations=tuple(_toleration(toleration) for toleration in exactly["tolerations"]),
        capacity={name: amount.quantity() for name, amount in exactly["capacity"]["requests"].fields()},
        not_judged=_not_judged(request, is_bound=is_bound),
    )


def _not_judged(request: Document, *, is_bound: bool) -> str:
    exactly = request["exactly"]
    if exactly.absent:
        return "it names alternatives"
    if exactly["allocationMode"].text(EXACT_COUNT) != EXACT_COUNT:
        return "it asks for all devices"
    if exactly["adminAccess"].boolean(default=False):
        return "it asks for access as an administrator"
    return "a constraint binds it" if is_bound else ""


def _toleration(toleration: Document) -> DeviceToleration:
    return DeviceToleration(
        toleration["key"].text(""),
        toleration["operator"].text("") or "Equal",
        toleration["value"].text(""),
        toleration["effect"].text(""),
    )


@dataclass(frozen=True, slots=True)
class Taken:
    """A device that a claim was given, and what that takes of it if it is shared; None where that cannot be read."""

    key: DeviceKey
    consumed: Mapping[str, MilliQuantity] | None


def read_taken(claim: Any) -> Iterator[Taken]:
    """The devices that a ResourceClaim was given, without access as an administrator, which leaves them to others.

    Raises MalformedObject where it does not say which, which no API server takes.
    """
    for result in Document(claim)["status"]["allocation"]["devices"]["results"]:
        if not result["adminAccess"].boolean(default=False):
            key = result["driver"].text(), result["pool"].text(), result["device"].text()
            yield Taken(key, _consumed(result))


def _consumed(result: Document) -> Mapping[str, MilliQuantity] | None:
    if result["consumedCapacity"].absent:
        return _NOTHING
    try:
        return consumed_capacity(result)
    except MalformedObject:
        return None


_NOTHING: Mapping[str, MilliQuantity] = MappingProxyType({})
"""One for all devices that are not shared: there may be hundreds of thousands."""
