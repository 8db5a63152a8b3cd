"""Devices that DRA drivers offer in ResourceSlices, and what claims request of them (KEP-4381).

Owns whether a device suits a request. Leaves which device the scheduler would take, and where a pod's CPUs would be, to
``decide``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from topomend.model.devices.claimed_device import DeviceKey
from topomend.model.quantity import MilliQuantity

NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
"""The effects that keep the scheduler from a device; it ignores all others
(structured/internal/incubating:taintPreventsAllocation)."""

AttributeValue = str | int | bool


@dataclass(frozen=True, slots=True)
class DeviceTaint:
    """A taint of a device, by its driver or by a DeviceTaintRule."""

    key: str
    value: str = ""
    effect: str = NO_SCHEDULE


@dataclass(frozen=True, slots=True)
class DeviceToleration:
    """A taint that a request tolerates; an empty key or effect means every one."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: DeviceTaint) -> bool:
        """Whether it tolerates the taint (resourceclaim/devicetoleration.go:ToleratesTaint)."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (self.operator == "Equal" and self.value == taint.value)


@dataclass(frozen=True, slots=True)
class DeviceCapacity:
    """An amount that a device has, and by which steps a shared device hands it out (CapacityRequestPolicy).

    ``default`` is what a request without this capacity consumes; None means all of it. ``amounts`` are the only ones
    that there are; else any from ``least`` by ``step`` to ``most``, each None where the driver does not limit it.
    """

    value: MilliQuantity
    default: MilliQuantity | None = None
    least: MilliQuantity | None = None
    step: MilliQuantity | None = None
    most: MilliQuantity | None = None
    amounts: tuple[MilliQuantity, ...] = ()

    def consumed(self, requested: MilliQuantity | None) -> MilliQuantity | None:
        """What a request takes of a shared device; None where the driver hands no such amount out.

        Source: structured/internal/incubating/consumable_capacity.go:calculateConsumedCapacity, violatesPolicy.
        """
        if requested is None:
            return self.value if self.default is None else self.default
        if self.amounts:
            return min((amount for amount in self.amounts if amount >= requested), default=None)
        taken = requested if self.least is None else max(self.least, requested)
        if self.step and self.least is not None:
            taken = self.least + -((self.least - taken) // self.step) * self.step
        return None if self.most is not None and taken > self.most else taken


@dataclass(frozen=True, slots=True)
class Selector:
    """A selector that only compares: the ``driver``, empty for any, and attributes by their full names, all of them."""

    driver: str = ""
    attributes: tuple[tuple[str, AttributeValue], ...] = ()

    def selects(self, device: "OfferedDevice") -> bool | None:
        """Whether it selects the device; None where that is an error, as the device lacks an attribute."""
        if self.driver not in ("", device.driver):
            return False
        found = [(device.attributes.get(name), wanted) for name, wanted in self.attributes]
        if any(value is not None and not _is_equal(value, wanted) for value, wanted in found):
            return False
        return None if any(value is None for value, _ in found) else True


def _is_equal(value: AttributeValue, wanted: AttributeValue) -> bool:
    return type(value) is type(wanted) and value == wanted


Selectors = tuple[Selector | None, ...]
"""The selectors of a class or of a request; None is one that compares in another way."""


@dataclass(frozen=True, slots=True)
class OfferedDevice:
    """A device of a ResourceSlice. ``node`` is where it can be used, empty for every node.

    Names of ``attributes`` and ``capacity`` are full ones, with a domain. ``numa_node`` is None where the driver does
    not say. ``is_shared`` is whether several claims may have a part of it. ``not_judged`` says in words why nobody but
    the scheduler knows whether it can be had; empty where that is known.
    """

    driver: str
    pool: str
    name: str
    node: str = ""
    numa_node: int | None = None
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, DeviceCapacity] = field(default_factory=dict)
    taints: tuple[DeviceTaint, ...] = ()
    is_shared: bool = False
    not_judged: str = ""

    @property
    def key(self) -> DeviceKey:
        """Its driver, pool and name."""
        return self.driver, self.pool, self.name

    def is_kept_from(self, tolerations: Iterable[DeviceToleration]) -> bool:
        """Whether a taint keeps it from a request with these tolerations."""
        tolerations = tuple(tolerations)
        return any(
            taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not any(each.tolerates(taint) for each in tolerations)
            for taint in self.taints
        )


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """What one request of a claim asks for: ``count`` devices of a class.

    ``capacity`` has the names as its user wrote them. ``not_judged`` says in words why nobody but the scheduler knows
    which devices it may get; empty where that is known.
    """

    name: str
    device_class: str
    count: int = 1
    selectors: Selectors = ()
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: Mapping[str, MilliQuantity] = field(default_factory=dict)
    not_judged: str = ""

    @property
    def values(self) -> int:
        """How many names, comparisons and amounts it consists of."""
        compared = sum(1 + len(selector.attributes) for selector in self.selectors if selector)
        return 1 + compared + len(self.tolerations) + len(self.capacity)
