"""Devices, and what pods hold of a node, to and from a NodeTopology's fields."""

from collections.abc import Iterable
from typing import Any

from topomend.model.bitmask import MAX_ID, format_id_list, mask_of, members
from topomend.model.node_state import (
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
    """The ``devices``: grouped by resource, then by equal topology and health, ids together: small, and order kept."""
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
    """One resource's devices. Raises MalformedObject."""
    for group in resource["groups"]:
        numa_nodes = group["numaNodes"]
        places = None if numa_nodes.absent else tuple(each.integer(least=-1, most=MAX_INT64) for each in numa_nodes)
        for device in group["ids"]:
            yield Device(resource["resource"].text(), device.text(), places, group["healthy"].boolean(default=True))


def pod_fields(pod: PodAllocation) -> dict[str, Any]:
    """One of the ``pods``: what it holds."""
    return without_empty(
        {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "cpus": format_id_list(pod.cpus),
            "memory": _block_fields(pod.memory),
            "containers": [_container_fields(each) for each in pod.containers],
        }
    )


def _container_fields(container: ContainerAllocation) -> dict[str, Any]:
    return without_empty(
        {
            "name": container.name,
            "init": True if container.init else None,
            "cpus": format_id_list(container.cpus),
            "memory": _block_fields(container.memory),
            "devices": [{"resource": each.resource, "ids": list(each.ids)} for each in container.devices],
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
    """What one of the ``pods`` holds. Raises MalformedObject."""
    return PodAllocation(
        namespace=pod["namespace"].text("default"),
        name=pod["name"].text(),
        uid=pod["uid"].text(""),
        cpus=pod["cpus"].id_list(),
        memory=_read_blocks(pod["memory"]),
        containers=tuple(
            ContainerAllocation(
                name=each["name"].text(),
                init=each["init"].boolean(default=False),
                cpus=each["cpus"].id_list(),
                memory=_read_blocks(each["memory"]),
                devices=tuple(
                    DeviceAllocation(held["resource"].text(), tuple(device.text() for device in held["ids"]))
                    for held in each["devices"]
                ),
            )
            for each in pod["containers"]
        ),
    )


def book_fields(node: NUMANodeMemory) -> dict[str, Any]:
    """One NUMA node of the ``memory``: the memory manager's books."""
    return {
        "numaNode": node.numa_node,
        "assignments": node.assignments,
        "cells": list(members(node.cells)),
        "reserved": [{"resource": resource, "bytes": size} for resource, size in node.reserved.items()],
    }


def book_of(node: Document) -> NUMANodeMemory:
    """One NUMA node of the memory manager's books. Raises MalformedObject."""
    return NUMANodeMemory(
        numa_node=node["numaNode"].integer(most=MAX_ID - 1),
        assignments=node["assignments"].integer(),
        cells=_read_mask(node["cells"]),
        reserved={each["resource"].text(): each["bytes"].integer() for each in node["reserved"]},
    )


def _read_mask(ids: Document) -> int:
    return mask_of(each.integer(most=MAX_ID - 1) for each in ids)
