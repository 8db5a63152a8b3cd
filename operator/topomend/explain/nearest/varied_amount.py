"""Which amounts of a pod are varied, and in which steps: a CPU, a device, a huge page, 64Mi of memory.

Request and limit change together, so the pod keeps its QoS class. Owns a pod with another amount. Leaves to ``search``
which amounts are admitted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod, Resources
from topomend.model.quantity import InvalidQuantity, MilliQuantity, as_int64, is_whole, parse_quantity, value
from topomend.replay import qos
from topomend.replay.container_manager import ContainerManager
from topomend.replay.cpu import static as cpu_static
from topomend.replay.devices import manager as device_manager
from topomend.replay.memory import static as memory_static

MEMORY_STEP = 64 << 20


@dataclass(frozen=True, slots=True)
class VariedAmount:
    """The amount that is varied: number ``k`` is ``asked + k * step``, for ``first <= k <= last``.

    ``position`` is the container's, ``provider`` the manager that gives the resource.
    """

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

    def put_into(self, pod: Pod, quantity: MilliQuantity) -> Pod:
        """The pod with another amount, as request and as limit."""
        return with_quantity(pod, self.position, self.resource, quantity)


def varied_amounts(node: NodeState, kubelet: ContainerManager, pod: Pod) -> Iterator[VariedAmount]:
    """The amounts of the pod that managers of the node's ``kubelet`` look at.

    In the order of containers and of their resources by name.
    """
    pinned = qos.is_guaranteed(pod, kubelet.gates) and not qos.is_skipped(pod, kubelet.gates)
    for position, container in enumerate(pod.containers):
        requests, limits = container.resources.requests, container.resources.limits
        for resource in sorted({*requests, *limits}):
            if resource == qos.CPU or qos.is_memory(resource):
                quantity, relevant = requests.get(resource, 0), pinned
            else:
                quantity, relevant = limits.get(resource, 0), resource in limits
            scale = _scale(node, kubelet, resource, quantity) if relevant else None
            if scale is None:
                continue
            provider, asked, step, most = scale
            first, last = -((asked - 1) // step), (most - asked) // step
            yield VariedAmount(position, container.name, resource, provider, asked, step, first, last)


def with_quantity(pod: Pod, position: int, resource: str, quantity: MilliQuantity) -> Pod:
    """The pod with another amount of ``resource`` in the container at ``position``, wherever that names it."""
    container = pod.containers[position]
    changed = Resources(
        _changed(container.resources.requests, resource, quantity),
        _changed(container.resources.limits, resource, quantity),
    )
    before, after = pod.containers[:position], pod.containers[position + 1 :]
    return replace(pod, containers=(*before, replace(container, resources=changed), *after))


def _scale(
    node: NodeState, kubelet: ContainerManager, resource: str, quantity: MilliQuantity
) -> tuple[str, int, int, int] | None:
    """The provider, the asked amount, the step, and the most that the machine has.

    None where another amount changes nothing: a fraction of a CPU, or what no manager gives.
    """
    if resource == qos.CPU:
        if kubelet.cpu is None or not is_whole(quantity):
            return None
        provider, most = cpu_static.PROVIDER, kubelet.cpu.topology.cpus.bit_count()
        asked, step = value(quantity), 1
    elif qos.is_memory(resource):
        size = as_int64(quantity)
        if kubelet.memory is None or size is None:
            return None
        provider, asked, step = memory_static.PROVIDER, size, memory_step(resource)
        # By the kubelet's unsigned sum nearly 16Ei are allocatable where more is set aside than there is.
        allocatable = sum(sizes.get(resource, 0) for sizes in kubelet.memory.allocatable.values())
        most = min(allocatable, sum(numa_node.memory for numa_node in node.machine.numa_nodes))
    else:
        most = sum(device.resource == resource for device in node.devices)
        provider, asked, step = device_manager.PROVIDER, value(quantity), 1
    return (provider, asked, step, most) if step else None


def memory_step(resource: str) -> int:
    """64Mi of memory, or the size of the page, which the resource's name says."""
    if resource == qos.MEMORY:
        return MEMORY_STEP
    try:
        return parse_quantity(resource.removeprefix(qos.HUGEPAGES_PREFIX)) // 1000
    except InvalidQuantity:
        return 0


def _changed(amounts: Mapping[str, MilliQuantity], resource: str, quantity: MilliQuantity) -> dict[str, MilliQuantity]:
    return {**amounts, resource: quantity} if resource in amounts else dict(amounts)
