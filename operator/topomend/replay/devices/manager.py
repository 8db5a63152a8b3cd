"""The Device Manager: hints from the NUMA nodes of devices, and the allocation of devices to containers.

Among equally good devices the kubelet picks at random unless the plugin implements GetPreferredAllocation. Replay picks
the lowest ids in natural order, as such plugins do.
Source: pkg/kubelet/cm/devicemanager/topology_hints.go, manager.go.
"""

from collections.abc import Collection, Iterable, Mapping
from copy import copy
from functools import lru_cache, reduce
from operator import or_

from topomend.base.natural_order import natural_key
from topomend.model.bitmask import NUMAMask, mask_of, members
from topomend.model.nodes.node_state import Device, DeviceAllocation
from topomend.model.pods.pod import Container, ContainerKind, Pod, largest_need
from topomend.model.quantity import value
from topomend.replay import qos
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.errors import Rejection, unexpected
from topomend.replay.gates import Gates
from topomend.replay.topology.hints import Answer, Family, Hints, Offer, ResourceOffer, Threshold, hints_or, touching
from topomend.replay.topology.merge import least_width
from topomend.replay.topology.walk_time import check_list

PROVIDER = "device"

MAX_NUMA_ID = 63
"""The highest NUMA id in the kubelet's 64-bit masks. A device on a higher one matches no mask (bitmask.go:IsSet)."""


@lru_cache(maxsize=1024)
def numa_mask(numa_nodes: tuple[int, ...] | None) -> NUMAMask:
    """The NUMA nodes of a device, without those that do not fit the kubelet's masks."""
    return mask_of(node for node in numa_nodes or () if 0 <= node <= MAX_NUMA_ID)


class DevicePool:
    """The devices of one resource: ``all`` by id, and the ids of those that are ``healthy`` and ``in_use``.

    ``registered`` is whether a device plugin has registered the resource. If it is ``stopped``, it did so before the
    kubelet restarted: the kubelet has no device then, and remembers the NUMA nodes of those in use.
    """

    def __init__(self, devices: Iterable[Device] = (), *, registered: bool = False, stopped: bool = False) -> None:
        self.registered = registered
        self._known = {device.id: device for device in devices}
        self.all = {} if stopped else self._known
        self.healthy = {name for name, device in self.all.items() if device.healthy}
        self.in_use: set[str] = set()

    def copy(self) -> "DevicePool":
        """The same devices, in use by themselves."""
        copied = copy(self)
        copied.in_use = set(self.in_use)
        return copied

    @property
    def numa_aware(self) -> bool:
        """Whether any device reports a NUMA node, even one that does not exist (deviceHasTopologyAlignment)."""
        return any(device.numa_nodes for device in self.all.values())

    def free(self) -> set[str]:
        """The ids of healthy devices that are not in use."""
        return self.healthy - self.in_use

    def masks(self) -> list[NUMAMask]:
        """The NUMA nodes of each device."""
        return [numa_mask(device.numa_nodes) for device in self.all.values()]

    def numa_nodes_of(self, name: str) -> tuple[int, ...] | None:
        """The NUMA ids that the device ``name`` reports; None if it reports none or no longer exists."""
        device = self._known.get(name)
        return device.numa_nodes if device else None


def pools_of(devices: Iterable[Device], stopped: Collection[str] = ()) -> dict[str, DevicePool]:
    """The pools by resource. Of ``stopped`` resources the plugin is not back since the kubelet's restart."""
    by_resource: dict[str, list[Device]] = {resource: [] for resource in stopped}
    for device in devices:
        by_resource.setdefault(device.resource, []).append(device)
    return {
        resource: DevicePool(pool, registered=True, stopped=resource in stopped)
        for resource, pool in by_resource.items()
    }


def universe_of(devices: Iterable[NUMAMask], numa_nodes: NUMAMask, gates: Gates) -> NUMAMask:
    """The NUMA nodes of which hints consist: since 1.36 only those with a device of the resource (deviceNUMANodes)."""
    if not gates.device_nodes_only:
        return numa_nodes
    return reduce(or_, devices, 0) & numa_nodes or numa_nodes


class DeviceManager:
    """The Device Manager during the admission of one pod.

    ``pools`` have all devices of the node; nothing else may use them. ``other_allocations`` are those of other pods.
    ``allocated`` maps the pod's containers to their devices. ``running`` are those of its containers that a kubelet
    that is not ready yet found running.
    """

    def __init__(  # noqa: PLR0913  what the manager knows of a node
        self,
        gates: Gates,
        numa_nodes: NUMAMask,
        pools: dict[str, DevicePool],
        other_allocations: Iterable[DeviceAllocation],
        allocated: Mapping[str, Iterable[DeviceAllocation]],
        *,
        effort: Effort = UNLIMITED,
    ) -> None:
        self._gates, self._effort = gates, effort
        self._numa_nodes = numa_nodes
        self.running: Collection[str] = ()
        self._pools = pools
        self.allocated = {
            name: {allocation.resource: set(allocation.ids) for allocation in allocations}
            for name, allocations in allocated.items()
        }
        for allocation in other_allocations:
            self._pool(allocation.resource).in_use.update(allocation.ids)
        for allocations in self.allocated.values():
            for resource, ids in allocations.items():
                self._pool(resource).in_use.update(ids)
        self._reusable: dict[str, set[str]] = {}

    def copy(self) -> "DeviceManager":
        """The same manager in a state of its own."""
        copied = copy(self)
        copied._pools = {resource: pool.copy() for resource, pool in self._pools.items()}
        copied.allocated = {name: dict(by_resource) for name, by_resource in self.allocated.items()}
        copied._reusable = dict(self._reusable)
        return copied

    def without_devices(self) -> "DeviceManager":
        """The manager of a node on which no plugin has registered a resource."""
        return DeviceManager(self._gates, self._numa_nodes, {}, (), {}, effort=self._effort)

    def _pool(self, resource: str) -> DevicePool:
        return self._pools.setdefault(resource, DevicePool())

    def hints(self, container: Container) -> list[ResourceOffer]:
        """The container's hints (GetTopologyHints)."""
        offers = []
        for resource, count in self._requests(container.resources.limits):
            allocated = self.allocated.get(container.name, {}).get(resource, set())
            offers.append(self._offer(resource, count, allocated, self._reusable.get(resource, set())))
        return offers

    def pod_hints(self, pod: Pod) -> list[ResourceOffer]:
        """The pod's hints, which ignore reusable devices (GetPodTopologyHints, PodLimits)."""
        offers = []
        for resource, count in self._requests(_pod_limits(pod)):
            allocated: set[str] = set().union(
                *(by_resource.get(resource, set()) for by_resource in self.allocated.values())
            )
            offers.append(self._offer(resource, count, allocated, set()))
        return offers

    def lacks(self, pod: Pod) -> set[str]:
        """The resources of which the pod needs more devices at any one time than are free before it.

        Empty where devices are not given at admission: to a pod with resources of its own.
        """
        if pod.resources is not None:
            return set()
        return {name for name, count in self._requests(_pod_limits(pod)) if len(self._pool(name).free()) < count}

    def usage(self, resource: str, mask: NUMAMask) -> tuple[int, int]:
        """How many devices near these NUMA nodes are in use, and how many can be: the healthy ones."""
        pool = self._pool(resource)
        near = {name for name, device in pool.all.items() if numa_mask(device.numa_nodes) & mask}
        return len(near & pool.in_use), len(near & pool.healthy)

    def has_enough(self, container: Container, but: str = "") -> bool:
        """Whether enough devices are free for the container, on any NUMA node. Ignores the resource ``but``."""
        for resource, count in self._requests(container.resources.limits):
            pool = self._pool(resource)
            if resource != but and (not pool.healthy or len(pool.free() | self._reusable.get(resource, set())) < count):
                return False
        return True

    def allocate(self, pod: Pod, container: Container, affinity: NUMAMask | None) -> Rejection | None:
        """Allocate the container's devices (Allocate, allocateContainerResources). Returns the refusal, if any."""
        for resource, count in self._requests(container.resources.limits):
            chosen = self._choose(pod, container, resource, count, affinity)
            if isinstance(chosen, str):
                return unexpected(chosen)
            if chosen:
                self.allocated.setdefault(container.name, {})[resource] = chosen
        for resource, allocated in self.allocated.get(container.name, {}).items():
            reusable = self._reusable.get(resource, set())
            self._reusable[resource] = (
                reusable | allocated if container.kind is ContainerKind.INIT else reusable - allocated
            )
        return None

    def allocations(self, container: str) -> tuple[DeviceAllocation, ...]:
        """The devices allocated to the container."""
        return tuple(
            DeviceAllocation(resource, tuple(sorted(ids, key=natural_key)))
            for resource, ids in sorted(self.allocated.get(container, {}).items())
            if ids
        )

    def numa_nodes_of(self, allocation: DeviceAllocation) -> NUMAMask:
        """The NUMA nodes of the devices of an allocation."""
        pool, mask = self._pool(allocation.resource), 0
        for device in allocation.ids:
            mask |= numa_mask(pool.numa_nodes_of(device))
        return mask

    def _requests(self, limits: Mapping[str, int]) -> list[tuple[str, int]]:
        """The limits of resources that a plugin registered or a pod uses, sorted by name (isDevicePluginResource)."""
        return [(name, value(limits[name])) for name in sorted(limits) if name in self._pools]

    def _offer(self, resource: str, count: int, allocated: set[str], reusable: set[str]) -> ResourceOffer:
        pool = self._pool(resource)
        free = pool.free()
        usable, shared = free | reusable, any(mask & (mask - 1) for mask in pool.masks())
        return ResourceOffer(
            PROVIDER,
            resource,
            count,
            self._per_node(pool, usable),
            self._answer(pool, count, allocated, free, reusable),
            self._per_node(pool, pool.all),
            mask_of(node for name in reusable for node in members(numa_mask(pool.numa_nodes_of(name)))),
            free_sets=self._groups(pool, usable) if shared else (),
            capacity_sets=self._groups(pool, pool.all) if shared else (),
        )

    def _answer(self, pool: DevicePool, count: int, allocated: set[str], free: set[str], reusable: set[str]) -> Offer:
        if not pool.numa_aware:
            return Answer.NO_PREFERENCE
        if allocated:
            return self._generate(pool, allocated, set(), count) if len(allocated) == count else Answer.IMPOSSIBLE
        if len(free | reusable) < count:
            return Answer.IMPOSSIBLE
        return self._generate(pool, free, reusable, count)

    def _generate(self, pool: DevicePool, free: set[str], reusable: set[str], count: int) -> Offer:
        """Every mask that covers enough free devices and all reusable ones (generateDeviceTopologyHints).

        Masks of the width that the request would need if all devices were healthy and free are preferred.
        """
        universe = universe_of(pool.masks(), self._numa_nodes, self._gates)
        check_list(universe)
        local = [name for name in reusable if pool.numa_nodes_of(name) is not None]
        thresholds = [Threshold(self._groups(pool, free), count - len(local))]
        thresholds += {touching(numa_mask(pool.numa_nodes_of(name))) for name in local}
        width = least_width(Family(universe, (Threshold(self._groups(pool, pool.all), count),)), self._effort)
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

    def _per_node(self, pool: DevicePool, names: Iterable[str]) -> tuple[tuple[int, int], ...]:
        """How many of these devices touch each NUMA node that hosts any."""
        counts = dict.fromkeys(members(universe_of(pool.masks(), self._numa_nodes, self._gates)), 0)
        for name in names:
            for node in members(numa_mask(pool.numa_nodes_of(name))):
                if node in counts:
                    counts[node] += 1
        return tuple(counts.items())

    def _choose(
        self, pod: Pod, container: Container, resource: str, count: int, affinity: NUMAMask | None
    ) -> set[str] | str:
        """The devices to allocate of one resource, or the error's text (devicesToAllocate).

        Empty if the container already has its devices or requests none. One that runs has what it needs, whether its
        devices are there or not (isContainerAlreadyRunning).
        """
        pool = self._pool(resource)
        allocated = self.allocated.get(container.name, {}).get(resource)
        if allocated is not None and len(allocated) != count:
            return (
                f'pod "{pod.uid}" container "{container.name}" changed request for resource "{resource}" '
                f"from {len(allocated)} to {count}"
            )
        if container.name in self.running:
            return set()
        if not pool.registered:
            return f"cannot allocate unregistered device {resource}"
        if not pool.healthy:
            return f"no healthy devices present; cannot allocate unhealthy devices {resource}"
        if allocated is not None and not allocated <= pool.healthy:
            return f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
        if allocated is not None or count == 0:
            return set()
        # Case 1: devices of earlier init containers are reused.
        chosen = set(sorted(self._reusable.get(resource, set()), key=natural_key)[: max(0, count)])
        free = pool.free() - chosen
        needed = count - len(chosen)
        if needed == 0:
            return chosen
        if len(free) < needed:
            return (
                f"requested number of devices unavailable for {resource}. Requested: {needed}, Available: {len(free)}"
            )
        # Case 2: free devices on the affinity's NUMA nodes come first, then all others (filterByAffinity).
        aligned = {name for name in free if pool.numa_aware and self._touches(pool, name, affinity)}
        for candidates in (aligned, free - aligned):
            chosen.update(sorted(candidates, key=natural_key)[: count - len(chosen)])
        pool.in_use |= chosen
        return chosen

    @staticmethod
    def _touches(pool: DevicePool, name: str, affinity: NUMAMask | None) -> bool:
        return affinity is not None and bool(numa_mask(pool.numa_nodes_of(name)) & affinity)


def _pod_limits(pod: Pod) -> dict[str, int]:
    """The pod's limits without overhead (component-helpers/resource:PodLimits).

    Pod-level limits cannot name devices, and the Device Manager ignores all other resources.
    """
    names = dict.fromkeys(name for container in pod.containers for name in container.resources.limits)
    limits = {
        name: largest_need((container.kind, container.resources.limits.get(name, 0)) for container in pod.containers)
        for name in names
    }
    if qos.has_pod_level_resources(pod) and pod.resources is not None:
        limits.update(pod.resources.limits)
    return limits
