import json
from pathlib import Path
from typing import Any

import pytest

from topomend.discover.state_files import FILES, MAX_BYTES, KubeletState, StateUnreadable, fingerprint, read_state
from topomend.model.bitmask import mask_of
from topomend.model.nodes.node_state import ContainerAllocation, DeviceAllocation, MemoryBlock, NUMANodeMemory
from topomend.replay.startup.state.restore import ALLOCATED_STATE, CPU_STATE, DEVICE_STATE, MEMORY_STATE

from .machines import cpu_state, write_state


def table(total: int, reserved: int) -> dict[str, int]:
    return {"total": total, "systemReserved": 0, "allocatable": total, "reserved": reserved, "free": total - reserved}


MEMORY: dict[str, Any] = {
    "policyName": "Static",
    "machineState": {
        "0": {"numberOfAssignments": 1, "memoryMap": {"memory": table(8 << 30, 1 << 30)}, "cells": [0]},
        "10": {"numberOfAssignments": 0, "memoryMap": {"memory": table(8 << 30, 0)}, "cells": [10]},
    },
    "entries": {"uid-1": {"main": [{"numaAffinity": [0], "type": "memory", "size": 1 << 30}]}},
    "checksum": 7,
}

DEVICES: dict[str, Any] = {
    "Data": {
        "PodDeviceEntries": [
            {
                "PodUID": "uid-1",
                "ContainerName": "main",
                "ResourceName": "vendor.com/gpu",
                "DeviceIDs": {"0": ["gpu-0", "gpu-1"], "1": ["gpu-1"]},
                "AllocResp": "",
            }
        ],
        "RegisteredDevices": {},
    },
    "Checksum": 7,
}


def test_a_folder_without_state_files_is_a_kubelet_that_stored_nothing(tmp_path: Path) -> None:
    assert read_state(tmp_path) == KubeletState()


def test_what_the_managers_keep_of_a_container_comes_together(tmp_path: Path) -> None:
    write_state(tmp_path, CPU_STATE, cpu_state({"uid-1": {"main": "1-2", "setup": "1-4"}}, pool="0,5-7"))
    write_state(tmp_path, MEMORY_STATE, MEMORY)
    write_state(tmp_path, DEVICE_STATE, DEVICES)
    admitted: dict[str, object] = {"entries": {"uid-1": {"ContainerResources": {"main": {}, "side": {}}}}}
    write_state(tmp_path, ALLOCATED_STATE, {"data": json.dumps(admitted), "checksum": 7})
    state = read_state(tmp_path)
    assert state.pods["uid-1"].containers == {
        "main": ContainerAllocation(
            "main",
            cpus=mask_of([1, 2]),
            memory=(MemoryBlock("memory", mask_of([0]), 1 << 30),),
            devices=(DeviceAllocation("vendor.com/gpu", ("gpu-0", "gpu-1")),),
        ),
        "setup": ContainerAllocation("setup", cpus=mask_of([1, 2, 3, 4])),
    }
    assert state.memory == (
        NUMANodeMemory(0, 1, mask_of([0]), {"memory": 1 << 30}),
        NUMANodeMemory(10, 0, mask_of([10]), {}),
    )
    assert state.memory_totals == {(0, "memory"): 8 << 30, (10, "memory"): 8 << 30}
    assert state.admitted == {"uid-1": frozenset({"main", "side"})}
    assert state.policies == {CPU_STATE: "static", MEMORY_STATE: "Static"}
    assert state.cpu_pool == mask_of([0, 5, 6, 7])


def test_what_a_pod_holds_as_a_whole_is_read(tmp_path: Path) -> None:
    write_state(tmp_path, CPU_STATE, cpu_state({}) | {"podEntries": {"uid-2": {"cpuSet": "4-7"}}})
    block = {"numaAffinity": [1], "type": "memory", "size": 5}
    write_state(tmp_path, MEMORY_STATE, {**MEMORY, "podEntries": {"uid-2": {"memoryBlocks": [block]}}})
    pod = read_state(tmp_path).pods["uid-2"]
    assert (pod.cpus, pod.memory) == (mask_of([4, 5, 6, 7]), (MemoryBlock("memory", mask_of([1]), 5),))


def test_since_1_37_the_data_of_a_managers_file_counts(tmp_path: Path) -> None:
    cpu = cpu_state({"uid-2": {"main": "4-5", "sidecar": "6-7"}})
    write_state(tmp_path, CPU_STATE, cpu | {"data": json.dumps(cpu | {"podEntries": {"uid-2": {"cpuSet": "4-7"}}})})
    block = {"numaAffinity": [1], "type": "memory", "size": 5}
    data = {**MEMORY, "podEntries": {"uid-2": {"memoryBlocks": [block]}}}
    write_state(tmp_path, MEMORY_STATE, {**MEMORY, "data": json.dumps(data)})
    state = read_state(tmp_path)
    pod = state.pods["uid-2"]
    assert (pod.cpus, pod.memory) == (mask_of([4, 5, 6, 7]), (MemoryBlock("memory", mask_of([1]), 5),))
    assert pod.containers["sidecar"].cpus == mask_of([6, 7])
    assert state.policies == {CPU_STATE: "static", MEMORY_STATE: "Static"}


@pytest.mark.parametrize(
    ("data", "why"), [("{", "is not JSON"), (5, "5 where a string belongs"), ("[" * 100_000, "not JSON")]
)
def test_data_that_cannot_be_read_is_named(tmp_path: Path, data: object, why: str) -> None:
    write_state(tmp_path, CPU_STATE, cpu_state({}) | {"data": data})
    with pytest.raises(StateUnreadable, match=f"{CPU_STATE}.*data.*{why}"):
        read_state(tmp_path)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\x00\xff\xfe\x01",
        b"[]",
        b'"text"',
        b"[" * 100_000,
        b'{"entries": 3, "data": 3, "Data": 3}',
        b'{"entries": {"u": {"c": "0-"}}, "machineState": {"x": {}}, "Data": {"PodDeviceEntries": [{}]}, "data": "{"}',
        b'{"entries": {"u": {"c": 9}}, "machineState": {"0": 1}, "Data": {"PodDeviceEntries": {}}, "data": "[]"}',
    ],
)
def test_a_file_that_is_cut_binary_or_of_another_shape_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StateUnreadable) as caught:
        read_state(tmp_path)
    assert str(tmp_path / name) in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / CPU_STATE).open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(StateUnreadable, match="is longer than"):
        read_state(tmp_path)


def test_a_folder_instead_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / MEMORY_STATE).mkdir()
    with pytest.raises(StateUnreadable, match=MEMORY_STATE):
        read_state(tmp_path)


def test_the_fingerprint_changes_with_every_file_replaced(tmp_path: Path) -> None:
    marks = [fingerprint(tmp_path)]
    for name in FILES:
        write_state(tmp_path, name, {})
        marks.append(fingerprint(tmp_path))
        write_state(tmp_path, name, {})
        marks.append(fingerprint(tmp_path))
    assert len(set(marks)) == len(marks)
    assert fingerprint(tmp_path) == marks[-1]
