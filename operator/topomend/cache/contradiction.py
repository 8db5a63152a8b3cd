"""Whether a published state contradicts its Node: an agent is believed only as far as its kubelet bears it out.

Owns what a Node can refute: more CPUs, NUMA nodes, memory, huge pages or devices than the kubelet counts. Too little is
no contradiction, for it keeps pods away from that node alone. Free amounts cannot be refuted, for a Node has none.

The kubelet reads its machine once, at its start, and posts it in ``status.capacity``. ``status.allocatable`` is less by
its reservations and by devices without a healthy plugin, so it refutes nothing; the filters compare it with each pod.
"""

from collections import Counter

from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import NodeState
from topomend.model.quantity import format_bytes, value
from topomend.replay.gates import DEFAULT_MAX_NUMA_NODES, read_gates
from topomend.replay.topology.policy_names import NONE

MEMORY_GROWTH = 4
"""How many times the Node's memory may be published: memory can be plugged in while the kubelet runs, which counts it
only after its next start. Pods find no more than the Node's allocatable memory there either way."""


def contradiction(node: Node, state: NodeState) -> str:
    """What of ``state`` contradicts ``node``, with both values, in one line; empty where nothing does.

    Empty too for a Node whose kubelet has not posted its capacity yet: the scheduler places no pod there.
    """
    if "cpu" not in node.capacity:
        return ""
    excess = _cpus(node, state) or _numa_nodes(node, state) or _memory(node, state) or _devices(node, state)
    return f"its agent is not believed: {excess}" if excess else ""


def _cpus(node: Node, state: NodeState) -> str:
    published, capacity = state.machine.cpus.bit_count(), _cpus_of(node)
    return f"it publishes {published} CPUs, its Node has {capacity}" if published > capacity else ""


def _numa_nodes(node: Node, state: NodeState) -> str:
    """More NUMA nodes than the kubelet starts with, or, beyond its default, more than CPUs.

    Every NUMA node has CPUs but for the memory of accelerators and memory expanders, of which a machine has fewer.
    """
    published = len(state.machine.numa_nodes)
    if published <= DEFAULT_MAX_NUMA_NODES:
        return ""
    most = _most_numa_nodes(state)
    if published > most:
        return f"it publishes {published} NUMA nodes, with its options a kubelet starts with at most {most}"
    if published > _cpus_of(node):
        return f"it publishes {published} NUMA nodes, its Node has {_cpus_of(node)} CPUs"
    return ""


def _most_numa_nodes(state: NodeState) -> int:
    """The most NUMA nodes with which the kubelet starts; all where it does not check or replay says why not."""
    # Imported for large machines alone: every command waits for the import of what all machines need.
    from topomend.replay.options import InvalidOption  # noqa: PLC0415
    from topomend.replay.topology.options import read_options  # noqa: PLC0415

    settings = state.kubelet
    if settings.topology_manager_policy == NONE:
        return len(state.machine.numa_nodes)
    try:
        return read_options(settings.topology_manager_policy_options, read_gates(settings)).max_numa_nodes
    except InvalidOption:
        return len(state.machine.numa_nodes)


def _memory(node: Node, state: NodeState) -> str:
    """Too much memory in all, or more huge pages than that memory could hold."""
    capacity = value(node.capacity.get("memory", 0))
    if not capacity:
        return ""
    memory = sum(numa_node.memory for numa_node in state.machine.numa_nodes)
    hugepages = sum(pages.size * pages.count for numa_node in state.machine.numa_nodes for pages in numa_node.hugepages)
    for published, name in ((memory, "memory"), (hugepages, "huge pages")):
        if published > MEMORY_GROWTH * capacity:
            return f"it publishes {format_bytes(published)} of {name}, its Node has {format_bytes(capacity)} of memory"
    return ""


def _devices(node: Node, state: NodeState) -> str:
    """More devices of a resource than the kubelet counts; it counts none while their plugin restarts."""
    for resource, published in sorted(Counter(device.resource for device in state.devices).items()):
        capacity = value(node.capacity.get(resource, 0))
        if 0 < capacity < published:
            return f"it publishes {published} {resource}, its Node has {capacity}"
    return ""


def _cpus_of(node: Node) -> int:
    return value(node.capacity["cpu"])
