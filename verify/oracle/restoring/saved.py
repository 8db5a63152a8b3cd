"""Writes the state of a node as a kubelet of some version keeps it in its root directory.

Owns the fields of each manager's ``MarshalCheckpoint``, with the checksums that the kubelet expects.
"""

import json
from base64 import b64encode
from collections.abc import Mapping
from random import Random
from typing import Any
from zlib import crc32

from topomend.model.bitmask import format_id_list, members
from topomend.model.nodes.node_state import NodeState, NUMANodeMemory, PodAllocation
from topomend.replay.admission import shared_pool
from topomend.replay.container_manager import ContainerManager
from topomend.replay.gates import Gates
from topomend.replay.startup.state.checkpoint_json import Field, Integer, Map, Slice, Struct
from topomend.replay.startup.state.checkpoints import (
    CPU_DATA,
    CPU_V2,
    CPU_V3,
    DEVICES,
    MEMORY_DATA,
    MEMORY_V1,
    MEMORY_V2,
    checksum_of,
    checksum_of_devices,
    checksum_of_fields,
)
from topomend.replay.startup.state.restore import CPU_STATE, DEVICE_STATE, MEMORY_STATE, empty_machine

Fields = dict[str, Any]
"""A file's fields by Go's names."""


def saved_fields(node: NodeState, kubelet: ContainerManager) -> dict[str, Fields]:
    """What the managers' files say of a node, by file."""
    return {
        CPU_STATE: _cpus(node, kubelet),
        MEMORY_STATE: _memory(node, kubelet),
        DEVICE_STATE: _devices(node),
    }


def _cpus(node: NodeState, kubelet: ContainerManager) -> Fields:
    entries = {
        pod.uid: {each.name: format_id_list(each.cpus) for each in pod.containers if each.cpus} for pod in node.pods
    }
    return {
        "PolicyName": node.kubelet.cpu_manager_policy,
        "DefaultCPUSet": format_id_list(shared_pool(node)) if kubelet.cpu else "",
        "Entries": {uid: containers for uid, containers in entries.items() if containers},
        "PodEntries": {pod.uid: {"CPUSet": pod.cpus} for pod in node.pods if pod.cpus},
        "Baselines": {},
    }


def _memory(node: NodeState, kubelet: ContainerManager) -> Fields:
    return {
        "PolicyName": node.kubelet.memory_manager_policy,
        "MachineState": _machine_state(node) if kubelet.memory else {},
        "Entries": {
            pod.uid: {each.name: _blocks(each.memory) for each in pod.containers if each.memory}
            for pod in node.pods
            if any(each.memory for each in pod.containers)
        },
        "PodEntries": {pod.uid: {"MemoryBlocks": _blocks(pod.memory)} for pod in node.pods if pod.memory},
    }


def _blocks(blocks: Any) -> list[Fields]:
    return [
        {"NUMAAffinity": list(members(each.numa_nodes)), "Type": each.resource, "Size": each.size} for each in blocks
    ]


def _machine_state(node: NodeState) -> dict[int, Fields]:
    machine = empty_machine(node.machine, node.kubelet)
    for saved in node.memory or ():
        _fill(machine[saved.numa_node], saved)
    return machine


def _fill(numa_node: Fields, saved: NUMANodeMemory) -> None:
    numa_node["NumberOfAssignments"] = saved.assignments
    numa_node["Cells"] = list(members(saved.cells))
    for resource, size in saved.reserved.items():
        table = numa_node["MemoryMap"][resource]
        table["Reserved"] = size
        table["Free"] = (table["Free"] - size) % (1 << 64)


def _devices(node: NodeState) -> Fields:
    places = {(device.resource, device.id): device.numa_nodes for device in node.devices}

    def by_numa_node(resource: str, ids: tuple[str, ...]) -> dict[int, list[str]]:
        numa_nodes: dict[int, list[str]] = {}
        for each in ids:
            for numa_node in places.get((resource, each)) or (-1,):
                numa_nodes.setdefault(numa_node, []).append(each)
        return numa_nodes

    return {
        "PodDeviceEntries": [
            {
                "PodUID": pod.uid,
                "ContainerName": container.name,
                "ResourceName": devices.resource,
                "DeviceIDs": by_numa_node(devices.resource, devices.ids),
                "AllocResp": list(f"{pod.uid}/{container.name}".encode()),
            }
            for pod, container in _containers(node.pods)
            for devices in container.devices
        ],
        "RegisteredDevices": {
            resource: [device.id for device in node.devices if device.resource == resource]
            for resource in {device.resource for device in node.devices}
        },
    }


def _containers(pods: tuple[PodAllocation, ...]) -> Any:
    return ((pod, container) for pod in pods for container in pod.containers)


def written(files: Mapping[str, Fields], gates: Gates) -> dict[str, bytes]:
    """The files as a kubelet with these gates writes them, by path."""
    in_data, of_pods = gates.checkpoints_in_data, gates.checkpoints_of_pods and gates.pod_level_resource_managers
    if in_data:
        return {
            CPU_STATE: _in_data(CPU_DATA, CPU_V2, "CPUManagerCheckpoint", files[CPU_STATE]),
            MEMORY_STATE: _in_data(MEMORY_DATA, MEMORY_V1, "MemoryManagerCheckpoint", files[MEMORY_STATE]),
            DEVICE_STATE: _written_devices(files[DEVICE_STATE]),
        }
    cpu, memory = (CPU_V3, MEMORY_V2) if of_pods else (CPU_V2, MEMORY_V1)
    return {
        CPU_STATE: sealed(cpu, "CPUManagerCheckpoint", files[CPU_STATE]),
        MEMORY_STATE: sealed(memory, "MemoryManagerCheckpoint", files[MEMORY_STATE]),
        DEVICE_STATE: _written_devices(files[DEVICE_STATE]),
    }


def sealed(struct: Struct, name: str, fields: Fields) -> bytes:
    """Fields as JSON with their checksum, which calls the structure ``name``."""
    own = {each.name: fields.get(each.name) for each in struct.fields if each.name != "Checksum"}
    checksum = checksum_of_fields(Struct("state", name, struct.fields), {**own, "Checksum": 0})
    return json.dumps(_json(struct, {**own, "Checksum": checksum})).encode()


def _in_data(data: Struct, beside: Struct, name: str, fields: Fields) -> bytes:
    text = json.dumps(_json(data, fields))
    around = json.loads(sealed(beside, name, fields))
    return json.dumps({**around, "data": text, "dataChecksum": checksum_of(text)}).encode()


def _written_devices(fields: Fields) -> bytes:
    return json.dumps({"Data": _json(DEVICES, fields), "Checksum": checksum_of_devices(fields)}).encode()


def written_pods(random: Random, uids: list[str]) -> bytes:
    """A file of the amounts that pods have."""
    amounts = {"requests": {"cpu": str(random.randint(1, 4))}}
    data = json.dumps({"entries": {uid: {"ContainerResources": {"c": amounts}} for uid in uids}})
    return json.dumps({"data": data, "checksum": checksum_of(data)}).encode()


def written_claims() -> bytes:
    """A file of no claims."""
    data = '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":null}'
    return json.dumps({"Data": data, "Checksum": crc32(data.encode())}).encode()


def _json(of: Any, value: Any) -> Any:
    """A value by the names of JSON; the set of a pod's CPUs is a text there, and bytes are base64."""
    if value is None or isinstance(of, Integer):
        return value
    if isinstance(of, Struct):
        return {each.json: _json(each.type, value[each.name]) for each in of.fields if not _left_out(each, value)}
    if isinstance(of, Map):
        return {str(key): _json(of.value, each) for key, each in value.items()}
    if isinstance(of, Slice):
        return [_json(of.element, each) for each in value]
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {"cpuSet": format_id_list(value["CPUSet"])}
    if isinstance(value, list):
        return b64encode(bytes(value)).decode()
    return value


def _left_out(field: Field, value: Fields) -> bool:
    """Whether Go leaves an empty map out (omitempty)."""
    return field.json in {"entries", "podEntries", "baselines"} and not value.get(field.name)
