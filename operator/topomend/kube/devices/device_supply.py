"""What DRA's objects say: the devices that are offered, those that claims have, and the claims of one pod.

Owns the requests, and that an object which cannot be read concerns its own devices or its own pod alone. Leaves how
often they are made to its callers, and where pod and devices would be to ``decide.device_claims``.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from math import inf
from typing import Any, Protocol, TypeVar

from topomend.kube.client import Client
from topomend.kube.errors import APIError, NotFound
from topomend.kube.resources import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from topomend.model.devices.claimed_device import DeviceKey
from topomend.model.devices.device_supply import DeviceSupply, PodClaim, PodClaims
from topomend.model.devices.offered_device import DeviceRequest, OfferedDevice
from topomend.model.pods.pod import Pod
from topomend.model.quantity import MilliQuantity
from topomend.wire.devices.device_class import DeviceClass, read_device_class
from topomend.wire.devices.resource_claim import read_claimed_devices, read_requests, read_taken
from topomend.wire.devices.resource_slice import Slice, TaintRule, offered, read_slice_or_why, read_taint_rule, tainted
from topomend.wire.document import Document, MalformedObject, unreadable

TakenDevices = Mapping[tuple[str, str], Mapping[str, Mapping[str, MilliQuantity] | None]]
"""By driver and pool, the devices that claims have, each with what they take of it if it is shared; None where that
cannot be read. Of 640,000 devices on 5,000 nodes it takes 18 MB."""

MAX_CLAIMS, MAX_VALUES = 32, 1_000
"""Claims of a pod, each of which costs a request, and all that they and their containers name: of a pod with more
nothing is known. Who writes pods and templates decides how large these are, and a thousand pods may wait."""

Get = Callable[[Resource, str], Mapping[str, Any]]
"""Gets an object of this name, in the namespace of the pod. Raises APIError."""

Classes = Callable[[], Sequence[DeviceClass]]
"""Gets all DeviceClasses. Raises APIError."""

Report = Callable[[str], None]
"""Gets a sentence about each object that cannot be read. Only what refers to it is unknown then."""


def read_classes(client: Client, report: Report) -> tuple[DeviceClass, ...]:
    """All DeviceClasses. Raises APIError."""
    reader = _reader("DeviceClass", lambda content: [read_device_class(content)], report)
    return client.read(DEVICE_CLASSES, reader, cached=True).items


def read_taint_rules(client: Client, report: Report) -> tuple[TaintRule, ...]:
    """All DeviceTaintRules; none where the API server does not serve the kind. Raises APIError."""
    try:
        return client.read(DEVICE_TAINT_RULES, _reader("DeviceTaintRule", read_taint_rule, report), cached=True).items
    except NotFound:
        return ()


class TooManyDevices(Exception):
    """The slices that were asked for have more devices than are to be kept. The rest was not read."""


def read_devices(
    client: Client, report: Report, node: str | None = None, most: float = inf
) -> tuple[OfferedDevice, ...]:
    """The devices of complete pools: of one node, those that no node alone has where ``node`` is empty, or all.

    The API server has an index by node. Raises APIError, and TooManyDevices where there are more than ``most``.
    """
    count = 0

    def read(content: Any) -> list[Slice]:
        nonlocal count
        found = read_slice_or_why(content)
        count += max(1, len(found.devices))
        if count > most:
            raise TooManyDevices
        return [found]

    reader = _reader("ResourceSlice", read, report)
    fields = "" if node is None else f"spec.nodeName={node}"
    return tuple(offered(client.read(RESOURCE_SLICES, reader, fields=fields, cached=True).items))


class _MayBeUnread(Protocol):
    @property
    def problem(self) -> str:
        """Why it cannot be read as a whole; empty where it can."""


_Read = TypeVar("_Read", bound=_MayBeUnread)


def _reader(kind: str, read: Callable[[Any], Iterable[_Read]], report: Report) -> Callable[[Any], Iterable[_Read]]:
    """Reads an object as ``read`` does; reports one that cannot be read, and passes over it where need be."""

    def reader(content: Any) -> Iterable[_Read]:
        try:
            found = tuple(read(content))
        except MalformedObject as error:
            report(unreadable(kind, content, error))
            return ()
        for each in found:
            if each.problem:
                report(each.problem)
        return found

    return reader


def read_taken_devices(client: Client, report: Report) -> TakenDevices:
    """The devices that the cluster's claims have. No more is kept of a claim. Raises APIError."""
    found: dict[tuple[str, str], dict[str, Mapping[str, MilliQuantity] | None]] = {}

    def read(content: dict[str, Any]) -> tuple[()]:
        try:
            add(content)
        except MalformedObject as error:
            report(unreadable("ResourceClaim", content, error))
        return ()

    def add(content: dict[str, Any]) -> None:
        for taken in read_taken(content):
            driver, pool, device = taken.key
            of_pool = found.setdefault((driver, pool), {})
            of_pool[device] = _sum(of_pool.get(device, {}), taken.consumed)

    client.read(RESOURCE_CLAIMS, read, cached=True)
    return found


def _sum(
    one: Mapping[str, MilliQuantity] | None, other: Mapping[str, MilliQuantity] | None
) -> Mapping[str, MilliQuantity] | None:
    if one is None or other is None:
        return None
    return {name: one.get(name, 0) + other.get(name, 0) for name in one.keys() | other.keys()} if one else other


def supply_of(
    devices: Iterable[OfferedDevice],
    rules: Collection[TaintRule],
    taken: TakenDevices,
    classes: Collection[DeviceClass],
) -> DeviceSupply:
    """The devices with their taints, and which of them are free."""
    devices = tuple(tainted(device, rules) for device in devices)
    consumed = dict[DeviceKey, Mapping[str, MilliQuantity]]()
    doubtful = set[DeviceKey]()
    for device in devices:
        of_pool = taken.get((device.driver, device.pool), {})
        if device.name in of_pool:
            amounts = of_pool[device.name]
            consumed[device.key] = amounts or {}
            doubtful |= {device.key} if amounts is None else set()
    unread = {each.name: each.problem for each in classes if each.problem}
    selectors = {each.name: each.selectors for each in classes if not each.problem}
    return DeviceSupply(devices, frozenset(consumed), consumed, selectors, frozenset(doubtful), unread)


def read_pod_claims(content: Any, pod: Pod, by_claim: Iterable[str], get: Get, classes: Classes) -> PodClaims | None:
    """The claims of a Pod object; None for one that has none.

    ``by_claim`` are the extended resources that DeviceClasses map. What cannot be read is a claim with a problem.
    """
    try:
        claims = _pod_claims(Document(content), pod, by_claim, get, classes)
    except MalformedObject as error:
        return _unknown(str(error))
    if claims and claims.values > MAX_VALUES:
        return _unknown(f"its claims name more than {MAX_VALUES} values")
    return claims


def _unknown(problem: str) -> PodClaims:
    return PodClaims((PodClaim("", problem=problem),), {})


def _pod_claims(document: Document, pod: Pod, mapped: Iterable[str], get: Get, classes: Classes) -> PodClaims | None:
    spec = document["spec"]
    by_resource = {name: amounts for name in mapped if (amounts := _amounts_of(pod, name))}
    if spec["resourceClaims"].absent and not by_resource:
        return None
    if len(list(islice(spec["resourceClaims"], MAX_CLAIMS + 1))) > MAX_CLAIMS:
        return _unknown(f"it has more than {MAX_CLAIMS} claims")
    by_container = dict[str, list[tuple[str, str]]]()
    for container in (*spec["initContainers"], *spec["containers"]):
        for claim in container["resources"]["claims"]:
            pair = claim["name"].text(), claim["request"].text("")
            by_container.setdefault(container["name"].text(), []).append(pair)
    claims = [_claim(claim, document, get) for claim in spec["resourceClaims"]]
    for resource, amounts in by_resource.items():
        claims.append(_of_resource(resource, amounts, classes))
        for name in amounts:
            by_container.setdefault(name, []).append((resource, name))
    return PodClaims(tuple(claims), by_container)


def _of_resource(resource: str, amounts: Mapping[str, int], classes: Classes) -> PodClaim:
    """The claim that the scheduler would make: a request for each container that asks for the resource."""
    try:
        names = [each.name for each in classes() if resource in each.resources]
    except APIError as error:
        return PodClaim(resource, resource=resource, problem=str(error))
    if len(names) != 1:
        return PodClaim(resource, resource=resource, problem=f"{len(names)} DeviceClasses map {resource}")
    requests = (DeviceRequest(name, names[0], amount) for name, amount in amounts.items())
    return PodClaim(resource, tuple(requests), resource=resource)


def _claim(claim: Document, pod: Document, get: Get) -> PodClaim:
    """The claim that the pod names or has, or the one that would be made for a pod in its place."""
    name = claim["name"].text()
    is_bound = not pod["spec"]["nodeName"].absent
    made = {each["name"].text(): each["resourceClaimName"].text("") for each in pod["status"]["resourceClaimStatuses"]}
    named = claim["resourceClaimName"].text("") or ("" if is_bound else made.get(name, ""))
    try:
        if not named:
            template = claim["resourceClaimTemplateName"].text("")
            spec = Document(get(RESOURCE_CLAIM_TEMPLATES, template))["spec"]
            return PodClaim(name, read_requests(spec["spec"].content))
        content = get(RESOURCE_CLAIMS, named)
        given = tuple(read_claimed_devices(content))
        return PodClaim(name, read_requests(content.get("spec")), given or None, is_own=False)
    except (APIError, MalformedObject) as error:
        why = "does not exist" if isinstance(error, NotFound) else f"cannot be read: {error}"
        return PodClaim(name, problem=f"the claim {name} {why}")


def _amounts_of(pod: Pod, resource: str) -> dict[str, int]:
    """How many of an extended resource each container requests, by its name."""
    return {
        container.name: amount // 1000
        for container in pod.containers
        if (amount := container.resources.requests.get(resource, 0))
    }
