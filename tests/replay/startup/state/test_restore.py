"""Which state files keep a kubelet from starting, in its own sentences."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import kubelet_settings
from verify.oracle.restoring.saved import sealed, written_claims

from topomend.model.machine import Core
from topomend.model.shapes.shape import parse_shape
from topomend.replay.startup.state.checkpoints import CPU_V2, CPU_V3, checksum_of
from topomend.replay.startup.state.restore import (
    ALLOCATED_STATE,
    CLAIM_STATE,
    CPU_STATE,
    DEVICE_STATE,
    MEMORY_STATE,
    Restored,
    restore,
)

MACHINE = parse_shape("sockets:1 numa:2 cores:2 threads:2 memory:4Gi").machine()
SETTINGS = kubelet_settings("none", memory_manager="Static", reserved_memory="1Gi")
OLDER = replace(SETTINGS, version="v1.34.4")
ROOT = "/var/lib/kubelet"

CPUS_1_37 = (
    b'{"policyName":"static","defaultCpuSet":"0-7","checksum":14413152,'
    b'"data":"{\\"policyName\\":\\"static\\",\\"defaultCpuSet\\":\\"0-7\\"}","dataChecksum":3294586087}'
)
CPUS_1_34 = b'{"policyName":"static","defaultCpuSet":"0-7","checksum":14413152}'
MEMORY_1_34 = (
    b'{"policyName":"Static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":4294967296,'
    b'"systemReserved":1073741824,"allocatable":3221225472,"reserved":0,"free":3221225472}},"cells":[0]},'
    b'"1":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":4294967296,"systemReserved":0,'
    b'"allocatable":4294967296,"reserved":0,"free":4294967296}},"cells":[1]}},"checksum":1825913896}'
)
"""As kubelets of these versions wrote them on this machine."""


def restored(settings: Any = SETTINGS, machine: Any = MACHINE, **files: bytes) -> Restored:
    return restore(files, machine, settings, ROOT)


def refusal(settings: Any = SETTINGS, machine: Any = MACHINE, **files: bytes) -> str:
    (refused,) = restored(settings, machine, **files).refusals
    assert refused.path.startswith(f"{ROOT}/")
    return refused.sentence


def cpus(pool: str, entries: dict[str, dict[str, str]] | None = None, policy: str = "static") -> bytes:
    """A file of version 2, which every kubelet reads."""
    fields = {"PolicyName": policy, "DefaultCPUSet": pool, "Entries": entries or {}}
    return sealed(CPU_V2, "CPUManagerCheckpoint", fields)


def in_file(why: str, of: str = "CPU manager", name: str = CPU_STATE) -> str:
    return (
        f"could not restore state from checkpoint: {why}, please drain this node and delete the {of} checkpoint file "
        f'"{ROOT}/{name}" before restarting Kubelet'
    )


@pytest.mark.parametrize(
    ("settings", "content"), [(SETTINGS, CPUS_1_37), (SETTINGS, CPUS_1_34), (OLDER, CPUS_1_37), (OLDER, CPUS_1_34)]
)
def test_a_kubelet_starts_with_what_it_or_another_version_wrote(settings: Any, content: bytes) -> None:
    assert restored(settings, cpu_manager_state=content, memory_manager_state=MEMORY_1_34) == Restored()


def test_a_kubelet_without_files_starts() -> None:
    assert restored() == Restored()


def test_a_refusal_names_the_file_to_delete_after_a_drain() -> None:
    (refused,) = restored(cpu_manager_state=cpus("", policy="none")).refusals
    why = 'configured policy "static" differs from state checkpoint policy "none"'
    assert refused.sentence == f"start cpu manager error: {in_file(why)}"
    assert str(refused) == (
        f"after a restart the kubelet would not start: {refused.sentence}; "
        f"drain the node, stop the kubelet, delete {ROOT}/{CPU_STATE}, then start it"
    )


HOLDERS = {"u1": {"main": "2-3"}}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (cpus("", HOLDERS), "default cpuset cannot be empty"),
        (cpus("1,4-7", HOLDERS), 'not all reserved cpus: "0" are present in defaultCpuSet: "1,4-7"'),
        (cpus("0-7", HOLDERS), 'pod: u1, container: main cpuset: "2-3" overlaps with default cpuset "0-7"'),
        (
            cpus("0-1,4-6", HOLDERS),
            'current set of available CPUs "0-7" doesn\'t match with CPUs in state "0-6"',
        ),
        (
            cpus("0-1,4-8", HOLDERS),
            'current set of available CPUs "0-7" doesn\'t match with CPUs in state "0-8"',
        ),
    ],
    ids=["no pool", "reserved", "twice", "nowhere", "a CPU less"],
)
def test_a_state_that_does_not_fit_the_machine_is_refused(content: bytes, why: str) -> None:
    assert refusal(cpu_manager_state=content) == f"start cpu manager error: {why}"


def test_two_containers_with_one_cpu_are_no_hindrance() -> None:
    """The kubelet compares containers with the shared pool, and not with each other."""
    assert restored(cpu_manager_state=cpus("0,4-7", {"u1": {"a": "1-2"}, "u2": {"b": "2-3"}})) == Restored()


def test_cpus_that_went_or_came_since_are_a_hindrance() -> None:
    fewer = replace(MACHINE, cores=(replace(MACHINE.cores[0], threads=1), *MACHINE.cores[1:]))
    more = replace(MACHINE, cores=(*MACHINE.cores, Core(1 << 8, 0, 1)))
    assert 'available CPUs "0-3,5-7"' in refusal(machine=fewer, cpu_manager_state=CPUS_1_37)
    assert 'available CPUs "0-8"' in refusal(machine=more, cpu_manager_state=CPUS_1_37)


def test_strictly_reserved_cpus_must_not_be_shared() -> None:
    strict = replace(SETTINGS, cpu_manager_policy_options={"strict-cpu-reservation": "true"})
    why = 'some of strictly reserved cpus: "0" are present in defaultCpuSet: "0-7"'
    assert refusal(strict, cpu_manager_state=CPUS_1_37) == f"start cpu manager error: {why}"
    assert restored(strict, cpu_manager_state=cpus("1-7")) == Restored()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "unexpected end of JSON input"),
        (CPUS_1_34[:-8], "unexpected end of JSON input"),
        (b"x", "invalid character 'x' looking for beginning of value"),
        (CPUS_1_34.replace(b"14413152", b"14413153"), "checkpoint is corrupted"),
        (CPUS_1_37.replace(b"3294586087", b"1"), "could not load v4 checkpoint: checkpoint is corrupted"),
        (cpus("0-"), 'could not parse default CPU set "0-": strconv.Atoi: parsing "": invalid syntax'),
        (
            cpus("0,2-7", {"u1": {"main": "1 "}}),
            'could not parse cpuset "1 " for container "main" in pod "u1": strconv.Atoi: parsing "1 ": invalid syntax',
        ),
        (
            b'{"policyName":7}',
            "json: cannot unmarshal number into Go struct field CPUManagerCheckpointV2.policyName of type string",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(content: bytes, why: str) -> None:
    assert refusal(cpu_manager_state=content) == f"start cpu manager error: {in_file(why)}"


def test_what_whole_pods_have_needs_a_kubelet_that_knows_of_it() -> None:
    fields = {
        "PolicyName": "static",
        "DefaultCPUSet": "0-5",
        "Entries": {},
        "PodEntries": {"u1": {"CPUSet": 0b11000000}},
    }
    content = sealed(CPU_V3, "CPUManagerCheckpoint", fields)
    managers = replace(SETTINGS, feature_gates={"PodLevelResources": True, "PodLevelResourceManagers": True})
    assert restored(managers, cpu_manager_state=content) == Restored()
    assert "doesn't match with CPUs in state" in refusal(cpu_manager_state=content)
    assert "checkpoint is corrupted" in refusal(OLDER, cpu_manager_state=content)


def memory(**changes: Any) -> bytes:
    state = json.loads(MEMORY_1_34)
    return json.dumps({**state, "checksum": 0, **changes}).encode()


def test_memory_that_changed_since_is_refused() -> None:
    nodes = tuple(replace(node, memory=node.memory + (1 << 20)) for node in MACHINE.numa_nodes)
    why = "start memory manager error: [memorymanager] the expected machine state is different from the real one"
    assert refusal(machine=replace(MACHINE, numa_nodes=nodes), memory_manager_state=MEMORY_1_34) == why
    other = kubelet_settings("none", memory_manager="Static", reserved_memory="2Gi")
    assert refusal(other, memory_manager_state=MEMORY_1_34) == why


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            memory(entries={"u1": {"main": [{"numaAffinity": [7], "type": "memory", "size": 1}]}}),
            "[memorymanager] (pod: u1, container: main) the memory assignment uses the NUMA that does not exist",
        ),
        (
            memory(entries={"u1": {"main": [{"numaAffinity": [0], "type": "hugepages-2Mi", "size": 1}]}}),
            "[memorymanager] (pod: u1, container: main) the memory assignment uses memory resource that does not exist",
        ),
        (
            memory(machineState={}, entries={"u1": {}}),
            "[memorymanager] machine state can not be empty when it has memory assignments",
        ),
    ],
)
def test_blocks_that_do_not_fit_the_machine_are_refused(content: bytes, why: str) -> None:
    assert refusal(memory_manager_state=content) == f"start memory manager error: {why}"


def test_a_kubelet_that_would_crash_is_told_too() -> None:
    assert refusal(memory_manager_state=memory(machineState={"0": None, "1": None})).startswith("panic: runtime error")


def test_a_state_in_an_older_format_is_copied_before_its_policy_is_compared() -> None:
    node = {"numberOfAssignments": 0, "memoryMap": {"memory": None}, "cells": [0]}
    content = memory(policyName="None", machineState={"0": node})
    assert refusal(memory_manager_state=content).startswith("panic: runtime error")
    assert "differs from state checkpoint policy" in refusal(
        replace(SETTINGS, version="v1.36.0"), memory_manager_state=content
    )


def test_each_file_that_would_stop_the_kubelet_is_told() -> None:
    refused = restored(
        cpu_manager_state=b"", memory_manager_state=b"", allocated_pods_state=b"", dra_manager_state=b""
    ).refusals
    assert [each.path.rpartition("/")[2] for each in refused] == [CLAIM_STATE, ALLOCATED_STATE, CPU_STATE, MEMORY_STATE]


def test_files_that_a_version_does_not_read_are_no_hindrance() -> None:
    oldest = replace(SETTINGS, version="v1.30.14")
    assert restored(oldest, allocated_pods_state=b"", dra_manager_state=b"") == Restored()


def test_amounts_and_claims_as_a_kubelet_wrote_them_are_read() -> None:
    data = '{"entries":{"u1":{"ContainerResources":{"main":{}}}}}'
    pods = json.dumps({"data": data, "checksum": checksum_of(data)}).encode()
    assert restored(allocated_pods_state=pods, dra_manager_state=written_claims()) == Restored()
    assert "delete pod resource information checkpoint file" in refusal(allocated_pods_state=pods.replace(b"u1", b"u2"))


def test_lost_devices_stop_no_kubelet_and_are_told() -> None:
    lost = restore({DEVICE_STATE: b'{"Data":{},"Checksum":1}'}, MACHINE, SETTINGS, ROOT)
    (remark,) = lost.remarks
    assert (lost.refusals, "could allocate them twice" in remark, DEVICE_STATE in remark) == ((), True, True)


def test_a_kubelet_that_starts_with_no_file_at_all_is_judged_elsewhere() -> None:
    wrong = replace(SETTINGS, cpu_manager_policy="dynamic")
    assert restored(wrong, cpu_manager_state=b"") == Restored()


def test_a_total_alone_that_differs_is_refused() -> None:
    """Memory that came with a reservation of the same size leaves as much free as before."""
    state = json.loads(MEMORY_1_34)["machineState"]
    state["1"]["memoryMap"]["memory"]["total"] += 1
    assert "different from the real one" in refusal(memory_manager_state=memory(machineState=state))
