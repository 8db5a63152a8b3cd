"""Read resource.k8s.io/v1 ResourceSlices and DeviceTaintRules: the devices that DRA drivers offer, and where they are.

Leaves to ``resource_claim`` which of them claims have been given.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from topomend.model.bitmask import MAX_ID
from topomend.model.devices.claimed_device import DeviceKey
from topomend.model.devices.offered_device import AttributeValue, DeviceCapacity, DeviceTaint, OfferedDevice
from topomend.model.devices.qualified_name import qualified
from topomend.model.quantity import MAX_INT64, MilliQuantity
from topomend.wire.document import Document, MalformedObject, unreadable

NUMA_NODE = "resource.kubernetes.io/numaNode"
"""The standard attribute of a device that has its NUMA node (KEP-6072): an int, or ints with the device's own first."""

NUMA_ATTRIBUTES = frozenset(("numaNode", "numaNodeID", "numa"))
"""What drivers called it in their own domain before: ``dra.cpu/numaNodeID``, ``dra.net/numaNode``,
``gpu.nvidia.com/numa``, ``gpu.amd.com/numaNode``."""


ANY_GENERATION = MAX_INT64 + 1
"""Of a slice that does not say which: of its pool nothing else is known, whatever the other slices say."""


@dataclass(frozen=True, slots=True)
class Slice:
    """One ResourceSlice: its devices, the generation of its pool, and how many slices that has in this generation.

    ``problem`` says in words why it cannot be read; empty where it can.
    """

    driver: str
    pool: str
    generation: int
    slices: int
    devices: tuple[OfferedDevice, ...]
    problem: str = ""


def read_slice(resource_slice: Any) -> Slice:
    """A ResourceSlice. Raises MalformedObject."""
    spec = Document(resource_slice)["spec"]
    driver, pool = spec["driver"].text(), spec["pool"]
    devices = tuple(_device(device, spec) for device in spec["devices"])
    return Slice(
        driver, pool["name"].text(), pool["generation"].integer(1), pool["resourceSliceCount"].integer(1), devices
    )


def read_slice_or_why(resource_slice: Any) -> Slice:
    """A ResourceSlice; one that cannot be read stands for a device of its driver of which nothing else is known.

    So it makes an answer unknown for those pods alone that request such devices, on its own node. Raises
    MalformedObject where it does not say whose it is, which no API server takes.
    """
    try:
        return read_slice(resource_slice)
    except MalformedObject as error:
        spec = Document(resource_slice)["spec"]
        driver, pool, node = spec["driver"].text(), spec["pool"]["name"].text(), spec["nodeName"].text("")
        problem = unreadable("ResourceSlice", resource_slice, error)
        device = OfferedDevice(driver, pool, "", node, not_judged=f"its {problem}")
        return Slice(driver, pool, *_place_in_pool(spec["pool"]), (device,), problem)


def _place_in_pool(pool: Document) -> tuple[int, int]:
    """The generation and the number of slices; of a pool that does not say so, those of ANY_GENERATION."""
    try:
        return pool["generation"].integer(1), pool["resourceSliceCount"].integer(1)
    except MalformedObject:
        return ANY_GENERATION, 1


def offered(slices: Iterable[Slice]) -> Iterator[OfferedDevice]:
    """The devices of all pools that are complete, each in its newest generation: the scheduler uses no others.

    Source: structured/internal/incubating/pools_incubating.go:GatherPools.
    """
    pools = defaultdict[tuple[str, str], list[Slice]](list)
    for each in slices:
        pools[each.driver, each.pool].append(each)
    for pool in pools.values():
        newest = max(each.generation for each in pool)
        current = [each for each in pool if each.generation == newest]
        if newest == ANY_GENERATION or len(current) == current[0].slices:
            yield from (device for each in current for device in each.devices)


def read_numa_nodes(resource_slice: Any) -> Iterator[tuple[DeviceKey, int]]:
    """The NUMA nodes of the devices of a ResourceSlice, of those that have one. Raises MalformedObject."""
    for device in read_slice(resource_slice).devices:
        if device.numa_node is not None:
            yield device.key, device.numa_node


@dataclass(frozen=True, slots=True)
class TaintRule:
    """A DeviceTaintRule: a taint, and the driver, pool and device that have it, each empty for any.

    ``taint`` is None where it cannot be read, and ``problem`` says why in words.
    """

    driver: str
    pool: str
    device: str
    taint: DeviceTaint | None
    problem: str = ""

    def applies_to(self, device: OfferedDevice) -> bool:
        """Whether the device has the taint."""
        wanted = (self.driver, self.pool, self.device)
        return all(want in ("", has) for want, has in zip(wanted, device.key, strict=True))


def read_taint_rule(content: Any) -> Iterator[TaintRule]:
    """The rule; none of one without a selector, which selects no device.

    Raises MalformedObject where it does not say which devices it selects.
    """
    spec = Document(content)["spec"]
    selector = spec["deviceSelector"]
    if not selector.absent:
        driver, pool, device = (selector[field].text("") for field in ("driver", "pool", "device"))
        try:
            yield TaintRule(driver, pool, device, _taint(spec["taint"]))
        except MalformedObject as error:
            yield TaintRule(driver, pool, device, None, unreadable("DeviceTaintRule", content, error))


def tainted(device: OfferedDevice, rules: Iterable[TaintRule]) -> OfferedDevice:
    """The device with its own taints and those of the rules. One with a taint that cannot be read is not judged."""
    applied = [rule for rule in rules if rule.applies_to(device)]
    added = tuple(rule.taint for rule in applied if rule.taint)
    problem = next((rule.problem for rule in applied if rule.problem), device.not_judged)
    return replace(device, taints=device.taints + added, not_judged=problem) if applied else device


def _device(device: Document, spec: Document) -> OfferedDevice:
    driver = spec["driver"].text()
    by_device = spec["perDeviceNodeSelection"].boolean(default=False)
    place = device if by_device else spec
    return OfferedDevice(
        driver=driver,
        pool=spec["pool"]["name"].text(),
        name=device["name"].text(),
        node=place["nodeName"].text(""),
        numa_node=_numa_node_of(device["attributes"], driver),
        attributes=dict(_attributes(device["attributes"], driver)),
        capacity={qualified(name, driver): _capacity(capacity) for name, capacity in device["capacity"].fields()},
        taints=tuple(_taint(taint) for taint in device["taints"]),
        is_shared=device["allowMultipleAllocations"].boolean(default=False),
        not_judged=_not_judged(device, place),
    )


def _not_judged(device: Document, place: Document) -> str:
    if not place["nodeSelector"].absent:
        return "a node selector says where its devices are"
    return "its devices are parts of one another" if any(True for _ in device["consumesCounters"]) else ""


def _attributes(attributes: Document, driver: str) -> Iterator[tuple[str, AttributeValue]]:
    """Those that are one number, text or truth; a list or a version is compared by nobody but the scheduler."""
    for name, attribute in attributes.fields():
        for kind, read in (("string", Document.text), ("bool", Document.boolean)):
            if not attribute[kind].absent:
                yield qualified(name, driver), read(attribute[kind])
        if not attribute["int"].absent:
            yield qualified(name, driver), attribute["int"].integer(least=-MAX_INT64 - 1)


def _numa_node_of(attributes: Document, driver: str) -> int | None:
    found = {
        qualified(name, driver): attribute
        for name, attribute in attributes.fields()
        if name.rpartition("/")[2] in NUMA_ATTRIBUTES
    }
    return _numa_node(found.get(NUMA_NODE, next(iter(found.values())))) if found else None


def _numa_node(attribute: Document) -> int | None:
    """The number; None for a number that no NUMA node can have, -1 among them, and for an attribute of another type."""
    number = next(iter(attribute["ints"]), attribute["int"])
    node = number.integer(-1, least=-MAX_INT64 - 1)
    return node if 0 <= node < MAX_ID else None


def _taint(taint: Document) -> DeviceTaint:
    return DeviceTaint(taint["key"].text(), taint["value"].text(""), taint["effect"].text())


def _capacity(capacity: Document) -> DeviceCapacity:
    policy = capacity["requestPolicy"]
    limits = policy["validRange"]
    return DeviceCapacity(
        capacity["value"].quantity(),
        default=_optional(policy["default"]),
        least=_optional(limits["min"]),
        step=_optional(limits["step"]),
        most=_optional(limits["max"]),
        amounts=tuple(amount.quantity() for amount in policy["validValues"]),
    )


def _optional(quantity: Document) -> MilliQuantity | None:
    return None if quantity.absent else quantity.quantity()


def consumed_capacity(result: Document) -> Mapping[str, MilliQuantity]:
    """By full name, what one result of an allocation takes of a shared device. Raises MalformedObject."""
    driver = result["driver"].text()
    return {qualified(name, driver): amount.quantity() for name, amount in result["consumedCapacity"].fields()}
