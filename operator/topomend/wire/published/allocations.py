"""Convert devices, the pods' allocations and the memory manager's state to and from a NodeTopology's fields.

Owns the layout of ``status.devices``, ``status.pods`` and ``status.memory``. Leaves the rest of the object to
``node_topology``. Sizes are bytes.
"""

from collections.abc import Iterable
from typing import Any

from topomend.model.bitmask import MAX_ID, format_id_list, mask_of, members
from topomend.model.nodes.node_state import (
    ContainerAllocation,
    Device,
    DeviceAllocation,
    MemoryBlock,
    NUMANodeMemory,
    PodAllocation,
)
from topomend.model.quantity import MAX_INT64
from topomend.wire.document import Document, without_empty


def device_fields(devices: Iterable[Device]) -> list[dict[str, Any]]:
    """``status.devices``, grouped by resource, then by equal NUMA nodes and health, with one list of ids a group.

    Grouping keeps the object small. Within a group the order of ids is kept.
    """
    resources: dict[str, dict[tuple[tuple[int, ...] | None, bool], list[str]]] = {}
    for device in devices:
        kinds = resources.setdefault(device.resource, {})
        kinds.setdefault((device.numa_nodes, device.healthy), []).append(device.id)
    return [
        {
            "resource": resource,
            "groups": [_device_group(numa_nodes, healthy, ids) for (numa_nodes, healthy), ids in kinds.items()],
        }
        for resource, kinds in resources.items()
    ]


def _device_group(numa_nodes: tuple[int, ...] | None, healthy: bool, ids: list[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {"ids": ids}
    if numa_nodes is not None:
        fields["numaNodes"] = list(numa_nodes)
    if not healthy:
        fields["healthy"] = False
    return fields


def devices_of(resource: Document) -> Iterable[Device]:
    """The devices of one entry of ``status.devices``. Raises MalformedObject."""
    for group in resource["groups"]:
        numa_nodes = group["numaNodes"]
        node_ids = (
            None if numa_nodes.absent else tuple(node_id.integer(least=-1, most=MAX_INT64) for node_id in numa_nodes)
        )
        for device in group["ids"]:
            yield Device(resource["resource"].text(), device.text(), node_ids, group["healthy"].boolean(default=True))


def pod_fields(pod: PodAllocation) -> dict[str, Any]:
    """One entry of ``status.pods``: the resources of one pod."""
    return without_empty(
        {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "cpus": format_id_list(pod.cpus),
            "memory": _block_fields(pod.memory),
            "containers": [_container_fields(container) for container in pod.containers],
        }
    )


def _container_fields(container: ContainerAllocation) -> dict[str, Any]:
    return without_empty(
        {
            "name": container.name,
            "init": True if container.init else None,
            "cpus": format_id_list(container.cpus),
            "memory": _block_fields(container.memory),
            "devices": [{"resource": device.resource, "ids": list(device.ids)} for device in container.devices],
        }
    )


def _block_fields(blocks: Iterable[MemoryBlock]) -> list[dict[str, Any]]:
    return [
        {"resource": block.resource, "numaNodes": list(members(block.numa_nodes)), "bytes": block.size}
        for block in blocks
    ]


def _read_blocks(blocks: Document) -> tuple[MemoryBlock, ...]:
    return tuple(
        MemoryBlock(block["resource"].text(), _read_mask(block["numaNodes"]), block["bytes"].integer())
        for block in blocks
    )


def pod_of(pod: Document) -> PodAllocation:
    """The allocation of one entry of ``status.pods``. Raises MalformedObject."""
    return PodAllocation(
        namespace=pod["namespace"].text("default"),
        name=pod["name"].text(),
        uid=pod["uid"].text(""),
        cpus=pod["cpus"].id_list(),
        memory=_read_blocks(pod["memory"]),
        containers=tuple(
            ContainerAllocation(
                name=container["name"].text(),
                init=container["init"].boolean(default=False),
                cpus=container["cpus"].id_list(),
                memory=_read_blocks(container["memory"]),
                devices=tuple(
                    DeviceAllocation(device["resource"].text(), tuple(device_id.text() for device_id in device["ids"]))
                    for device in container["devices"]
                ),
            )
            for container in pod["containers"]
        ),
    )


def memory_fields(node: NUMANodeMemory) -> dict[str, Any]:
    """One entry of ``status.memory``: the memory manager's state of one NUMA node."""
    return {
        "numaNode": node.numa_node,
        "assignments": node.assignments,
        "cells": list(members(node.cells)),
        "reserved": [{"resource": resource, "bytes": size} for resource, size in node.reserved.items()],
    }


def memory_of(node: Document) -> NUMANodeMemory:
    """The memory manager's state of one NUMA node, from an entry of ``status.memory``. Raises MalformedObject."""
    return NUMANodeMemory(
        numa_node=node["numaNode"].integer(most=MAX_ID - 1),
        assignments=node["assignments"].integer(),
        cells=_read_mask(node["cells"]),
        reserved={entry["resource"].text(): entry["bytes"].integer() for entry in node["reserved"]},
    )


def _read_mask(ids: Document) -> int:
    return mask_of(node_id.integer(most=MAX_ID - 1) for node_id in ids)
