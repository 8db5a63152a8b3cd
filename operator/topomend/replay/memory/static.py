"""The Memory Manager's Static policy: hints from the machine state, and the allocation of memory blocks.

Owns which NUMA nodes a container's memory comes from. Leaves the arithmetic of blocks and groups to ``machine_state``.
Source: pkg/kubelet/cm/memorymanager/policy_static.go.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from topomend.model.bitmask import NUMAMask, mask_of, members
from topomend.model.machine import Machine
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node_state import MemoryBlock
from topomend.model.pods.pod import Container, ContainerKind, Pod, largest_need
from topomend.model.quantity import as_int64
from topomend.replay import qos
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.errors import (
    KUBELET_WOULD_CRASH,
    KubeletBreaks,
    Rejection,
    check_masks,
    empty_pod_shared_pool,
    unexpected,
)
from topomend.replay.gates import Gates
from topomend.replay.memory.machine_state import MachineState
from topomend.replay.memory.reservations import is_over_reserved, unreserved
from topomend.replay.options import InvalidOption, quoted
from topomend.replay.topology.hints import Answer, Family, Hints, Offer, ResourceOffer, Threshold, hints_or, per_node
from topomend.replay.topology.merge import Hint, least_width, narrowest
from topomend.replay.topology.prefer_most_allocated_numa_node import utilization
from topomend.replay.topology.walk_time import check_list

PROVIDER = "memory"

_UINT64 = (1 << 64) - 1

_NOT_INT64 = "[memorymanager] failed to represent quantity as int64"
_NO_DEFAULT = "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"


@dataclass(frozen=True)
class StaticPolicy:
    """The policy's constants while the kubelet runs.

    ``allocatable`` maps NUMA nodes to bytes by resource, reservations deducted. ``over_reserved`` are the NUMA nodes
    whose reservation exceeds their memory: the kubelet's unsigned subtraction wraps around there.
    """

    allocatable: Mapping[int, Mapping[str, int]]
    gates: Gates
    over_reserved: NUMAMask = 0


def start(settings: KubeletSettings, machine: Machine, gates: Gates) -> StaticPolicy:
    """Start the policy. Raises InvalidOption with the kubelet's text if the kubelet would not start.

    The kubelet also checks that the reservations add up to Node Allocatable. The settings do not contain that total, so
    replay does not check it.
    Source: memory_manager.go:getTotalMemoryTypeReserved, policy_static.go:NewPolicyStatic, getDefaultMachineState.
    """
    nodes = {node.id for node in machine.numa_nodes}
    reserved: dict[tuple[int, str], int] = {}
    for reservation in settings.reserved_memory:
        if reservation.numa_node not in nodes:
            raise InvalidOption(
                f"the reserved memory configuration references a NUMA node {reservation.numa_node} "
                "that does not exist on this machine"
            )
        reserved[reservation.numa_node, reservation.resource] = reservation.size
    if sum(size for (_, resource), size in reserved.items() if resource == qos.MEMORY) <= 0:
        raise InvalidOption("[memorymanager] you should specify the system reserved memory")
    left = unreserved(settings, machine)
    allocatable = {
        node: {resource: amount & _UINT64 for resource, amount in amounts.items()} for node, amounts in left.items()
    }
    over_reserved = mask_of(node for node, amounts in left.items() if is_over_reserved(amounts))
    return StaticPolicy(allocatable, gates, over_reserved)


class MemoryManager:
    """The Memory Manager during the admission of one pod.

    ``machine_state`` is the node's. ``blocks`` maps the pod's containers to their blocks; a container that was admitted
    without a memory request has an empty tuple. ``pod_blocks`` are the pod's blocks under pod-level resource managers.
    """

    def __init__(
        self,
        policy: StaticPolicy,
        machine_state: MachineState,
        blocks: Mapping[str, tuple[MemoryBlock, ...]],
        pod_blocks: tuple[MemoryBlock, ...],
        effort: Effort = UNLIMITED,
    ) -> None:
        self._policy, self._effort = policy, effort
        self.machine_state = machine_state
        self.blocks = dict(blocks)
        self.pod_blocks = pod_blocks
        self._reusable: dict[tuple[NUMAMask, str], int] = {}

    def copy(self) -> "MemoryManager":
        """The same manager in a state of its own."""
        copied = MemoryManager(self._policy, self.machine_state.copy(), self.blocks, self.pod_blocks, self._effort)
        copied._reusable = dict(self._reusable)
        return copied

    def remove_pod(self) -> None:
        """Free all memory of the pod (RemoveContainer of every container)."""
        for block in self.pod_blocks or (block for blocks in self.blocks.values() for block in blocks):
            self.machine_state.release(block)
        self.blocks.clear()
        self.pod_blocks = ()

    def utilization(self) -> dict[int, int]:
        """The allocated share of each NUMA node's allocatable regular memory, in percent."""
        return {number: utilization(*self.usage(qos.MEMORY, 1 << number)) for number in self.machine_state.nodes}

    def usage(self, resource: str, mask: NUMAMask) -> tuple[int, int]:
        """How many of the resource's allocatable bytes on these NUMA nodes are allocated, and how many there are."""
        nodes, allocatable = self.machine_state.nodes, self.machine_state.allocatable(resource)
        numbers = [number for number in members(mask) if number in nodes]
        return sum([nodes[number].reserved.get(resource, 0) for number in numbers]), sum(
            [allocatable[number] for number in numbers]
        )

    def lacks(self, pod: Pod) -> set[str]:
        """The kinds of memory of which the pod needs more at any one time than is free before it.

        Empty where that is not known.
        """
        if pod.resources is not None or not self._is_served(pod):
            return set()
        needs = self._requested_by_pod(pod) or {}
        nodes = self.machine_state.nodes.values()
        return {name for name, need in needs.items() if need > sum([max(0, node.free.get(name, 0)) for node in nodes])}

    def hints(self, pod: Pod, container: Container) -> list[ResourceOffer]:
        """The container's hints (GetTopologyHints)."""
        if not self._is_served(pod):
            return []
        requests = self._requested(pod, container)
        if requests is None or (self._policy.gates.skips_blank_memory and not requests):
            return []
        if container.name in self.blocks:
            return self._regenerated(self.blocks[container.name], requests)
        return self._offers(requests)

    def pod_hints(self, pod: Pod) -> list[ResourceOffer]:
        """The pod's hints (GetPodTopologyHints)."""
        if not self._is_served(pod):
            return []
        requests = self._requested_by_pod(pod)
        if requests is None:
            return []
        empty = qos.uses_pod_level_managers(pod, self._policy.gates) and self._empty_shared_pool(pod, requests)
        if empty:
            return [self._trace(resource, size, Answer.IMPOSSIBLE, empty) for resource, size in requests.items()]
        gates = self._policy.gates
        if requests and self.pod_blocks and gates.restores_pods and qos.uses_pod_level_managers(pod, gates):
            return self._regenerated(self.pod_blocks, requests)
        for container in pod.containers:
            if requests and container.name in self.blocks:
                wanted = self._requested(pod, container) if gates.restores_by_container else requests
                return [] if wanted is None else self._regenerated(self.blocks[container.name], wanted)
        return self._offers(requests)

    def allocate(self, pod: Pod, container: Container, affinity: Hint) -> Rejection | None:
        """Allocate the container's memory (Allocate). Returns the refusal, None on success."""
        if not self._is_served(pod):
            return None
        requests = self._requested(pod, container)
        if self._policy.gates.skips_blank_memory and requests is not None and not requests:
            return None
        if container.name in self.blocks:
            self._update_reusable(container, self.blocks[container.name])
            return None
        if requests is None:
            return unexpected(_NOT_INT64)
        mask = self._final_mask(requests, affinity)
        if isinstance(mask, str):
            return unexpected(mask)
        blocks = []
        for resource, size in requests.items():
            blocks.append(MemoryBlock(resource, mask, size))
            self.machine_state.reserve(mask, resource, max(0, size - self._reusable.get((mask, resource), 0)))
        self._update_reusable(container, blocks)
        self.blocks[container.name] = tuple(blocks)
        self._shrink_init_blocks(pod, container, blocks)
        return None

    def allocate_pod(self, pod: Pod, affinity: Hint) -> Rejection | None:
        """Allocate the pod's memory on one set of NUMA nodes and divide it among the containers (AllocatePod)."""
        if not qos.is_guaranteed(pod, self._policy.gates):
            return None
        if self.pod_blocks and self._policy.gates.restores_pods:
            return None
        requests = self._requested_by_pod(pod)
        if requests is None:
            return None
        empty = self._empty_shared_pool(pod, requests)
        if empty:
            return empty_pod_shared_pool(empty)
        mask = self._final_mask(requests, affinity)
        if isinstance(mask, str):
            return unexpected(mask)
        self._divide(pod, requests, mask)
        self.pod_blocks = tuple(MemoryBlock(resource, mask, size) for resource, size in requests.items())
        for block in self.pod_blocks:
            self.machine_state.reserve(mask, block.resource, block.size)
        return None

    def _divide(self, pod: Pod, requests: Mapping[str, int], mask: NUMAMask) -> None:
        remaining = dict(requests)
        shared = []
        for container in pod.containers:
            requested = self._requested(pod, container) or {}
            if requested:
                self.blocks[container.name] = _blocks(requested, mask)
                if container.kind is not ContainerKind.INIT:
                    remaining = {resource: size - requested.get(resource, 0) for resource, size in remaining.items()}
            elif container.kind is ContainerKind.INIT:
                self.blocks[container.name] = _blocks(remaining, mask)
            else:
                shared.append(container.name)
        for name in shared:
            self.blocks[name] = _blocks(remaining, mask)

    def _is_served(self, pod: Pod) -> bool:
        return qos.is_guaranteed(pod, self._policy.gates) and not qos.is_skipped(pod, self._policy.gates)

    def _requested(self, pod: Pod, container: Container) -> dict[str, int] | None:
        """The container's request, bytes by resource (getContainerRequestedResources).

        None if an amount is not a whole number of bytes.
        """
        if qos.uses_pod_level_managers(pod, self._policy.gates) and not qos.is_container_guaranteed(container):
            return {}
        return bytes_by_resource(container.resources.requests)

    def _requested_by_pod(self, pod: Pod) -> dict[str, int] | None:
        """The most that the pod needs at any one time, bytes by resource (getPodRequestedResources).

        Omits resources that only init containers request, as kubelets do that have not ``counts_memory_of_init``. None
        if an amount is not a whole number of bytes.
        """
        if pod.resources is not None and qos.uses_pod_level_managers(pod, self._policy.gates):
            requests = bytes_by_resource(pod.resources.requests)
            return None if requests is None else {name: size for name, size in requests.items() if size}
        needs: list[tuple[ContainerKind, dict[str, int]]] = []
        for container in pod.containers:
            requested = self._requested(pod, container)
            if requested is None:
                return None
            needs.append((container.kind, requested))
        every = self._policy.gates.counts_memory_of_init
        counted = [requested for kind, requested in needs if every or kind is ContainerKind.APP]
        resources = dict.fromkeys(name for requested in counted for name in requested)
        return {name: largest_need((kind, requested.get(name, 0)) for kind, requested in needs) for name in resources}

    def _empty_shared_pool(self, pod: Pod, requests: Mapping[str, int]) -> str:
        """The error if containers without a request of their own would share no memory (validatePodScopeResources).

        Empty if there is none.
        """
        shared, exclusive = False, dict.fromkeys(requests, 0)
        for container in pod.containers:
            requested = self._requested(pod, container)
            if requested is None:
                return _NOT_INT64
            if container.kind is not ContainerKind.INIT:
                shared = shared or not requested
                for name, size in requested.items():
                    exclusive[name] = exclusive.get(name, 0) + size
            elif not requested:
                for name, size in requests.items():
                    if exclusive[name] >= size:
                        return f"pod rejected, pod has shared init containers but no {name} available for them"
        for name, size in requests.items():
            if shared and exclusive[name] >= size:
                return (
                    f"pod rejected, sum of exclusive container {name} requests equals pod budget, "
                    "leaving no memory for shared containers"
                )
        return ""

    def _regenerated(self, blocks: tuple[MemoryBlock, ...], requests: Mapping[str, int]) -> list[ResourceOffer]:
        """The hints of memory that is already allocated (regenerateHints).

        Each is preferred at any width. Without a matching block there is no preference.
        """
        if len(blocks) != len(requests) or any(requests.get(block.resource) != block.size for block in blocks):
            return []
        return [self._trace(block.resource, block.size, Hints(masks=(block.numa_nodes,))) for block in blocks]

    def _offers(self, requests: Mapping[str, int]) -> list[ResourceOffer]:
        if not requests:
            return []
        offer = self._calculated(requests)
        return [self._trace(resource, size, offer) for resource, size in requests.items()]

    def _trace(self, resource: str, size: int, offer: Offer, error: str = "") -> ResourceOffer:
        state = self.machine_state
        free = tuple((number, node.free.get(resource, 0)) for number, node in state.nodes.items())
        capacity = tuple(state.allocatable(resource).items())
        groups = tuple(sorted(state.groups()))
        pinned = state.pinned_alone()
        return ResourceOffer(PROVIDER, resource, size, free, offer, capacity, groups=groups, pinned=pinned, error=error)

    def _calculated(self, requests: Mapping[str, int]) -> Offer:
        """Every mask with enough memory that the groups allow (calculateHints).

        Without such a mask there is no preference, because the kubelet leaves its map empty. Masks of the width that
        the request would need on the empty machine are preferred.
        """
        nodes, everything = self.machine_state.nodes, self._every_node()
        free = [per_node(self.machine_state.free(resource), size) for resource, size in requests.items()]
        could = [per_node(self.machine_state.allocatable(resource), size) for resource, size in requests.items()]
        width = least_width(Family(everything, tuple(could)), self._effort)
        if width is None:
            return Answer.NO_PREFERENCE
        new_group = Family(self.machine_state.untouched(), tuple(free), least=2)
        special = {1 << number for number in nodes} | self.machine_state.groups() | {mask for mask, _ in self._reusable}
        masks = tuple(mask for mask in sorted(special) if self._allows(mask, requests, could))
        families = () if new_group.is_empty() else (new_group,)
        return hints_or(Answer.NO_PREFERENCE, Hints(families, masks, width))

    def _every_node(self) -> NUMAMask:
        """All NUMA nodes, of which the kubelet makes every mask. Raises KubeletBreaks where it cannot in time."""
        nodes = mask_of(self.machine_state.nodes)
        check_masks(nodes)
        check_list(nodes)
        return nodes

    def _allows(self, mask: NUMAMask, requests: Mapping[str, int], could: list[Threshold]) -> bool:
        return (
            all(threshold.met_by(mask) for threshold in could)
            and self.machine_state.suits(mask, single=True)
            and all(
                self.machine_state.free_within(mask, resource) + self._reusable.get((mask, resource), 0) >= size
                for resource, size in requests.items()
            )
        )

    def _final_mask(self, requests: Mapping[str, int], affinity: Hint) -> NUMAMask | str:
        """The NUMA nodes that the memory comes from, or the error's text (Allocate)."""
        hint = affinity
        # Case: the Topology Manager has no affinity, so the Memory Manager chooses its own best hint.
        if hint.mask is None:
            best = self._best(requests)
            if best is None:
                return _NO_DEFAULT
            if hint.preferred and not best.preferred:
                return "[memorymanager] failed to find the default preferred hint"
            hint = best
        mask = hint.mask or 0
        # Case: the affinity has too little memory, so it is extended by further NUMA nodes.
        if any(self.machine_state.free_within(mask, resource) < size for resource, size in requests.items()):
            best = self._best(requests, including=mask)
            if best is None:
                return "[memorymanager] failed to find NUMA nodes to extend the current topology hint"
            if hint.preferred and not best.preferred:
                return "[memorymanager] failed to find the extended preferred hint"
            mask = best.mask or 0
        # Case: the mask would mix a group with single NUMA nodes, or with another group.
        if self._policy.gates.refuses_mixed_groups and not self.machine_state.suits(mask, single=False):
            return "[memorymanager] preferred hint violates NUMA node allocation"
        return mask

    def _best(self, requests: Mapping[str, int], including: NUMAMask = 0) -> Hint | None:
        """The Memory Manager's own best hint (findBestHint), None without any; ``including`` must be part of its mask.

        Masks of the preferred width are the narrowest, so the narrowest hint is the best one. Raises KubeletBreaks if
        memory was not requested.
        """
        self._every_node()  # the kubelet makes all masks even without a request
        offer = self._calculated(requests) if requests else Answer.NO_PREFERENCE
        if not isinstance(offer, Hints):
            return None
        if qos.MEMORY not in requests:
            if including:
                return None
            raise KubeletBreaks(
                KUBELET_WOULD_CRASH, "the Memory Manager reads the hints of memory although the pod requests none"
            )
        mask = narrowest(offer, including, self._effort)
        return None if mask is None else Hint(mask, offer.prefers(mask))

    def _update_reusable(self, container: Container, blocks: Iterable[MemoryBlock]) -> None:
        """Later containers reuse the memory of init containers; others use it up (updatePodReusableMemory)."""
        for block in blocks:
            key = (block.numa_nodes, block.resource)
            reusable = self._reusable.get(key, 0)
            if container.kind is ContainerKind.INIT:
                self._reusable[key] = max(reusable, block.size)
            elif reusable:
                self._reusable[key] = max(0, reusable - block.size)

    def _shrink_init_blocks(self, pod: Pod, container: Container, blocks: Iterable[MemoryBlock]) -> None:
        """Deduct reused memory from the init containers' blocks (updateInitContainersMemoryBlocks)."""
        for block in blocks:
            remaining = block.size
            for init_container in pod.containers:
                if init_container.name == container.name or remaining == 0:
                    break
                if init_container.kind is not ContainerKind.INIT:
                    continue
                shrunk = []
                for init_block in self.blocks.get(init_container.name, ()):
                    same = init_block.resource == block.resource and init_block.numa_nodes == block.numa_nodes
                    reused = min(init_block.size, remaining) if same else 0
                    remaining -= reused
                    shrunk.append(MemoryBlock(init_block.resource, init_block.numa_nodes, init_block.size - reused))
                if shrunk:
                    self.blocks[init_container.name] = tuple(shrunk)


def check_policy(name: str, gates: Gates) -> bool:
    """Whether the policy allocates memory. Raises InvalidOption for a policy that a Linux kubelet does not have."""
    if name == "BestEffort" and gates.has_best_effort_memory:
        raise InvalidOption('policy "BestEffort" is not available for platform "linux"')
    if name not in ("None", "Static"):
        raise InvalidOption(f"unknown policy: {quoted(name)}")
    return name == "Static"


def _blocks(sizes: Mapping[str, int], mask: NUMAMask) -> tuple[MemoryBlock, ...]:
    return tuple(MemoryBlock(resource, mask, size) for resource, size in sizes.items() if size > 0)


def bytes_by_resource(requests: Mapping[str, int]) -> dict[str, int] | None:
    """The requested memory and huge pages, in bytes; None if an amount is not a whole number of bytes."""
    sizes: dict[str, int] = {}
    for resource in sorted(filter(qos.is_memory, requests)):
        size = as_int64(requests[resource])
        if size is None:
            return None
        sizes[resource] = size & _UINT64
    return sizes
