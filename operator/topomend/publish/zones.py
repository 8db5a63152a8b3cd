"""What each NUMA node has, can give and has left, as totals: the figures of a NodeResourceTopology.

A resource stands in a zone where a manager aligns it, and not elsewhere: a consumer takes one that no zone names for
one without affinity, which is what it then is to the kubelet too.
"""

from collections.abc import Iterator

from topomend.model.machine import NUMANode
from topomend.model.node_state import NodeState, allocations, free_cpus
from topomend.replay.admission import book_of
from topomend.replay.container_manager import ContainerManager, start
from topomend.wire.node_resource_topology import Zone, ZoneResource


def zones(state: NodeState) -> tuple[Zone, ...]:
    """A zone for each NUMA node; without resources where the kubelet would not start."""
    kubelet = start(state.machine, state.kubelet)
    ids = [node.id for node in state.machine.numa_nodes]
    resources: dict[int, list[ZoneResource]] = {each: [] for each in ids}
    if not isinstance(kubelet, str):
        for node in state.machine.numa_nodes:
            resources[node.id] += [*_cpus(state, kubelet, node), *_devices(state, node)]
        for number, each in _memory(state, kubelet):
            resources[number].append(each)
    return tuple(
        Zone(
            node.id,
            dict(zip(ids, node.distances, strict=False)),
            tuple(sorted(resources[node.id], key=lambda each: each.name)),
        )
        for node in state.machine.numa_nodes
    )


def _cpus(state: NodeState, kubelet: ContainerManager, node: NUMANode) -> Iterator[ZoneResource]:
    if kubelet.cpu is None:
        return
    cpus = state.machine.cpus_of_numa_node.get(node.id, 0)
    allocatable = cpus & ~kubelet.cpu.reserved
    available = free_cpus(state, kubelet.cpu.reserved).get(node.id, 0)
    yield ZoneResource("cpu", cpus.bit_count(), allocatable.bit_count(), available)


def _memory(state: NodeState, kubelet: ContainerManager) -> Iterator[tuple[int, ZoneResource]]:
    """Memory and huge pages in bytes, with their NUMA node."""
    if kubelet.memory is None:
        return
    book = book_of(kubelet.memory, state)
    for node in state.machine.numa_nodes:
        capacities = {"memory": node.memory} | {each.resource: each.size * each.count for each in node.hugepages}
        reserved_whole = kubelet.memory.over_reserved >> node.id & 1
        for resource, capacity in capacities.items():
            allocatable = 0 if reserved_whole else book.allocatable(resource)[node.id]
            available = min(allocatable, max(0, book.nodes[node.id].free.get(resource, 0)))
            yield node.id, ZoneResource(resource, capacity, allocatable, available)


def _devices(state: NodeState, node: NUMANode) -> Iterator[ZoneResource]:
    held = {
        (each.resource, name)
        for container in allocations(state.pods)
        for each in container.devices
        for name in each.ids
    }
    here = [device for device in state.devices if node.id in (device.numa_nodes or ())]
    for resource in sorted({device.resource for device in here}):
        mine = [device for device in here if device.resource == resource]
        healthy = [device for device in mine if device.healthy]
        free = [device for device in healthy if (resource, device.id) not in held]
        yield ZoneResource(resource, len(mine), len(healthy), len(free))
