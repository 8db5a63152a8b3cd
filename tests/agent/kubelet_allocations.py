"""A kubelet's allocations by its own state files and socket, read without the code under test.

Everything is put as the NodeTopology puts it, so that both can be compared as they are.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from topomend.discover import podresources_pb2 as messages
from topomend.model.bitmask import CPUSet, format_id_list, mask_of, parse_id_list

Container = tuple[str, tuple[tuple[str, tuple[str, ...]], ...], tuple[tuple[str, tuple[int, ...], int], ...]]
"""What a container holds: CPUs as a list, device ids by resource, memory by resource, NUMA nodes and bytes."""

Holdings = dict[str, dict[str, Container]]
"""What pods hold, by name and container; those that hold nothing are left out."""

NOTHING: Container = ("", (), ())


class PodResources:
    """The socket of one kubelet, asked with the gRPC library."""

    def __init__(self, socket: Path) -> None:
        # By its folder's descriptor: a socket's path may be 108 bytes long, and the sandbox's can be longer.
        self._folder = os.open(socket.parent, os.O_RDONLY | os.O_CLOEXEC)
        self._channel = grpc.insecure_channel(f"unix:/proc/self/fd/{self._folder}/{socket.name}")
        self._list: Callable[..., messages.ListPodResourcesResponse] = self._channel.unary_unary(
            "/v1.PodResourcesLister/List",
            request_serializer=messages.ListPodResourcesRequest.SerializeToString,
            response_deserializer=messages.ListPodResourcesResponse.FromString,
        )

    def holdings(self) -> Holdings:
        """Every active pod, those that hold nothing with no container. Init containers are not told."""
        answer = self._list(messages.ListPodResourcesRequest(), timeout=60)
        return {
            pod.name: _holding((container.name, _of_list(container)) for container in pod.containers)
            for pod in answer.pod_resources
        }

    def claims(self) -> dict[tuple[str, str], set[tuple[str, str, str]]]:
        """By pod and container, the devices of its claims: claim, driver and device."""
        answer = self._list(messages.ListPodResourcesRequest(), timeout=60)
        return {
            (pod.name, container.name): set(_claimed(container))
            for pod in answer.pod_resources
            for container in pod.containers
            if container.dynamic_resources
        }

    def close(self) -> None:
        """End the connection."""
        self._channel.close()
        os.close(self._folder)


def _claimed(container: messages.ContainerResources) -> Iterator[tuple[str, str, str]]:
    for content in container.dynamic_resources:
        claim = messages.DynamicResource.FromString(content)
        for resource in map(messages.ClaimResource.FromString, claim.claim_resources):
            yield claim.claim_name, resource.driver_name, resource.device_name


def _of_list(container: messages.ContainerResources) -> Container:
    devices: dict[str, set[str]] = {}
    for device in container.devices:
        devices.setdefault(device.resource_name, set()).update(device.device_ids)
    memory = (
        (block.memory_type, tuple(node.ID for node in block.topology.nodes), block.size) for block in container.memory
    )
    return format_id_list(mask_of(container.cpu_ids)), _sorted_devices(devices), _sorted_memory(memory)


@dataclass(frozen=True)
class StateFiles:
    """One reading of a kubelet's state files. ``pods`` by uid; ``pool`` is the CPU Manager's default set.

    ``book`` has assignments, group and reserved bytes by resource of each NUMA node.
    """

    pods: Mapping[str, Mapping[str, Container]]
    pool: CPUSet
    book: Mapping[int, tuple[int, tuple[int, ...], Mapping[str, int]]]

    def pool_without(self, alive: Collection[str]) -> CPUSet:
        """The pool after the next purge, which gives back what pods that are not ``alive`` (uids) still hold."""
        pool = self.pool
        for uid, containers in self.pods.items():
            if uid not in alive:
                for cpus, _, _ in containers.values():
                    pool |= parse_id_list(cpus)
        return pool


def read_state_files(kubelet: Path) -> StateFiles:
    """The files in a kubelet's folder; a manager that keeps none holds nothing."""
    cpu, memory = _load(kubelet / "cpu_manager_state"), _load(kubelet / "memory_manager_state")
    devices: dict[tuple[str, str], dict[str, set[str]]] = {}
    for entry in (_load(kubelet / "device-plugins" / "kubelet_internal_checkpoint").get("Data") or {}).get(
        "PodDeviceEntries"
    ) or []:
        ids_of = devices.setdefault((entry["PodUID"], entry["ContainerName"]), {}).setdefault(
            entry["ResourceName"], set()
        )
        ids_of.update(one for ids in entry["DeviceIDs"].values() for one in ids)
    cpus = {(uid, name): ids for uid, of_pod in (cpu.get("entries") or {}).items() for name, ids in of_pod.items()}
    blocks = {
        (uid, name): entries
        for uid, of_pod in (memory.get("entries") or {}).items()
        for name, entries in of_pod.items()
    }
    pods: dict[str, dict[str, Container]] = {}
    for uid, name in {*cpus, *blocks, *devices}:
        held_memory = (
            (block["type"], tuple(block["numaAffinity"]), block["size"]) for block in blocks.get((uid, name), ())
        )
        pods.setdefault(uid, {})[name] = (
            format_id_list(parse_id_list(cpus.get((uid, name), ""))),
            _sorted_devices(devices.get((uid, name), {})),
            _sorted_memory(held_memory),
        )
    book = {int(node): _of_book(node_book) for node, node_book in (memory.get("machineState") or {}).items()}
    return StateFiles(
        {uid: _holding(containers.items()) for uid, containers in pods.items()},
        parse_id_list(cpu.get("defaultCpuSet", "")),
        book,
    )


def _of_book(node: Mapping[str, Any]) -> tuple[int, tuple[int, ...], Mapping[str, int]]:
    reserved = {resource: table["reserved"] for resource, table in node["memoryMap"].items() if table["reserved"]}
    return node["numberOfAssignments"], tuple(sorted(node["cells"])), reserved


def _load(path: Path) -> Mapping[str, Any]:
    try:
        content: Mapping[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return content


# What is published


def published_holdings(status: Mapping[str, Any], *, with_init: bool = True) -> Holdings:
    """The pods of a NodeTopology's status."""
    return {
        pod["name"]: holdings
        for pod in status.get("pods", ())
        if (
            holdings := _holding(
                (container["name"], _of_status(container)) for container in _shown(pod, with_init=with_init)
            )
        )
    }


def published_book(status: Mapping[str, Any]) -> Mapping[int, tuple[int, tuple[int, ...], Mapping[str, int]]]:
    """The Memory Manager's book in a NodeTopology's status, as StateFiles has it."""
    return {
        node["numaNode"]: (
            node.get("assignments", 0),
            tuple(node.get("cells", ())),
            {one["resource"]: one["bytes"] for one in node.get("reserved", ())},
        )
        for node in status.get("memory", ())
    }


def _shown(pod: Mapping[str, Any], *, with_init: bool) -> list[Mapping[str, Any]]:
    return [container for container in pod.get("containers", ()) if with_init or not container.get("init")]


def _of_status(container: Mapping[str, Any]) -> Container:
    devices = {device["resource"]: set(device["ids"]) for device in container.get("devices", ())}
    memory = (
        (block["resource"], tuple(block["numaNodes"]), block.get("bytes", 0)) for block in container.get("memory", ())
    )
    return container.get("cpus", ""), _sorted_devices(devices), _sorted_memory(memory)


def _holding(containers: Iterable[tuple[str, Container]]) -> dict[str, Container]:
    return {name: holding for name, holding in containers if holding != NOTHING}


def _sorted_devices(devices: Mapping[str, Collection[str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(sorted((resource, tuple(sorted(ids))) for resource, ids in devices.items() if ids))


def _sorted_memory(blocks: Iterable[tuple[str, tuple[int, ...], int]]) -> tuple[tuple[str, tuple[int, ...], int], ...]:
    return tuple(sorted((resource, tuple(sorted(nodes)), size) for resource, nodes, size in blocks))
