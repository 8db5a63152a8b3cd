"""Answers for pkg/kubelet/cm/memorymanager: the Static policy's hints and allocations.

The machine state, blocks and reusable memory have the JSON form of the kubelet's own types.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from verify.kubelet_tests.answers.objects import (
    read_container,
    read_hint,
    read_pod,
    written_hints,
    written_refusal,
)

from topomend.model.bitmask import NUMAMask, mask_of, members
from topomend.model.nodes.node_state import MemoryBlock
from topomend.replay.gates import Gates
from topomend.replay.memory.machine_state import MachineState
from topomend.replay.memory.static import MemoryManager, StaticPolicy
from topomend.replay.topology.hints import ResourceOffer


def hints(arguments: dict[str, Any], gates: Gates) -> dict[str, Any] | None:
    """The hints for a container (GetTopologyHints)."""
    pod = read_pod(arguments["pod"])
    manager = _manager(arguments, gates)
    return _written(arguments, manager, manager.hints(pod, read_container(arguments["container"], pod)))


def pod_hints(arguments: dict[str, Any], gates: Gates) -> dict[str, Any] | None:
    """The hints for a whole pod (GetPodTopologyHints)."""
    manager = _manager(arguments, gates)
    return _written(arguments, manager, manager.pod_hints(read_pod(arguments["pod"])))


def allocate(arguments: dict[str, Any], gates: Gates) -> dict[str, Any]:
    """The state after the allocation for a container, and the refusal (Allocate)."""
    pod, manager = read_pod(arguments["pod"]), _manager(arguments, gates)
    container, affinity = read_container(arguments["container"], pod), read_hint(arguments["affinity"])
    rejection = manager.allocate(pod, container, affinity)
    return {**_state(arguments, manager), "refusal": written_refusal(rejection)}


def allocate_pod(arguments: dict[str, Any], gates: Gates) -> dict[str, Any]:
    """The state after the allocation for a whole pod, and the refusal (AllocatePod)."""
    pod, manager = read_pod(arguments["pod"]), _manager(arguments, gates)
    rejection = manager.allocate_pod(pod, read_hint(arguments["affinity"]))
    exclusive = [container.name for container in pod.containers if manager._requested(pod, container)]
    return {**_state(arguments, manager), "exclusive": exclusive, "refusal": written_refusal(rejection)}


ANSWERERS = {
    "memorymanager.GetTopologyHints": hints,
    "memorymanager.GetPodTopologyHints": pod_hints,
    "memorymanager.Allocate": allocate,
    "memorymanager.AllocatePod": allocate_pod,
}


def _manager(arguments: Mapping[str, Any], gates: Gates) -> MemoryManager:
    published = {int(number): node for number, node in (arguments["machineState"] or {}).items()}
    allocatable = {
        number: {resource: table["allocatable"] for resource, table in node["memoryMap"].items()}
        for number, node in published.items()
    }
    state = MachineState(allocatable)
    for number, node in published.items():
        kept = state.nodes[number]
        kept.assignments = node["numberOfAssignments"]
        kept.cells = _cells(node, number)
        kept.free = {resource: table["free"] for resource, table in node["memoryMap"].items()}
        kept.reserved = {resource: table["reserved"] for resource, table in node["memoryMap"].items()}
    blocks = {name: _read_blocks(listed) for name, listed in (arguments["blocks"] or {}).items()}
    policy = StaticPolicy(allocatable, gates)
    manager = MemoryManager(policy, state, blocks, _read_blocks(arguments["podBlocks"]))
    manager._reusable = {
        (int(mask, 2), resource): size
        for mask, sizes in (arguments["reusable"] or {}).items()
        for resource, size in sizes.items()
    }
    return manager


def _cells(node: Mapping[str, Any], number: int) -> NUMAMask:
    """A NUMA node's group; one without any is a group of its own."""
    return mask_of(node["cells"] or [number])


def _read_blocks(documents: Iterable[Mapping[str, Any]] | None) -> tuple[MemoryBlock, ...]:
    return tuple(MemoryBlock(each["type"], mask_of(each["numaAffinity"]), each["size"]) for each in documents or ())


def _written(
    arguments: Mapping[str, Any], manager: MemoryManager, offers: list[ResourceOffer]
) -> dict[str, Any] | None:
    """The hints by resource: the kubelet leaves out a resource without hints, and returns nil where it asks none."""
    if not offers:
        return None
    nodes = [int(number) for number in arguments["machineState"]]
    listed = {offer.resource: written_hints(offer, nodes, manager.usage) for offer in offers}
    return {resource: hints for resource, hints in listed.items() if hints is not None}


def _state(arguments: Mapping[str, Any], manager: MemoryManager) -> dict[str, Any]:
    machine_state = arguments["machineState"] or {}
    for number, node in manager.machine_state.nodes.items():
        document = machine_state[str(number)]
        document["numberOfAssignments"] = node.assignments
        if node.cells != _cells(document, number):
            document["cells"] = list(members(node.cells))
        for resource, table in document["memoryMap"].items():
            table["free"], table["reserved"] = node.free[resource], node.reserved[resource]
    reusable: dict[NUMAMask, dict[str, int]] = {}
    for (mask, resource), size in manager._reusable.items():
        reusable.setdefault(mask, {})[resource] = size
    return {
        "machineState": machine_state,
        "blocks": {name: _written_blocks(blocks) for name, blocks in manager.blocks.items()},
        "podBlocks": _written_blocks(manager.pod_blocks),
        "reusable": [{"nodes": list(members(mask)), "sizes": sizes} for mask, sizes in reusable.items()],
    }


def _written_blocks(blocks: Iterable[MemoryBlock]) -> list[dict[str, Any]]:
    return [
        {"numaAffinity": list(members(block.numa_nodes)), "type": block.resource, "size": block.size}
        for block in blocks
    ]
