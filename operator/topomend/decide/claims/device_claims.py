"""Whether a node that admits a pod has the devices of its claims, and has them where the pod's CPUs would be.

No kubelet aligns the devices of claims (DRA) with CPUs, and the scheduler takes any free device that the claim's
requests select. Here replay says where the kubelet would place the containers, and the free devices are compared with
that. What only the scheduler can judge, such as most CEL, is said to be unknown. Owns the comparison and its wording.
Leaves reading claims and slices to ``kube.device_supply``.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from operator import and_

from topomend.alignment.requested import places_by_container
from topomend.decide.diagnosis.filters import judged_by_claim
from topomend.explain.trace_text import numa_text
from topomend.model.bitmask import NUMAMask
from topomend.model.devices.claimed_device import ClaimedDevice, DeviceKey
from topomend.model.devices.device_supply import DeviceSupply, Part, PodClaim, PodClaims
from topomend.model.devices.offered_device import DeviceRequest, OfferedDevice, Selectors
from topomend.model.devices.qualified_name import qualified
from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.model.quantity import MilliQuantity

_NOT_PINNED = (
    "its kubelet pins none of the containers that have claims: only a constraint of the claim keeps devices together"
)

STANDARD_NUMA_NODE = "resource.kubernetes.io/numaNode"

MAX_OF_CLAIM = 32
"""Devices of one claim: a pod with a claim of more is never scheduled (resource.k8s.io/v1:AllocationResultsMaxSize,
structured/internal/incubating/allocator_incubating.go:Allocate)."""

MAX_OF_POD = 128
"""Devices of all claims of a pod; of one with more nothing is known. Who writes claims decides how long each node's
answer takes, at most in proportion to the cube of this."""


class Sharing(Enum):
    """Whether a pod's claimed devices and what its kubelet gives it would be together on a node, best first.

    ``TOGETHER``: any free device that the scheduler may take is on the same NUMA nodes. ``POSSIBLE``: some are.
    ``NOT_PINNED``: the kubelet pins none of the containers that have claims. ``APART``: too few free devices are there.
    ``NO_DEVICE``: the node has too few that are free at all.
    """

    TOGETHER = "together"
    POSSIBLE = "possible"
    NOT_PINNED = "notPinned"
    UNKNOWN = "unknown"
    APART = "apart"
    NO_DEVICE = "noDevice"


ORDER = list(Sharing)


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """A node's answer for the claims of a pod that it would admit, in a word and in a sentence.

    ``parts`` are devices that the pod might get by claims of its own: such as are together, if there are enough.
    """

    sharing: Sharing
    words: str
    parts: tuple[Part, ...] = ()

    @property
    def rank(self) -> int:
        """0 for the best."""
        return ORDER.index(self.sharing)


@dataclass(frozen=True, slots=True)
class _Demand:
    """One device that a claim needs, those that may be it, and on which NUMA nodes the containers are that use it.

    ``numa_nodes`` is None where the kubelet pins none of them. ``is_own`` is that of the claim.
    """

    wanted: str
    candidates: tuple[Part, ...]
    numa_nodes: NUMAMask | None
    is_own: bool

    def near(self, *, or_unknown: bool = False) -> tuple[Part, ...]:
        """The candidates that are where the containers are."""
        wanted = self.numa_nodes
        return tuple(part for part in self.candidates if wanted is None or _is_on(part, wanted, or_unknown))


class _NotJudgedError(Exception):
    """The answer is not known; the text says why."""


class _NoneLeftError(Exception):
    """The node has too few devices; the text says which."""


def claims_on(supply: DeviceSupply, node: Node, state: NodeState, pod: Pod, asked: PodClaims) -> ClaimAnswer | None:
    """The answer of ``node``, whose ``state`` is that with the pod admitted; None if the pod needs no claim there."""
    placed = {name: places.numa_nodes for name, places in places_by_container(state, pod).items()}
    try:
        demands = _Question(supply, node, asked, placed).demands()
        if not demands:
            return None
        return _compared(node.name, demands, _placed_words(placed, asked))
    except _NotJudgedError as error:
        return ClaimAnswer(
            Sharing.UNKNOWN, f"{node.name}: where the devices of its claims would be is unknown: {error}"
        )
    except _NoneLeftError as error:
        return ClaimAnswer(Sharing.NO_DEVICE, f"{node.name}: {error}")


def _compared(node: str, demands: Sequence[_Demand], placed: str) -> ClaimAnswer:
    anywhere = _assigned([demand.candidates for demand in demands])
    if anywhere is None:
        raise _NoneLeftError(f"too few free devices of {_wanted(demands)} for all its requests")
    pinned = [demand for demand in demands if demand.numa_nodes is not None]
    if not pinned:
        return ClaimAnswer(Sharing.NOT_PINNED, f"{node}: {_NOT_PINNED}", _own(demands, anywhere))
    begin, wanted = f"{node}: its kubelet would place {placed}", _wanted(pinned)
    if near := _assigned([demand.near() for demand in demands]):
        if all(len(demand.near()) == len(demand.candidates) for demand in pinned):
            words = f"{begin}; all free devices of {wanted} are there too"
            return ClaimAnswer(Sharing.TOGETHER, words, _own(demands, near))
        words = f"{begin}; of the free devices of {wanted} some are there, and the scheduler chooses{_hint(pinned)}"
        return ClaimAnswer(Sharing.POSSIBLE, words, _own(demands, near))
    if _assigned([demand.near(or_unknown=True) for demand in demands]):
        raise _NotJudgedError(f"the driver of {wanted} does not say on which NUMA nodes they are")
    words = f"{begin}; too few free devices of {wanted} are there: these would be apart"
    return ClaimAnswer(Sharing.APART, words, _own(demands, anywhere))


def _wanted(demands: Iterable[_Demand]) -> str:
    return ", ".join(dict.fromkeys(demand.wanted for demand in demands))


def _own(demands: Sequence[_Demand], assigned: Sequence[Part]) -> tuple[Part, ...]:
    return tuple(part for demand, part in zip(demands, assigned, strict=True) if demand.is_own)


def _hint(pinned: Sequence[_Demand]) -> str:
    """How the user has the scheduler choose; empty where no selector says it."""
    masks = {demand.numa_nodes or 0 for demand in pinned}
    (mask, *others) = masks
    is_standard = all(STANDARD_NUMA_NODE in part.device.attributes for demand in pinned for part in demand.near())
    if others or mask.bit_count() != 1 or not is_standard:
        return ""
    number = mask.bit_length() - 1
    return f'; the selector device.attributes["resource.kubernetes.io"].numaNode == {number} in the claim makes it sure'


def _placed_words(placed: Mapping[str, NUMAMask], asked: PodClaims) -> str:
    with_claims = (name for name in placed if asked.by_container.get(name))
    return ", ".join(f"container {name} on {numa_text(placed[name])}" for name in with_claims)


@dataclass(frozen=True)
class _Question:
    """A pod's claims, the node that is asked, and where its kubelet would place the containers."""

    supply: DeviceSupply
    node: Node
    asked: PodClaims
    placed: Mapping[str, NUMAMask]

    def demands(self) -> list[_Demand]:
        """Raises _NotJudgedError, _NoneLeftError."""
        if self.supply.problem:
            raise _NotJudgedError(self.supply.problem)
        demands = list[_Demand]()
        for claim in self.asked.claims:
            if not claim.resource or judged_by_claim(self.node, [claim.resource]):
                demands += self._demands_of(claim)
            if len(demands) > MAX_OF_POD:
                raise _NotJudgedError(f"it asks for more than {MAX_OF_POD} devices by claims")
        shared = [part.device.key for demand in demands for part in demand.candidates if part.device.is_shared]
        if len(shared) != len(set(shared)):
            raise _NotJudgedError("several of its requests may have parts of one device")
        return demands

    def _demands_of(self, claim: PodClaim) -> Iterator[_Demand]:
        if claim.problem:
            raise _NotJudgedError(claim.problem)
        if claim.given is not None:
            yield from self._given(claim, claim.given)
            return
        count = sum(request.count for request in claim.requests)
        if count > MAX_OF_CLAIM:
            most = f"a scheduler gives at most {MAX_OF_CLAIM} to one claim"
            raise _NoneLeftError(f"claim {claim.name} asks for {count} devices, and {most}")
        for request in claim.requests:
            candidates = tuple(_candidates(self.supply, self.node.name, request))
            numa_nodes = self._numa_nodes(claim.name, request.name)
            yield from [_Demand(request.device_class, candidates, numa_nodes, claim.is_own)] * request.count

    def _given(self, claim: PodClaim, given: Iterable[ClaimedDevice]) -> Iterator[_Demand]:
        """A claim that is allocated stays with its devices, on whichever node the pod runs."""
        offered = {device.key: device for device in self.supply.devices}
        for each in given:
            device = offered.get((each.driver, each.pool, each.device))
            what = f"{each.device} of {each.driver}"
            if device is None:
                raise _NotJudgedError(f"claim {claim.name} has {what}, which is no longer offered")
            if device.node not in ("", self.node.name):
                raise _NoneLeftError(f"claim {claim.name} is allocated to {what} on {device.node}")
            request = each.request.partition("/")[0]
            yield _Demand(each.driver, (Part(device),), self._numa_nodes(claim.name, request), is_own=False)

    def _numa_nodes(self, claim: str, request: str) -> NUMAMask | None:
        """The NUMA nodes on which all containers are that use the device and that the kubelet pins."""
        masks = [
            self.placed[container]
            for container, claims in self.asked.by_container.items()
            if container in self.placed and any(name == claim and one in ("", request) for name, one in claims)
        ]
        return reduce(and_, masks) if masks else None


def _candidates(supply: DeviceSupply, node: str, request: DeviceRequest) -> Iterator[Part]:
    """The free devices that the request selects. Raises _NotJudgedError, and _NoneLeftError if they are too few."""
    if request.not_judged:
        raise _NotJudgedError(f"request {request.name}: {request.not_judged}")
    if why := supply.unread.get(request.device_class):
        raise _NotJudgedError(why)
    if request.device_class not in supply.classes:
        raise _NotJudgedError(f"there is no DeviceClass {request.device_class}")
    selectors = (*supply.classes[request.device_class], *request.selectors)
    selected = [device for device in supply.on(node) if _selects(selectors, device, request)]
    if why := next((device.not_judged for device in selected if device.not_judged), ""):
        raise _NotJudgedError(f"{request.device_class}: {why}")
    usable = [device for device in selected if not device.is_kept_from(request.tolerations)]
    parts = [part for device in usable if (part := _part(supply, device, request)) is not None]
    if len(parts) < request.count:
        raise _NoneLeftError(_too_few(request, len(selected), len(usable) - len(parts), len(selected) - len(usable)))
    if request.count > 1 and any(part.device.is_shared for part in parts):
        raise _NotJudgedError(f"request {request.name}: it asks for several parts of shared devices")
    yield from parts


def _selects(selectors: Selectors, device: OfferedDevice, request: DeviceRequest) -> bool:
    """Whether all select the device. Raises _NotJudgedError where the scheduler alone knows."""
    answers = [None if selector is None else selector.selects(device) for selector in selectors]
    if False in answers:
        return False
    if None in answers:
        raise _NotJudgedError(
            f"only the scheduler evaluates the selectors of {request.device_class} and {request.name}"
        )
    return True


def _part(supply: DeviceSupply, device: OfferedDevice, request: DeviceRequest) -> Part | None:
    """What the request would have of the device; None where that is not free."""
    wanted = {qualified(name, device.driver): amount for name, amount in request.capacity.items()}
    if len(wanted) < len(request.capacity):
        raise _NotJudgedError(f"request {request.name} names a capacity with and without its domain")
    if not wanted.keys() <= device.capacity.keys():
        return None
    if not device.is_shared:
        is_enough = all(device.capacity[name].value >= amount for name, amount in wanted.items())
        return Part(device) if is_enough and device.key not in supply.taken else None
    if device.key in supply.doubtful:
        raise _NotJudgedError(f"what claims have of {device.name} of {device.driver} cannot be read")
    used, amounts = supply.consumed.get(device.key, {}), dict[str, MilliQuantity]()
    for name, capacity in device.capacity.items():
        amount = capacity.consumed(wanted.get(name))
        if amount is None or used.get(name, 0) + amount > capacity.value:
            return None
        amounts[name] = amount
    return Part(device, amounts)


def _too_few(request: DeviceRequest, selected: int, taken: int, tainted: int) -> str:
    others = [f"{count} {what}" for count, what in ((taken, "taken or too small"), (tainted, "tainted")) if count]
    why = f" ({', '.join(others)})" if others else ""
    free = f"{selected - taken - tainted} of {selected} devices of {request.device_class} are free{why}"
    return f"{free}, and request {request.name} needs {request.count}"


def _is_on(part: Part, numa_nodes: NUMAMask, or_unknown: bool) -> bool:
    node = part.device.numa_node
    return or_unknown if node is None else bool(numa_nodes >> node & 1)


class _Assignment:
    """A device of its own for each of ``wanted``, out of those that each may have.

    Each is given one by moving those before it to others, with as few moves as can be (augmenting paths of a matching
    in a bipartite graph, breadth first).
    """

    def __init__(self, wanted: Sequence[Sequence[Part]]) -> None:
        self._wanted = wanted
        self._given = dict[int, Part]()
        self._holders = dict[DeviceKey, int]()

    def give(self, number: int) -> bool:
        """Whether this one can have a device too."""
        asked = dict[DeviceKey, tuple[int, Part]]()
        waiting = deque([number])
        while waiting:
            asking = waiting.popleft()
            for part in self._wanted[asking]:
                key = part.device.key
                if key in asked:
                    continue
                asked[key] = asking, part
                if key not in self._holders:
                    self._move(key, asked)
                    return True
                waiting.append(self._holders[key])
        return False

    def _move(self, key: DeviceKey, asked: Mapping[DeviceKey, tuple[int, Part]]) -> None:
        """Give the free device to who asked for it, what that one had to who asked for that, and so on."""
        while True:
            asking, part = asked[key]
            before = self._given.get(asking)
            self._given[asking], self._holders[key] = part, asking
            if before is None:
                return
            key = before.device.key

    def parts(self) -> tuple[Part, ...]:
        """What each has."""
        return tuple(self._given[number] for number in range(len(self._wanted)))


def _assigned(wanted: Sequence[Sequence[Part]]) -> tuple[Part, ...] | None:
    """A device of its own for each of ``wanted``; None where there are too few."""
    assignment = _Assignment(wanted)
    return assignment.parts() if all(map(assignment.give, range(len(wanted)))) else None
