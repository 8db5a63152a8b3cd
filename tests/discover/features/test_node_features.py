"""Which facts of a node are features, and that they are those of its machine and its kubelet."""

from dataclasses import replace

import pytest
from tests.builders import node_state
from tests.discover.lstopo import LSTOPO, NAMES, read_with_lstopo
from verify.oracle.random_cases.recorded import unpacked

from topomend.discover.features.node_features import (
    KINDS,
    MAX_DEVICES,
    NUMA_NODES,
    PCI,
    kubelet_attributes,
    node_features,
)
from topomend.discover.host import read_host
from topomend.model.machine import PCIDevice
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node_state import NodeState
from topomend.model.shapes.shape import parse_shape

WITH_PCI = (
    "32em64t-2n8c+dax+nvme+mic+dimms",
    "32intel64-2p8co2t+8ve",
    "40intel64-4n10c+pci-conflicts",
    "fakepcilocalities",
    "nvidiagpunumanodes",
)
GPU = PCIDevice("0000:3a:00.0", 0x030200, 0x10DE, 0x2330, driver="nvidia", numa_node=1)


def state_of(shape: str, *devices: PCIDevice, **settings: object) -> NodeState:
    machine = replace(parse_shape(shape).machine(), pci_devices=devices)
    return replace(node_state(), machine=machine, kubelet=replace(KubeletSettings(), **settings))  # type: ignore[arg-type]


def test_the_labels_of_a_ready_node_are_its_policies_and_the_size_of_its_machine() -> None:
    policies = {
        "topology_manager_policy": "restricted",
        "topology_manager_scope": "pod",
        "cpu_manager_policy": "static",
    }
    features = node_features(state_of("sockets:2 numa:2 cores:4 threads:2 memory:8Gi", **policies), is_ready=True)
    assert features.labels == {
        "topology-ready": "true",
        "topology-manager-policy": "restricted",
        "topology-manager-scope": "pod",
        "cpu-manager-policy": "static",
        "memory-manager-policy": "None",
        "numa-nodes": "4",
        "cpus-per-numa-node": "8",
    }


def test_a_node_that_is_not_ready_has_no_label_of_its_kubelet() -> None:
    features = node_features(state_of("sockets:1 numa:1 cores:4 threads:1 memory:8Gi"), is_ready=False)
    assert features.labels == {"topology-ready": "false", "numa-nodes": "1", "cpus-per-numa-node": "4"}
    assert features.attributes == {}


def test_numa_nodes_with_unequal_cpus_have_no_common_number() -> None:
    state = state_of("sockets:2 numa:1 cores:4 threads:1 memory:8Gi")
    machine = replace(state.machine, cores=state.machine.cores[:-1])
    assert "cpus-per-numa-node" not in node_features(replace(state, machine=machine), is_ready=True).labels


def test_the_memory_of_a_gpu_is_no_numa_node_of_the_machine() -> None:
    state = state_of("sockets:2 numa:1 cores:4 threads:1 memory:8Gi")
    nodes = (*state.machine.numa_nodes, replace(state.machine.numa_nodes[0], id=2, gpu=GPU.address))
    features = node_features(replace(state, machine=replace(state.machine, numa_nodes=nodes)), is_ready=True)
    assert features.labels["numa-nodes"] == "2"
    assert [node.get("gpu", "") for node in features.instances[NUMA_NODES]] == ["", "", GPU.address]


def test_options_are_named_as_in_the_kubelets_configuration() -> None:
    settings = replace(KubeletSettings(), cpu_manager_policy_options={"full-pcpus-only": "true"})
    assert kubelet_attributes(settings)["cpuManagerPolicyOptions.full-pcpus-only"] == "true"


def test_devices_are_counted_by_numa_node_without_virtual_functions() -> None:
    virtual = GPU._replace(address="0000:3a:00.1", physical_function=GPU.address)
    bridge = GPU._replace(address="0000:00:01.0", pci_class=0x060400)
    nowhere = GPU._replace(address="0000:3b:00.0", numa_node=None)
    state = state_of("sockets:2 numa:1 cores:4 threads:1 memory:8Gi", GPU, virtual, bridge, nowhere)
    instances = node_features(state, is_ready=True).instances
    assert [node["accelerator"] for node in instances[NUMA_NODES]] == ["0", "1"]
    assert [device["address"] for device in instances[PCI]] == [GPU.address, nowhere.address]
    assert instances[PCI][0] == {
        "address": GPU.address,
        "kind": "accelerator",
        "class": "0302",
        "vendor": "10de",
        "device": "2330",
        "sriov_totalvfs": "0",
        "driver": "nvidia",
        "numa-node": "1",
    }
    assert "numa-node" not in instances[PCI][1]


def test_devices_without_end_are_bounded() -> None:
    many = tuple(GPU._replace(address=f"{number:04x}:00:00.0") for number in range(MAX_DEVICES + 1))
    state = state_of("sockets:2 numa:1 cores:4 threads:1 memory:8Gi", *many)
    assert len(node_features(state, is_ready=True).instances[PCI]) == MAX_DEVICES


@pytest.mark.skipif(LSTOPO is None, reason="no lstopo on this machine: apt-get install hwloc")
@pytest.mark.skipif(not NAMES, reason="no recorded machines beside the project (../shared/data/hwloc)")
@pytest.mark.parametrize("name", [name for name in WITH_PCI if name in NAMES])
def test_the_features_of_a_recorded_machine_are_what_lstopo_reads(name: str) -> None:
    root = unpacked(name)
    theirs = read_with_lstopo(root)
    machine = read_host(root, whole=True).machine
    features = node_features(replace(node_state(), machine=machine), is_ready=False)
    nodes = {int(node["id"]): node for node in features.instances[NUMA_NODES]}
    assert features.labels["numa-nodes"] == str(len(set(theirs.memory) - theirs.gpu_memory))
    assert {node: int(values["memory"]) for node, values in nodes.items()} == dict(theirs.memory)
    with_cpus = {
        node: cpus.bit_count() for node, cpus in theirs.cpus_of_numa_node.items() if nodes[node]["cpus"] != "0"
    }
    assert {node: int(nodes[node]["cpus"]) for node in with_cpus} == with_cpus
    functions = {
        device["address"]: (int(device["class"], 16), int(device["vendor"], 16), int(device["device"], 16))
        for device in features.instances[PCI]
    }
    assert functions
    assert functions.items() <= theirs.pci_ids.items()
    assert {device["kind"] for device in features.instances[PCI]} <= set(KINDS)
