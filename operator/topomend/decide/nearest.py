"""The nearest amounts with which a node would admit a pod that it refuses: one amount changed, all else as it was.

An amount is what one container asks of one resource, and it changes in steps: a CPU, a device, a huge page, 64Mi of
memory. Request and limit change together, so the pod keeps its QoS class. The answer is exact although admission is not
monotonic in the amount (24 CPUs may be refused where 16 and 32 are admitted): every amount between the asked and the
admitted one is known to be refused, each by one of three means.

- A replay that refuses it (``replay.admission.is_admitted``).
- For memory, a replay of another amount in which every comparison came out the same (``amount_range``).
- A necessary condition that it misses: that the container (in scope pod: the pod) could be merged and could be given
  what it asks if nothing else changed. Offers shrink and preferred widths grow with the amount, so whole ranges are
  skipped by bisection.

Owns the search. Leaves every rule of admission to ``replay``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from math import prod
from operator import and_

from topomend.decide.amount_range import NotLinear, Range, TrackedAmount
from topomend.model.bitmask import NUMAMask, members
from topomend.model.node_state import NodeState
from topomend.model.pod import Container, ContainerKind, Pod, Resources
from topomend.model.quantity import InvalidQuantity, MilliQuantity, as_int64, is_whole, parse_quantity, value
from topomend.replay import qos
from topomend.replay.admission import allocation_of, is_admitted, providers_of
from topomend.replay.container_manager import ContainerManager, start
from topomend.replay.cpu import static as cpu_static
from topomend.replay.devices import manager as device_manager
from topomend.replay.errors import KubeletBreaks
from topomend.replay.memory import static as memory_static
from topomend.replay.scopes import Providers, Scope
from topomend.replay.topology.hints import Answer, Hints, ResourceOffer
from topomend.replay.topology.merge import TABLED_NODES, common_preferred_masks, list_lengths
from topomend.replay.topology.policies import BEST_EFFORT, NONE, RESTRICTED, SINGLE_NUMA_NODE
from topomend.replay.topology.walk_time import is_too_long

MEMORY_STEP = 64 << 20

_NEVER = 1 << 30
"""More NUMA nodes than any request prefers: the width of a request that no NUMA nodes can hold."""


@dataclass(frozen=True, slots=True)
class NearestAmount:
    """One amount that would have the pod admitted: in CPUs, bytes or devices.

    ``admitted`` is the amount closest to ``asked``, more or less than it; of two that are equally close the smaller.
    """

    container: str
    resource: str
    asked: int
    admitted: int


def nearest_amounts(node: NodeState, pod: Pod) -> tuple[NearestAmount, ...]:
    """For each amount of a refused pod whose change alone would have it admitted, the nearest such amount.

    In the order of containers and of their resources by name. Empty where no single change helps, for a pod that
    already holds something on the node, where the kubelet would not start, and beyond 17 NUMA nodes under restricted
    and best-effort.
    """
    kubelet = start(node.machine, node.kubelet)
    if isinstance(kubelet, str) or allocation_of(node, pod.namespace, pod.name, pod.uid) is not None:
        return ()
    policy = node.kubelet.topology_manager_policy
    if policy in {RESTRICTED, BEST_EFFORT} and kubelet.numa.nodes.bit_count() > TABLED_NODES:
        return ()
    classed = replace(pod, qos_class=qos.qos_class(pod, kubelet.gates))
    try:
        return tuple(_Refused(node, kubelet, classed).nearest())
    except KubeletBreaks:  # whatever is asked, as where a NUMA node does not fit the kubelet's masks
        return ()


@dataclass(frozen=True, slots=True)
class _Amount:
    """The amount that is varied: number ``k`` is ``asked + k * step``, for ``first <= k <= last``."""

    position: int
    container: str
    resource: str
    provider: str
    asked: int
    step: int
    first: int
    last: int

    def at(self, k: int) -> int:
        """Amount number ``k``."""
        return self.asked + k * self.step


@dataclass
class _Refused:
    """A refused pod on its node. The pod's QoS class is set."""

    node: NodeState
    kubelet: ContainerManager
    pod: Pod
    _units: dict[int | None, "_Unit | None"] = field(default_factory=dict)

    def nearest(self) -> Iterator[NearestAmount]:
        hopeless = self._hopeless
        if len(hopeless) > 1:
            return
        for amount in self._amounts():
            if not hopeless or amount.position in hopeless:
                nearest = self._nearest(amount)
                if nearest is not None:
                    yield NearestAmount(amount.container, amount.resource, amount.asked, nearest)

    @cached_property
    def policy(self) -> str:
        return self.node.kubelet.topology_manager_policy

    @cached_property
    def by_container(self) -> bool:
        """Whether containers are merged one by one, or not at all."""
        return self.policy == NONE or self.node.kubelet.topology_manager_scope == "container"

    @cached_property
    def fresh(self) -> Providers:
        """The managers before the pod."""
        return providers_of(self.kubelet, self.node, None)

    @cached_property
    def _hopeless(self) -> frozenset[int]:
        """The containers that fail by themselves, whatever the others are given.

        Not known on uneven cores where init containers may leave reserved CPUs, which the kubelet took with their
        cores, to the containers after them.
        """
        if self.pod.resources is not None:  # in scope pod AllocatePod gives no devices
            return frozenset()
        cpu = self.kubelet.cpu
        has_init = any(container.kind is ContainerKind.INIT for container in self.pod.containers)
        if cpu is not None and not cpu.topology.is_even and has_init:
            return frozenset()
        failing = []
        for position, container in enumerate(self.pod.containers):
            unit = _Unit(self, self.fresh, self.pod, position if self.by_container else None)
            if not unit.could_allocate(container) or (self.by_container and not unit.could_merge()):
                failing.append(position)
        return frozenset(failing)

    def _amounts(self) -> Iterator[_Amount]:
        pinned = qos.is_guaranteed(self.pod, self.kubelet.gates) and not qos.is_skipped(self.pod, self.kubelet.gates)
        for position, container in enumerate(self.pod.containers):
            requests, limits = container.resources.requests, container.resources.limits
            for resource in sorted({*requests, *limits}):
                if resource == qos.CPU or qos.is_memory(resource):
                    quantity, relevant = requests.get(resource, 0), pinned
                else:
                    quantity, relevant = limits.get(resource, 0), resource in limits
                amount = self._amount(position, container.name, resource, quantity) if relevant else None
                if amount is not None:
                    yield amount

    def _amount(self, position: int, name: str, resource: str, quantity: MilliQuantity) -> _Amount | None:
        """The amount, None where it changes nothing: a fraction of a CPU, or what no manager gives."""
        if resource == qos.CPU:
            if self.kubelet.cpu is None or not is_whole(quantity):
                return None
            provider, most = cpu_static.PROVIDER, self.kubelet.cpu.topology.cpus.bit_count()
            asked, step = value(quantity), 1
        elif qos.is_memory(resource):
            size = as_int64(quantity)
            if self.kubelet.memory is None or size is None:
                return None
            provider, asked, step = memory_static.PROVIDER, size, _memory_step(resource)
            # By the kubelet's unsigned sum nearly 16Ei are allocatable where more is set aside than there is.
            allocatable = sum(sizes.get(resource, 0) for sizes in self.kubelet.memory.allocatable.values())
            most = min(allocatable, sum(node.memory for node in self.node.machine.numa_nodes))
        else:
            most = sum(device.resource == resource for device in self.node.devices)
            provider, asked, step = device_manager.PROVIDER, value(quantity), 1
        if step == 0:
            return None
        first, last = -((asked - 1) // step), (most - asked) // step
        return _Amount(position, name, resource, provider, asked, step, first, last)

    def _nearest(self, amount: _Amount) -> int | None:
        search = _Search.begin(self, amount)
        if search is None:
            return None
        below = search.first_admitted(-1, amount.first)
        bound = amount.last if below is None else min(amount.last, -below - 1)
        above = search.first_admitted(1, bound)
        found = below if above is None else above
        return None if found is None else amount.at(found)

    def unit_at(self, position: int) -> "_Unit | None":
        """What is merged with the container at ``position``; None where the pod fails before that.

        In scope pod it is the pod, whatever the container.
        """
        merged = position if self.by_container else None
        if merged not in self._units:
            providers = _providers_before(self, position)
            self._units[merged] = None if providers is None else _Unit(self, providers, self.pod, merged)
        return self._units[merged]

    def with_amount(self, amount: _Amount, quantity: MilliQuantity) -> Pod:
        """The pod with another amount, as request and as limit."""
        return with_quantity(self.pod, amount.position, amount.resource, quantity)

    @cached_property
    def memory_is_sure(self) -> bool:
        """Whether memory that has no hint is never given.

        It could be where a NUMA node of a group may be used on its own. Then the other nodes of the group say so too,
        unless the groups contradict each other, or the kubelet is too old to check them.
        """
        if self.fresh.memory is None:
            return True
        nodes = self.fresh.memory.machine_state.nodes
        grouped = [page for page in nodes.values() if page.cells.bit_count() > 1]
        return self.kubelet.gates.refuses_mixed_groups and all(
            page.assignments
            and all(
                other.cells == page.cells and other.assignments
                for number, other in nodes.items()
                if page.cells >> number & 1
            )
            for page in grouped
        )


def with_quantity(pod: Pod, position: int, resource: str, quantity: MilliQuantity) -> Pod:
    """The pod with another amount of ``resource`` in the container at ``position``, wherever that names it."""
    container = pod.containers[position]
    changed = Resources(
        _changed(container.resources.requests, resource, quantity),
        _changed(container.resources.limits, resource, quantity),
    )
    before, after = pod.containers[:position], pod.containers[position + 1 :]
    return replace(pod, containers=(*before, replace(container, resources=changed), *after))


def _changed(amounts: Mapping[str, MilliQuantity], resource: str, quantity: MilliQuantity) -> dict[str, MilliQuantity]:
    return {**amounts, resource: quantity} if resource in amounts else dict(amounts)


def _memory_step(resource: str) -> int:
    """64Mi of memory, or the size of the page, which the resource's name says."""
    if resource == qos.MEMORY:
        return MEMORY_STEP
    try:
        return parse_quantity(resource.removeprefix(qos.HUGEPAGES_PREFIX)) // 1000
    except InvalidQuantity:
        return 0


@dataclass
class _Unit:
    """What is merged at once: a container (``position``), or the whole pod. ``providers`` stand right before it."""

    refused: _Refused
    providers: Providers
    pod: Pod
    position: int | None
    _common: dict[tuple[str, str], Mapping[int, list[NUMAMask]] | None] = field(default_factory=dict)

    @property
    def container(self) -> Container | None:
        """The container that is merged, None for the whole pod."""
        return None if self.position is None else self.pod.containers[self.position]

    def offers(self, pod: Pod, provider: str = "") -> list[ResourceOffer]:
        """The offers for this container of ``pod`` or all of it: of one manager, or of all."""
        managers = {
            device_manager.PROVIDER: self.providers.devices,
            cpu_static.PROVIDER: self.providers.cpu,
            memory_static.PROVIDER: self.providers.memory,
        }
        offers: list[ResourceOffer] = []
        for name, manager in managers.items():
            if manager is not None and provider in {"", name}:
                offers += self._asked(manager, pod)
        return offers

    def _asked(
        self, manager: "device_manager.DeviceManager | cpu_static.CPUManager | memory_static.MemoryManager", pod: Pod
    ) -> list[ResourceOffer]:
        if isinstance(manager, device_manager.DeviceManager):
            return manager.pod_hints(pod) if self.position is None else manager.hints(pod.containers[self.position])
        return manager.pod_hints(pod) if self.position is None else manager.hints(pod, pod.containers[self.position])

    @cached_property
    def _all(self) -> list[ResourceOffer] | None:
        """All offers as the pod is, None where asking for them breaks the kubelet."""
        try:
            return self.offers(self.pod)
        except KubeletBreaks:
            return None

    def could_merge(self, without: _Amount | None = None) -> bool:
        """Whether the policy could admit the merge, if the amount ``without`` were another one."""
        common = self.common(without)
        return common is None or bool(common)

    def common(self, without: _Amount | None = None) -> Mapping[int, list[NUMAMask]] | None:
        """The masks that the policy could admit and that all resources but that of ``without`` offer and prefer.

        By width; None where the policy admits whatever is merged.
        """
        key = (without.provider, without.resource) if without else ("", "")
        if key not in self._common:
            masks = self._common_masks(without)
            self._common[key] = None if masks is None else _by_width(masks)
        return self._common[key]

    def _common_masks(self, without: _Amount | None) -> list[NUMAMask] | None:
        policy, numa = self.refused.policy, self.refused.kubelet.numa
        if policy in {NONE, BEST_EFFORT}:
            return None
        others = [offer for offer in self._all or () if not _is_of(offer, without)]
        if any(offer.offer is Answer.IMPOSSIBLE for offer in others):
            return []
        if not self.refused.memory_is_sure:
            others = [offer for offer in others if offer.provider != memory_static.PROVIDER]
        hints = _distinct(others)
        if policy == SINGLE_NUMA_NODE:
            nodes = reduce(and_, (offer.preferred_nodes() for offer in hints), numa.nodes)
            return [1 << number for number in members(nodes)]
        return common_preferred_masks(numa, hints)

    def could_allocate(self, container: Container, without: _Amount | None = None) -> bool:
        """Whether the managers have enough in all for the container, the amount ``without`` left out."""
        varied = without.provider if without else ""
        if self._all is None:
            return False
        if varied != cpu_static.PROVIDER and not self._could_take_cpus(container):
            return False
        if not self.providers.devices.has_enough(container, without.resource if without else ""):
            return False
        return varied == memory_static.PROVIDER or self._could_take_memory()

    def _could_take_cpus(self, container: Container) -> bool:
        cpu, pod = self.providers.cpu, self.pod
        return cpu is None or (cpu.has_enough(pod, container) and not cpu.divides_cores(pod, container))

    def _could_take_memory(self) -> bool:
        """A container whose memory has no hint is refused at its allocation."""
        answers = [offer.offer for offer in self._all or () if offer.provider == memory_static.PROVIDER]
        sure = self.position is not None and self.refused.memory_is_sure
        return not sure or Answer.NO_PREFERENCE not in answers


def _by_width(masks: Iterable[NUMAMask]) -> dict[int, list[NUMAMask]]:
    by_width: dict[int, list[NUMAMask]] = {}
    for mask in masks:
        by_width.setdefault(mask.bit_count(), []).append(mask)
    return by_width


def _is_of(offer: ResourceOffer, amount: _Amount | None) -> bool:
    """Whether the offer changes with the amount: all kinds of memory are offered together."""
    if amount is None or offer.provider != amount.provider:
        return False
    return offer.provider == memory_static.PROVIDER or offer.resource == amount.resource


def _distinct(offers: list[ResourceOffer]) -> list[Hints]:
    """The hints among the offers, without those that all kinds of memory repeat."""
    hints = [offer.offer for offer in offers if isinstance(offer.offer, Hints)]
    return list({id(offer): offer for offer in hints}.values())


@dataclass
class _Search:
    """The search for one amount.

    ``common`` are the masks that suit everything else, by width; None where the policy admits every mask.
    """

    refused: _Refused
    amount: _Amount
    unit: _Unit
    common: Mapping[int, list[NUMAMask]] | None
    _known: dict[int, tuple[int, bool]] = field(default_factory=dict)

    @classmethod
    def begin(cls, refused: _Refused, amount: _Amount) -> "_Search | None":
        """The search, None where the pod fails whatever the amount is."""
        unit = refused.unit_at(amount.position)
        if unit is None:
            return None
        if refused.by_container and not unit.could_allocate(refused.pod.containers[amount.position], amount):
            return None
        common = unit.common(amount)
        return None if common == {} else cls(refused, amount, unit, common)

    def first_admitted(self, direction: int, end: int) -> int | None:
        """The first number from the asked amount on in ``direction`` (-1, 1), up to ``end``, that is admitted."""
        k = direction
        while (end - k) * direction >= 0:
            possible = self._next_possible(k, direction, end)
            if possible is None:
                return None
            if self._hangs(possible):
                if direction < 0:  # less is offered on more masks yet
                    return None
                k = self._bisect(possible, end + 1, lambda number: not self._hangs(number))
                continue
            if self._divides_cores(possible):
                k = possible + direction
                continue
            admitted, last = self._replayed(possible, direction)
            if admitted:
                return possible
            k = last + direction
        return None

    def _replayed(self, k: int, direction: int) -> tuple[bool, int]:
        """Whether amount ``k`` is admitted, and the furthest amount in ``direction`` for which the same holds."""
        amount, node = self.amount, self.refused.node
        if amount.provider != memory_static.PROVIDER:
            return is_admitted(node, self._pod(k)), k
        seen = Range()
        quantity = TrackedAmount.of(amount.at(k), 1000, seen)
        try:
            admitted = is_admitted(node, self.refused.with_amount(amount, quantity))
        except NotLinear:
            return is_admitted(node, self._pod(k)), k
        if direction < 0:
            last = amount.first if seen.least is None else -((amount.asked - seen.least) // amount.step)
            return admitted, min(k, max(amount.first, last))
        last = amount.last if seen.most is None else (seen.most - amount.asked) // amount.step
        return admitted, max(k, min(amount.last, last))

    def _pod(self, k: int) -> Pod:
        return self.refused.with_amount(self.amount, self.amount.at(k) * 1000)

    def _divides_cores(self, k: int) -> bool:
        cpu = self.unit.providers.cpu
        if cpu is None or self.amount.provider != cpu_static.PROVIDER:
            return False
        pod = self._pod(k)
        return cpu.divides_cores(pod, pod.containers[self.amount.position])

    @cached_property
    def _other_lengths(self) -> int:
        """How many permutations the other resources alone make; 0 where no amount can make too many."""
        if self.refused.policy not in {RESTRICTED, BEST_EFFORT}:
            return 0
        offers = self.unit.offers(self.unit.pod)
        numa = self.refused.kubelet.numa
        if not is_too_long(((1 << numa.nodes.bit_count()) - 1) ** len(offers)):
            return 0
        others = [offer.offer for offer in offers if not _is_of(offer, self.amount)]
        return prod(list_lengths(numa, [offer for offer in others if isinstance(offer, Hints)]))

    def _hangs(self, k: int) -> bool:
        """Whether the kubelet would merge for too long."""
        if not self._other_lengths:
            return False
        own = [
            offer.offer for offer in self.unit.offers(self._pod(k), self.amount.provider) if _is_of(offer, self.amount)
        ]
        lengths = list_lengths(self.refused.kubelet.numa, [offer for offer in own if isinstance(offer, Hints)])
        return is_too_long(self._other_lengths * prod(lengths))

    def _next_possible(self, k: int, direction: int, end: int) -> int | None:
        """The first number from ``k`` on that meets the necessary condition.

        The numbers fall into ranges of one preferred width, which grows with the amount. Within a range less is
        possible wherever more is.
        """
        while (end - k) * direction >= 0:
            width, possible = self._condition(k)
            if possible:
                return k
            if direction > 0:
                if width == _NEVER:
                    return None
                k = self._first_of_width(k, end + 1, width + 1)
                continue
            least = self._first_of_width(end, k, width)
            if self._condition(least)[1]:
                return self._bisect(least, k, lambda number: not self._condition(number)[1]) - 1
            k = least - 1
        return None

    def _first_of_width(self, low: int, high: int, width: int) -> int:
        """The first number that prefers at least so many NUMA nodes."""
        return self._bisect(low, high, lambda number: self._condition(number)[0] >= width)

    @staticmethod
    def _bisect(low: int, high: int, holds: Callable[[int], bool]) -> int:
        """The first number from ``low`` on, ``high`` at most, for which ``holds``; it holds for all after the first."""
        while low < high:
            middle = (low + high) // 2
            if holds(middle):
                high = middle
            else:
                low = middle + 1
        return low

    def _condition(self, k: int) -> tuple[int, bool]:
        """The width that amount ``k`` prefers, and whether the unit could be merged and given its resources then."""
        known = self._known.get(k)
        if known is None:
            known = self._known[k] = self._worked_out(k)
        return known

    def _worked_out(self, k: int) -> tuple[int, bool]:
        amount, refused, pod = self.amount, self.refused, self._pod(k)
        if not self._has_enough(pod):
            return _NEVER, False
        offers = self.unit.offers(pod, amount.provider)
        own = next((offer.offer for offer in offers if _is_of(offer, amount)), None)
        if own is None:
            return _NEVER, True
        if own is Answer.IMPOSSIBLE:
            return _NEVER, self.common is None
        if own is Answer.NO_PREFERENCE:
            is_memory = amount.provider == memory_static.PROVIDER
            return _NEVER, not (is_memory and refused.by_container and refused.memory_is_sure)
        return self._of_hints(own)

    def _of_hints(self, own: Hints) -> tuple[int, bool]:
        if self.common is None:
            return 0, True
        width = own.width or 0
        if own.sockets is None and own.width is not None:
            masks = self.common.get(width, [])
        else:
            masks = [mask for masks in self.common.values() for mask in masks]
        return width, any(own.prefers(mask) and own.offers(mask) for mask in masks)

    def _has_enough(self, pod: Pod) -> bool:
        """Whether the manager has enough for the container in all; memory is left to its hints."""
        if pod.resources is not None:
            return True
        container, providers = pod.containers[self.amount.position], self.unit.providers
        if self.amount.provider == device_manager.PROVIDER:
            return providers.devices.has_enough(container)
        return (
            self.amount.provider != cpu_static.PROVIDER
            or providers.cpu is None
            or providers.cpu.has_enough(pod, container)
        )


def _providers_before(refused: _Refused, position: int) -> Providers | None:
    """The managers after the containers before ``position``; None where one of these is refused.

    In scope pod nothing is given before the merge.
    """
    if not refused.by_container or position == 0:
        return refused.fresh
    providers = providers_of(refused.kubelet, refused.node, None)
    settings, kubelet = refused.node.kubelet, refused.kubelet
    scope = Scope(
        settings.topology_manager_policy,
        kubelet.numa,
        kubelet.gates,
        providers,
        kubelet.prefer_most_allocated,
        traces=False,
    )
    try:
        before = scope.admit(replace(refused.pod, containers=refused.pod.containers[:position]), "container")
    except KubeletBreaks:
        return None
    return providers if before.rejection is None else None
