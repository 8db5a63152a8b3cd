"""The devices of nodes and which of them are free (DRA, KEP-4381), and the claims of a pod that is to run.

Leaves which device a request may have, and where it would be beside the pod's CPUs, to ``decide.device_claims``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from topomend.model.devices.claimed_device import ClaimedDevice, DeviceKey
from topomend.model.devices.offered_device import DeviceRequest, OfferedDevice, Selectors
from topomend.model.quantity import MilliQuantity

Consumed = Mapping[DeviceKey, Mapping[str, MilliQuantity]]
"""What claims take of shared devices, by capacity."""


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A claim of a pod, by its name in the pod: what it requests, or what it was ``given`` already.

    ``resource`` is the extended resource for which the scheduler makes the claim, on nodes that do not offer it
    themselves; empty for any other. ``is_own`` is whether it is made for this pod: several pods may have one that they
    name. ``problem`` says in words why the claim is not known.
    """

    name: str
    requests: tuple[DeviceRequest, ...] = ()
    given: tuple[ClaimedDevice, ...] | None = None
    resource: str = ""
    is_own: bool = True
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PodClaims:
    """A pod's claims, and which each container has: the name in the pod, and one request or empty for all."""

    claims: tuple[PodClaim, ...]
    by_container: Mapping[str, Sequence[tuple[str, str]]]

    @property
    def values(self) -> int:
        """How many names, comparisons and amounts they consist of, by which their size is known."""
        of_claims = sum(request.values for claim in self.claims for request in claim.requests)
        given = sum(len(claim.given or ()) for claim in self.claims)
        return of_claims + given + sum(len(pairs) for pairs in self.by_container.values())


@dataclass(frozen=True, slots=True)
class Part:
    """A device, and how much of each of its capacities; all of it where it is not shared."""

    device: OfferedDevice
    amounts: Mapping[str, MilliQuantity] = field(default_factory=dict)


@dataclass(frozen=True)
class DeviceSupply:
    """The devices of some nodes or of all: all that are offered, those that claims have, and what they have of shared
    ones.

    Of the ``doubtful`` ones nobody can read how much claims have of them. ``classes`` are the selectors by DeviceClass,
    and ``unread`` says of each class that cannot be read why.
    ``problem`` says why that is not known; empty where it is.
    """

    devices: tuple[OfferedDevice, ...] = ()
    taken: frozenset[DeviceKey] = frozenset()
    consumed: Consumed = field(default_factory=dict)
    classes: Mapping[str, Selectors] = field(default_factory=dict)
    doubtful: frozenset[DeviceKey] = frozenset()
    unread: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""

    def on(self, node: str) -> list[OfferedDevice]:
        """The devices that a pod on this node can use."""
        return [device for device in self.devices if device.node in ("", node)]

    def without(self, parts: Iterable[Part]) -> "DeviceSupply":
        """What is left once another pod has these."""
        taken, consumed = set(self.taken), {key: dict(amounts) for key, amounts in self.consumed.items()}
        for part in parts:
            taken.add(part.device.key)
            of_device = consumed.setdefault(part.device.key, {})
            for name, amount in part.amounts.items():
                of_device[name] = of_device.get(name, 0) + amount
        return replace(self, taken=frozenset(taken), consumed=consumed)
