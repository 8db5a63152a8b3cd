"""How large a publication may be, as an object and in the operator's memory, where a few bytes may become thousands.

An agent writes what its node's root has it write. A set of CPUs has two KiB if it contains the last one, however it is
written. Owns estimates and limits. Leaves what becomes of a publication that exceeds them to the reader.
"""

from collections.abc import Iterable
from typing import Any

from topomend.model.machine import Machine
from topomend.model.nodes.node_state import MemoryBlock, NodeState

ORDINARY_BYTES = 128 << 10
"""A state of no more memory is always kept. A node of 128 CPUs with 100 pods takes 80 KiB."""

ROOM_BYTES = 96 << 20
"""The memory for all states and machines that are larger. The largest that was seen has three MiB."""

_OBJECT_BYTES = 64
"""A small object and the references to it, roughly."""


def json_bytes(content: object, most: int) -> int:
    """About how long a decoded JSON document was, never more than it was; anything above ``most`` once it is longer."""
    total, waiting = -1, list[Any]([[content]])  # the outer list is ours
    while waiting and total <= most:
        item = waiting.pop()
        if type(item) is dict:
            total += sum(map(len, item)) + 4 * len(item)
            item = item.values()
        else:
            total += 1
        for value in item:
            kind = type(value)  # a decoder makes no subclasses, and this is asked of every value of every object
            if kind is str:
                total += len(value) + 3
            elif kind is dict or kind is list:
                waiting.append(value)
            else:
                total += 2
    return total


def machine_bytes(machine: Machine) -> int:
    """About the memory that a machine takes."""
    cores = sum(2 * _OBJECT_BYTES + _bits(core.threads) for core in machine.cores)
    nodes = sum(
        4 * _OBJECT_BYTES + 8 * len(node.distances) + _OBJECT_BYTES * len(node.hugepages) for node in machine.numa_nodes
    )
    return cores + nodes


def state_bytes(state: NodeState) -> int:
    """About the memory that a state takes without its machine, which other nodes may share."""
    total = sum(4 * _OBJECT_BYTES + len(device.id) + len(device.resource) for device in state.devices)
    for pod in state.pods:
        total += 4 * _OBJECT_BYTES + len(pod.namespace) + len(pod.name) + _bits(pod.cpus) + _blocks(pod.memory)
        for container in pod.containers:
            total += 3 * _OBJECT_BYTES + len(container.name) + _bits(container.cpus) + _blocks(container.memory)
            for allocation in container.devices:
                total += 2 * _OBJECT_BYTES + sum(_OBJECT_BYTES + len(device_id) for device_id in allocation.ids)
    for memory in state.memory or ():
        total += 4 * _OBJECT_BYTES + _bits(memory.cells) + 3 * _OBJECT_BYTES * len(memory.reserved)
    return total


def _bits(mask: int) -> int:
    return _OBJECT_BYTES + mask.bit_length() // 7


def _blocks(blocks: Iterable[MemoryBlock]) -> int:
    return sum(3 * _OBJECT_BYTES + len(block.resource) + _bits(block.numa_nodes) for block in blocks)
