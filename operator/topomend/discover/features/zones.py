"""Compute capacity, allocatable and available of each NUMA node: the figures of a NodeResourceTopology.

Owns which resources a zone lists: those that a manager aligns, and no others, as NFD and RTE do. KAI treats a resource
that no zone lists as one without NUMA affinity, which is how the kubelet then treats it. NodeResourceTopologyMatch does
so with devices, and refuses pods that request CPUs, memory or huge pages which no zone lists
(``numaresources.go:isHostLevelResource``). Leaves the layout to ``wire.published.node_resource_topology``.
"""

from collections.abc import Iterator
from functools import reduce
from operator import and_

from topomend.model.bitmask import NUMAMask, lowest, mask_of
from topomend.model.machine import NUMANode
from topomend.model.nodes.node_state import ContainerAllocation, NodeState, allocations, free_cpus
from topomend.model.nodes.zone import Placement, Zone, ZoneResource
from topomend.replay.admission import machine_state_of
from topomend.replay.container_manager import ContainerManager, start
from topomend.replay.topology.policy_names import SINGLE_NUMA_NODE


def zones(state: NodeState) -> tuple[Zone, ...]:
    """One zone for each NUMA node, without resources where the kubelet would not start with this state.

    CPUs and devices are counts, memory and huge pages bytes.
    """
    kubelet = start(state.machine, state.kubelet)
    ids = [node.id for node in state.machine.numa_nodes]
    resources: dict[int, list[ZoneResource]] = {node_id: [] for node_id in ids}
    if not isinstance(kubelet, str):
        for node in state.machine.numa_nodes:
            resources[node.id] += [*_cpus(state, kubelet, node), *_devices(state, node)]
        for node_id, resource in _memory(state, kubelet):
            resources[node_id].append(resource)
    return tuple(
        Zone(
            node.id,
            dict(zip(ids, node.distances, strict=False)),
            tuple(sorted(resources[node.id], key=lambda resource: resource.name)),
        )
        for node in state.machine.numa_nodes
    )


def placements(state: NodeState) -> tuple[Placement, ...] | None:
    """The NUMA node of each container with exclusive resources, but for init containers, which are to end.

    None where that is not one for each: schedulers simulate evictions on nodes of the policy single-numa-node alone.
    """
    if state.kubelet.topology_manager_policy != SINGLE_NUMA_NODE:
        return None
    found = []
    for pod in state.pods:
        for container in pod.containers:
            masks = [] if container.init else list(_masks(state, container))
            if not masks:
                continue
            common = reduce(and_, masks)
            if common.bit_count() != 1:
                return None
            found.append(Placement(pod.namespace, pod.name, container.name, lowest(common)))
    return tuple(found)


def _masks(state: NodeState, container: ContainerAllocation) -> Iterator[NUMAMask]:
    """The NUMA nodes of each of its resources that a zone lists."""
    if container.cpus:
        nodes = state.machine.cpus_of_numa_node
        yield mask_of(node for node, cpus in nodes.items() if cpus & container.cpus)
    for block in container.memory:
        yield block.numa_nodes
    for allocation in container.devices:
        for device in state.devices:
            if device.resource == allocation.resource and device.id in allocation.ids and device.numa_nodes:
                yield mask_of(device.numa_nodes)


def _cpus(state: NodeState, kubelet: ContainerManager, node: NUMANode) -> Iterator[ZoneResource]:
    if kubelet.cpu is None:
        return
    cpus = state.machine.cpus_of_numa_node.get(node.id, 0)
    allocatable = cpus & ~kubelet.cpu.reserved
    available = free_cpus(state, kubelet.cpu.reserved).get(node.id, 0)
    yield ZoneResource("cpu", cpus.bit_count(), allocatable.bit_count(), available)


def _memory(state: NodeState, kubelet: ContainerManager) -> Iterator[tuple[int, ZoneResource]]:
    """Memory and huge pages in bytes, as pairs of NUMA node and resource."""
    if kubelet.memory is None:
        return
    machine_state = machine_state_of(kubelet.memory, state)
    for node in state.machine.numa_nodes:
        capacities = {"memory": node.memory} | {pool.resource: pool.size * pool.count for pool in node.hugepages}
        reserved_whole = kubelet.memory.over_reserved >> node.id & 1
        for resource, capacity in capacities.items():
            allocatable = 0 if reserved_whole else machine_state.allocatable(resource)[node.id]
            available = min(allocatable, max(0, machine_state.nodes[node.id].free.get(resource, 0)))
            yield node.id, ZoneResource(resource, capacity, allocatable, available)


def _devices(state: NodeState, node: NUMANode) -> Iterator[ZoneResource]:
    allocated = {
        (allocation.resource, name)
        for container in allocations(state.pods)
        for allocation in container.devices
        for name in allocation.ids
    }
    on_node = [device for device in state.devices if node.id in (device.numa_nodes or ())]
    for resource in sorted({device.resource for device in on_node}):
        of_resource = [device for device in on_node if device.resource == resource]
        healthy = [device for device in of_resource if device.healthy]
        free = [device for device in healthy if (resource, device.id) not in allocated]
        yield ZoneResource(resource, len(of_resource), len(healthy), len(free))
