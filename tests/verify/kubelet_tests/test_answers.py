"""Replay answers what ``kubelet/*.go`` asks, in the kubelet's own forms."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from verify.kubelet_tests.answers.__main__ import reply

VERSION = "v1.37.2"

SIZE = {"cpu": "2", "memory": "1Gi"}
CONTAINER: dict[str, Any] = {"name": "app", "resources": {"requests": SIZE, "limits": SIZE}}
POD: dict[str, Any] = {"metadata": {"name": "pod", "uid": "u"}, "spec": {"containers": [CONTAINER]}, "status": {}}

# Two NUMA nodes of two cores with two threads.
TOPOLOGY: dict[str, Any] = {
    "NumCPUs": 8,
    "NumCores": 4,
    "NumSockets": 2,
    "NumNUMANodes": 2,
    "CPUDetails": {str(cpu): {"NUMANodeID": cpu // 4, "SocketID": cpu // 4, "CoreID": cpu // 2} for cpu in range(8)},
}
CPU_STATE: dict[str, Any] = {
    "pod": POD,
    "container": CONTAINER,
    "topology": TOPOLOGY,
    "options": {"FullPhysicalCPUsOnly": True},
    "reserved": "0",
    "reservedPhysical": "0-1",
    "pool": "0-7",
    "assigned": {},
    "bubble": "",
    "reusable": "",
    "affinity": {"nodes": [1], "preferred": True},
}
GIB = 1 << 30
TABLE = {"total": 2 * GIB, "systemReserved": 0, "allocatable": 2 * GIB, "reserved": 0, "free": 2 * GIB}
MEMORY_STATE: dict[str, Any] = {
    "pod": POD,
    "container": CONTAINER,
    "machineState": {
        str(node): {"numberOfAssignments": 0, "memoryMap": {"memory": TABLE}, "cells": [node]} for node in range(2)
    },
    "blocks": None,
    "podBlocks": None,
    "reusable": None,
    "affinity": {"nodes": [1], "preferred": True},
}
DEVICE_STATE: dict[str, Any] = {
    "numaNodes": [0, 1],
    "devices": {"a/b": {"d0": [0], "d1": [1], "d2": None}},
    "healthy": {"a/b": ["d0", "d1", "d2"]},
    "inUse": {},
    "allocated": {},
    "reusable": {},
}
GPU: dict[str, Any] = {"name": "app", "resources": {"limits": {"a/b": "1"}}}


def ask(function: str, **arguments: Any) -> Any:
    question = json.loads(json.dumps({"function": function, "gates": {}, "arguments": arguments}))
    return reply(question, VERSION)["answer"]


def hint(*nodes: int, preferred: bool) -> dict[str, Any]:
    return {"nodes": list(nodes), "preferred": preferred}


def scored(score: int, *nodes: int, preferred: bool) -> dict[str, Any]:
    """A hint with the score that kubelets give it from v1.38.0-beta.0 on."""
    return {**hint(*nodes, preferred=preferred), "score": score}


def test_cpus_are_taken_as_the_kubelet_takes_them() -> None:
    taken = {"topology": TOPOLOGY, "available": "1-7", "count": 4}
    assert ask("takeByTopologyNUMAPacked", **taken, options={}) == {"cpus": "4-7"}
    spread = {"cpuGroupSize": 2, "cpuSortingStrategy": "packed", "alignBySocket": False}
    assert ask("takeByTopologyNUMADistributed", **{**taken, "count": 6, "available": "0-7"}, options=spread)["cpus"]
    refused = ask("takeByTopologyNUMAPacked", **{**taken, "count": 9}, options={})
    assert refused == {"error": "not enough cpus available to satisfy request: requested=9, available=7"}


def test_exclusive_cpus_are_counted() -> None:
    assert ask("guaranteedCPUs", pod=POD, container=CONTAINER) == 2
    assert ask("podGuaranteedCPUs", pod=POD, container=None) == 2


def test_a_pod_is_read_without_the_defaults_of_the_api_server() -> None:
    limited = {"name": "app", "resources": {"limits": SIZE}}
    pod = {**POD, "spec": {"containers": [limited]}}
    assert ask("guaranteedCPUs", pod=pod, container=limited) == 0
    assert ask("ComputePodQOS", pod=POD) == "Guaranteed"
    assert ask("ComputePodQOS", pod={**POD, "status": {"qosClass": "BestEffort"}}) == "Guaranteed"
    assert ask("IsContainerEquivalentQOSGuaranteed", container=CONTAINER) is True
    assert ask("IsContainerEquivalentQOSGuaranteed", container=limited) is False


def test_hints_for_cpus_are_listed_the_narrowest_first() -> None:
    every = [scored(1, 0, preferred=True), scored(1, 1, preferred=True), scored(1, 0, 1, preferred=False)]
    assert ask("cpumanager.GetTopologyHints", **CPU_STATE) == {"cpu": every}
    assert ask("cpumanager.GetPodTopologyHints", **CPU_STATE) == {"cpu": every}
    assert ask("cpumanager.GetTopologyHints", **{**CPU_STATE, "pool": "0-1"}) == {"cpu": []}
    half_taken = ask("cpumanager.GetTopologyHints", **{**CPU_STATE, "pool": "0-5"})["cpu"]
    assert scored(50, 1, preferred=True) in half_taken
    burstable = {**POD, "status": {"qosClass": "Burstable"}}
    assert ask("cpumanager.GetTopologyHints", **{**CPU_STATE, "pod": burstable}) is None


def test_an_allocation_of_cpus_brings_the_state_after_it() -> None:
    allocated = ask("cpumanager.Allocate", **CPU_STATE)
    assert allocated["assigned"] == {"app": "4-5"}
    assert allocated["pool"] == "0-3,6-7"
    assert allocated["refusal"] == {}
    refused = ask("cpumanager.Allocate", **{**CPU_STATE, "pool": "0-1"})["refusal"]
    assert refused["reason"] == "SMTAlignmentError"
    assert ask("cpumanager.AllocatePod", **CPU_STATE)["exclusive"] == ["app"]


def test_hints_and_allocations_of_memory_have_the_kubelets_own_form() -> None:
    every = [scored(1, 0, preferred=True), scored(1, 1, preferred=True), scored(1, 0, 1, preferred=False)]
    assert ask("memorymanager.GetTopologyHints", **MEMORY_STATE) == {"memory": every}
    assert ask("memorymanager.GetPodTopologyHints", **MEMORY_STATE) == {"memory": every}
    allocated = ask("memorymanager.Allocate", **MEMORY_STATE)
    assert allocated["blocks"] == {"app": [{"numaAffinity": [1], "type": "memory", "size": GIB}]}
    assert allocated["machineState"]["1"] == {
        "numberOfAssignments": 1,
        "memoryMap": {"memory": {**TABLE, "reserved": GIB, "free": GIB}},
        "cells": [1],
    }
    assert allocated["machineState"]["0"] == MEMORY_STATE["machineState"]["0"]
    assert ask("memorymanager.AllocatePod", **MEMORY_STATE)["podBlocks"] == allocated["blocks"]["app"]


def test_hints_for_devices_and_their_choice() -> None:
    every = [scored(1, 0, preferred=True), scored(1, 1, preferred=True), scored(1, 0, 1, preferred=False)]
    asked = {**DEVICE_STATE, "pod": {**POD, "spec": {"containers": [GPU]}}, "container": GPU}
    assert ask("devicemanager.GetTopologyHints", **asked) == {"a/b": every}
    assert ask("devicemanager.GetPodTopologyHints", **asked) == {"a/b": every}
    chosen = {"uid": "u", "container": "app", "resource": "a/b", "running": False}
    one = ask("devicesToAllocate", **DEVICE_STATE, **chosen, required=1, affinity=hint(1, preferred=True))
    assert one == {"devices": ["d1"], "refusal": {}}
    four = ask("devicesToAllocate", **DEVICE_STATE, **chosen, required=4, affinity=hint(1, preferred=True))
    assert four["refusal"]["error"] == "requested number of devices unavailable for a/b. Requested: 4, Available: 3"


@pytest.mark.parametrize(
    ("policy", "merger", "admitted"),
    [
        ("best-effort", "bestEffortPolicy", True),
        ("restricted", "restrictedPolicy", False),
        ("single-numa-node", "singleNumaNodePolicy", False),
    ],
)
def test_a_policy_merges_listed_hints(policy: str, merger: str, admitted: bool) -> None:
    info = {"Nodes": [0, 1], "NUMADistances": {"0": None, "1": None}}
    arguments = {"policy": policy, "info": info, "options": {"PreferClosestNUMA": False}}
    both = [{"cpu": [hint(0, preferred=True)]}, {"a/b": [hint(1, preferred=True)]}, {}]
    assert ask(f"{merger}.Merge", **arguments, providers=both)["admitted"] is admitted
    alike = [{"cpu": [hint(1, preferred=True)]}, {"a/b": [hint(1, preferred=True)]}, {"memory": None}]
    assert ask(f"{merger}.Merge", **arguments, providers=alike) == {"hint": hint(1, preferred=True), "admitted": True}


def test_a_fault_becomes_a_panic_that_says_where() -> None:
    assert "KeyError" in reply({"function": "guaranteedCPUs", "gates": {}, "arguments": {}}, VERSION)["panic"]


def test_a_process_answers_line_by_line() -> None:
    question = {"function": "guaranteedCPUs", "gates": {}, "arguments": {"pod": POD, "container": CONTAINER}}
    done = subprocess.run(
        [sys.executable, "-m", "verify.kubelet_tests.answers"],
        input=2 * f"{json.dumps(question)}\n",
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TOPOMEND_VERSION": VERSION, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == 2 * '{"answer": 2}\n'
