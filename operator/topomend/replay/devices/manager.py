"""The Device Manager: hints from where devices stand, and which devices a container gets.

Within one choice the kubelet picks in random order unless the plugin answers GetPreferredAllocation. Replay picks the
lowest ids in natural order, which is what a plugin that answers that way makes certain.
Source: pkg/kubelet/cm/devicemanager/topology_hints.go, manager.go.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache, reduce
from operator import or_

from topomend.model.bitmask import NUMAMask, mask_of, members
from topomend.model.node_state import Device, DeviceAllocation
from topomend.model.pod import Container, ContainerKind, Pod, largest_need
from topomend.model.quantity import value
from topomend.replay import qos
from topomend.replay.errors import Rejection, unexpected
from topomend.replay.gates import Gates
from topomend.replay.topology.hints import Answer, Family, Hints, Offer, ResourceOffer, Threshold, hints_or, touching
from topomend.replay.topology.merge import least_width

PROVIDER = "device"

MAX_NUMA_ID = 63
"""A mask has 64 bits; what stands elsewhere touches none (bitmask.go:IsSet)."""

_DIGITS = re.compile(r"(\d+)")


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Sorts ``gpu-2`` before ``gpu-10``."""
    return [
        (0, int(part), "") if part.isascii() and part.isdigit() and len(part) < 19 else (1, 0, part)
        for part in _DIGITS.split(text)
        if part
    ]


@lru_cache(maxsize=1024)
def numa_mask(numa_nodes: tuple[int, ...] | None) -> NUMAMask:
    """The NUMA nodes that a device stands on, as far as a mask can tell."""
    return mask_of(node for node in numa_nodes or () if 0 <= node <= MAX_NUMA_ID)


class DevicePool:
    """The devices of one resource: all, healthy ones, and those in use, by id."""

    def __init__(self, devices: Iterable[Device] = ()) -> None:
        self.all = {device.id: device for device in devices}
        self.healthy = {name for name, device in self.all.items() if device.healthy}
        self.in_use: set[str] = set()

    @property
    def registered(self) -> bool:
        """Whether a plugin offers the resource."""
        return bool(self.all)

    @property
    def numa_aware(self) -> bool:
        """Whether any device names a NUMA node, be it one that does not exist (deviceHasTopologyAlignment)."""
        return any(device.numa_nodes for device in self.all.values())

    def free(self) -> set[str]:
        """The devices that may be given."""
        return self.healthy - self.in_use

    def masks(self) -> list[NUMAMask]:
        """Where each device stands."""
        return [numa_mask(device.numa_nodes) for device in self.all.values()]

    def numa_nodes_of(self, device: str) -> tuple[int, ...] | None:
        """Where a device stands; None where that is not known, or the device is gone."""
        known = self.all.get(device)
        return known.numa_nodes if known else None


def universe_of(devices: Iterable[NUMAMask], numa_nodes: NUMAMask, gates: Gates) -> NUMAMask:
    """The NUMA nodes that masks are made of: those that host one of the devices, since 1.36 (deviceNUMANodes)."""
    if not gates.device_nodes_only:
        return numa_nodes
    return reduce(or_, devices, 0) & numa_nodes or numa_nodes


class DeviceManager:
    """The manager at work on one pod.

    ``pools`` are the node's devices by resource, ``held`` maps the pod's containers to their devices by resource.
    """

    def __init__(
        self,
        gates: Gates,
        numa_nodes: NUMAMask,
        devices: Iterable[Device],
        others: Iterable[DeviceAllocation],
        held: Mapping[str, Iterable[DeviceAllocation]],
    ) -> None:
        self._gates = gates
        self._numa_nodes = numa_nodes
        by_resource: dict[str, list[Device]] = {}
        for device in devices:
            by_resource.setdefault(device.resource, []).append(device)
        self._pools = {resource: DevicePool(pool) for resource, pool in by_resource.items()}
        self.held = {name: {each.resource: set(each.ids) for each in allocations} for name, allocations in held.items()}
        for allocation in others:
            self._pool(allocation.resource).in_use.update(allocation.ids)
        for allocations in self.held.values():
            for resource, ids in allocations.items():
                self._pool(resource).in_use.update(ids)
        self._reusable: dict[str, set[str]] = {}

    def _pool(self, resource: str) -> DevicePool:
        return self._pools.setdefault(resource, DevicePool())

    def hints(self, container: Container) -> list[ResourceOffer]:
        """The container's hints (GetTopologyHints)."""
        offers = []
        for resource, count in self._requests(container.resources.limits):
            held = self.held.get(container.name, {}).get(resource, set())
            offers.append(self._offer(resource, count, held, self._reusable.get(resource, set())))
        return offers

    def pod_hints(self, pod: Pod) -> list[ResourceOffer]:
        """The pod's hints, which look at no reusable device (GetPodTopologyHints, PodLimits)."""
        offers = []
        for resource, count in self._requests(_pod_limits(pod)):
            held: set[str] = set().union(*(own.get(resource, set()) for own in self.held.values()))
            offers.append(self._offer(resource, count, held, set()))
        return offers

    def allocate(self, pod: Pod, container: Container, affinity: NUMAMask | None) -> Rejection | None:
        """Give the container its devices (Allocate, allocateContainerResources)."""
        for resource, count in self._requests(container.resources.limits):
            chosen = self._choose(pod, container, resource, count, affinity)
            if isinstance(chosen, str):
                return unexpected(chosen)
            if chosen:
                self.held.setdefault(container.name, {})[resource] = chosen
        for resource, held in self.held.get(container.name, {}).items():
            reusable = self._reusable.get(resource, set())
            self._reusable[resource] = reusable | held if container.kind is ContainerKind.INIT else reusable - held
        return None

    def allocations(self, container: str) -> tuple[DeviceAllocation, ...]:
        """What the container holds."""
        return tuple(
            DeviceAllocation(resource, tuple(sorted(ids, key=natural_key)))
            for resource, ids in sorted(self.held.get(container, {}).items())
            if ids
        )

    def numa_nodes_of(self, allocation: DeviceAllocation) -> NUMAMask:
        """The NUMA nodes that the devices of an allocation stand on."""
        pool, mask = self._pool(allocation.resource), 0
        for device in allocation.ids:
            mask |= numa_mask(pool.numa_nodes_of(device))
        return mask

    def _requests(self, limits: Mapping[str, int]) -> list[tuple[str, int]]:
        """The resources among the limits that a plugin offers or a pod holds (isDevicePluginResource), by name."""
        return [(name, value(limits[name])) for name in sorted(limits) if name in self._pools]

    def _offer(self, resource: str, count: int, held: set[str], reusable: set[str]) -> ResourceOffer:
        pool = self._pool(resource)
        free = pool.free()
        return ResourceOffer(
            PROVIDER, resource, count, self._free_per_node(pool, free), self._answer(pool, count, held, free, reusable)
        )

    def _answer(self, pool: DevicePool, count: int, held: set[str], free: set[str], reusable: set[str]) -> Offer:
        if not pool.numa_aware:
            return Answer.NO_PREFERENCE
        if held:
            return self._generate(pool, held, set(), count) if len(held) == count else Answer.IMPOSSIBLE
        if len(free | reusable) < count:
            return Answer.IMPOSSIBLE
        return self._generate(pool, free, reusable, count)

    def _generate(self, pool: DevicePool, free: set[str], reusable: set[str], count: int) -> Offer:
        """Every mask that enough free devices touch and every reusable one does (generateDeviceTopologyHints).

        The preferred width is what the request would need if every device were healthy and free.
        """
        universe = universe_of(pool.masks(), self._numa_nodes, self._gates)
        local = [name for name in reusable if pool.numa_nodes_of(name) is not None]
        thresholds = [Threshold(self._groups(pool, free), count - len(local))]
        thresholds += {touching(numa_mask(pool.numa_nodes_of(name))) for name in local}
        width = least_width(Family(universe, (Threshold(self._groups(pool, pool.all), count),)))
        family = Family(universe, tuple(thresholds))
        return hints_or(Answer.IMPOSSIBLE, Hints((family,), width=universe.bit_count() if width is None else width))

    @staticmethod
    def _groups(pool: DevicePool, names: Iterable[str]) -> tuple[tuple[NUMAMask, int], ...]:
        counts: dict[NUMAMask, int] = {}
        for name in names:
            mask = numa_mask(pool.numa_nodes_of(name))
            if mask:
                counts[mask] = counts.get(mask, 0) + 1
        return tuple(sorted(counts.items()))

    def _free_per_node(self, pool: DevicePool, free: set[str]) -> tuple[tuple[int, int], ...]:
        counts = dict.fromkeys(members(universe_of(pool.masks(), self._numa_nodes, self._gates)), 0)
        for name in free:
            for node in members(numa_mask(pool.numa_nodes_of(name))):
                if node in counts:
                    counts[node] += 1
        return tuple(counts.items())

    def _choose(
        self, pod: Pod, container: Container, resource: str, count: int, affinity: NUMAMask | None
    ) -> set[str] | str:
        """The devices for one resource, empty where nothing is to be done, or the error (devicesToAllocate)."""
        pool = self._pool(resource)
        held = self.held.get(container.name, {}).get(resource)
        if held is not None and len(held) != count:
            return (
                f'pod "{pod.uid}" container "{container.name}" changed request for resource "{resource}" '
                f"from {len(held)} to {count}"
            )
        if not pool.registered:
            return f"cannot allocate unregistered device {resource}"
        if not pool.healthy:
            return f"no healthy devices present; cannot allocate unhealthy devices {resource}"
        if held is not None and not held <= pool.healthy:
            return f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
        if held is not None or count == 0:
            return set()
        chosen = set(sorted(self._reusable.get(resource, set()), key=natural_key)[: max(0, count)])
        free = pool.free() - chosen
        needed = count - len(chosen)
        if needed == 0:
            return chosen
        if len(free) < needed:
            return (
                f"requested number of devices unavailable for {resource}. Requested: {needed}, Available: {len(free)}"
            )
        aligned = {name for name in free if pool.numa_aware and self._touches(pool, name, affinity)}
        for each in (aligned, free - aligned):
            chosen.update(sorted(each, key=natural_key)[: count - len(chosen)])
        pool.in_use |= chosen
        return chosen

    @staticmethod
    def _touches(pool: DevicePool, name: str, affinity: NUMAMask | None) -> bool:
        return affinity is not None and bool(numa_mask(pool.numa_nodes_of(name)) & affinity)


def _pod_limits(pod: Pod) -> dict[str, int]:
    """The pod's limits without overhead (component-helpers/resource:PodLimits).

    Pod-level limits cannot name devices, and other resources are none of the manager's.
    """
    names = dict.fromkeys(name for container in pod.containers for name in container.resources.limits)
    limits = {
        name: largest_need((container.kind, container.resources.limits.get(name, 0)) for container in pod.containers)
        for name in names
    }
    if qos.has_pod_level_resources(pod) and pod.resources is not None:
        limits.update(pod.resources.limits)
    return limits
