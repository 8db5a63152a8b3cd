"""Whether reported allocations are within the bounds of any kubelet, and can be published.

Kubelet, device plugins and API server bound names and numbers. A value beyond these bounds comes from a broken source,
and the API server would refuse the whole object for it. Owns these bounds; ``assemble`` checks whether the allocations
fit this machine.
"""

from collections.abc import Iterator
from itertools import chain

from topomend.model.nodes.node_state import ContainerAllocation, Device, MemoryBlock, NUMANodeMemory, PodAllocation
from topomend.model.quantity import MAX_INT64

MAX_NAMESPACE, MAX_NAME, MAX_UID, MAX_RESOURCE, MAX_DEVICE = 63, 253, 128, 317, 512
"""Letters: a DNS label, a DNS subdomain, a UUID with room, a domain with its label, and a device's id."""

MAX_CONTAINERS = MAX_BLOCKS = MAX_NODES = MAX_RESOURCES = 256
MAX_DEVICES = 4096
MAX_RESERVED = 16


def why_implausible(
    pods: tuple[PodAllocation, ...], devices: tuple[Device, ...], memory: tuple[NUMANodeMemory, ...] | None
) -> str:
    """The first value out of bounds, in one line; empty if there is none."""
    return next(chain(_pods(pods), _devices(devices), _memory_state(memory or ())), "")


def _pods(pods: tuple[PodAllocation, ...]) -> Iterator[str]:
    for pod in pods:
        yield from _name("namespace", pod.namespace, MAX_NAMESPACE)
        yield from _name("pod", pod.name, MAX_NAME)
        if pod.uid:
            yield from _name("uid", pod.uid, MAX_UID)
        yield from _count("containers", len(pod.containers), MAX_CONTAINERS)
        yield from _blocks(pod.memory)
        for container in pod.containers:
            yield from _container(container)


def _container(container: ContainerAllocation) -> Iterator[str]:
    yield from _name("container", container.name, MAX_NAME)
    yield from _blocks(container.memory)
    yield from _count("resources in one container", len(container.devices), MAX_RESOURCES)
    for allocation in container.devices:
        yield from _name("resource", allocation.resource, MAX_RESOURCE)
        yield from _count(f"devices of {allocation.resource[:MAX_RESOURCE]}", len(allocation.ids), MAX_DEVICES)
        for device in allocation.ids:
            yield from _name("device", device, MAX_DEVICE)


def _blocks(blocks: tuple[MemoryBlock, ...]) -> Iterator[str]:
    yield from _count("memory blocks in one container", len(blocks), MAX_BLOCKS)
    for block in blocks:
        yield from _name("resource", block.resource, MAX_RESOURCE)
        yield from _count("NUMA nodes of one memory block", block.numa_nodes.bit_count(), MAX_NODES)
        if block.size > MAX_INT64:
            yield f"a memory block of {block.size} bytes"


def _devices(devices: tuple[Device, ...]) -> Iterator[str]:
    count: dict[str, int] = {}
    for device in devices:
        yield from _name("resource", device.resource, MAX_RESOURCE)
        yield from _name("device", device.id, MAX_DEVICE)
        yield from _count("NUMA nodes of one device", len(device.numa_nodes or ()), MAX_NODES)
        count[device.resource] = count.get(device.resource, 0) + 1
    for resource, number in count.items():
        yield from _count(f"devices of {resource}", number, MAX_DEVICES)


def _memory_state(memory: tuple[NUMANodeMemory, ...]) -> Iterator[str]:
    yield from _count("NUMA nodes in the Memory Manager's state", len(memory), MAX_NODES)
    for node in memory:
        yield from _count("NUMA nodes in one memory group", node.cells.bit_count(), MAX_NODES)
        yield from _count("resources of one NUMA node", len(node.reserved), MAX_RESERVED)
        for resource in node.reserved:
            yield from _name("resource", resource, MAX_RESOURCE)


def _name(kind: str, name: str, most: int) -> Iterator[str]:
    if not name:
        yield f"a {kind} without a name"
    elif len(name) > most or not name.isprintable():
        yield f"a {kind} named {name[:40]!a}, {len(name)} letters long"


def _count(kind: str, number: int, most: int) -> Iterator[str]:
    if number > most:
        yield f"{number} {kind}"
