"""The same trees read by Debian's lstopo and by this project: recorded machines, made ones, and this one.

Both read what the kernel wrote; where they differ on purpose the difference is listed with its reason, and a listed
difference that is none any more fails the test.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.discover.lstopo import LSTOPO, NAMES, Reading, read_with_lstopo
from verify.oracle.random_cases.recorded import unpacked

from topomend.discover.host import read_host
from topomend.model.bitmask import CPUSet, format_id_list
from topomend.model.machine import Machine, PCIDevice, PCILink
from topomend.model.shapes.shape import parse_shape
from topomend.sandbox import Sandbox
from topomend.sandbox.node.machine_files import write_machine

pytestmark = pytest.mark.skipif(LSTOPO is None, reason="no lstopo on this machine: apt-get install hwloc")

NO_NUMA = (
    "a kernel without NUMA nodes: the kubelet counts each socket as a node without memory, hwloc the machine as one"
)
NO_CORE_ID = (
    "no core_id in the recording: the kubelet needs it, and the CPUs are shown by their siblings; hwloc has none"
)
OVERLAP = (
    "NUMA nodes that claim the same CPUs: a CPU stays with the first here, hwloc drops nodes; the node is not Ready"
)
CONFLICT = "one CPU's map contradicts the others': the others' are believed here, hwloc drops the whole group"

INTENDED: Mapping[tuple[str, str], str] = {
    ("2arm-2c", "NUMA nodes"): NO_NUMA,
    ("2arm-2c", "memory"): NO_NUMA,
    ("2arm-2c", "CPUs by NUMA node"): NO_NUMA,
    ("2arm-2c", "hugepages"): NO_NUMA,
    ("2i386-2c-nohugepage", "memory"): NO_NUMA,
    ("2i386-2t-hugepagesizecount", "memory"): NO_NUMA,
    ("2i386-2t-hugepagesizecount", "hugepages"): NO_NUMA,
    ("2ps3-2t", "sockets"): NO_CORE_ID,
    ("4fake-4gr1nu1pu", "cores"): NO_CORE_ID,
    ("fakeheterocpunuma", "CPUs"): OVERLAP,
    ("fakeheterocpunuma", "NUMA nodes"): OVERLAP,
    ("fakeheterocpunuma", "CPUs by NUMA node"): OVERLAP,
    ("fakeheterocpunuma", "memory"): OVERLAP,
    ("fakeheterocpunuma", "hugepages"): OVERLAP,
    ("fakeheterocpunuma", "distances"): OVERLAP,
    ("40intel64-4n10c+pci-conflicts", "sockets"): CONFLICT,
    ("40intel64-4n10c+pci-conflicts", "L3 caches"): CONFLICT,
    ("32em64t-2n8c+dax+nvme+mic+dimms", "PCI ids"): (
        "a bridge whose recorded configuration space names impossible buses: hwloc drops it, sysfs has it"
    ),
    ("32intel64-2p8co2t+8ve", "PCI paths"): (
        "a bridge that is in the tree of folders and not in the list of devices: hwloc goes by the list"
    ),
}


def ours(machine: Machine, theirs: Reading) -> dict[str, Any]:
    """What discovery found, by what it is called here; ``theirs`` tells what hwloc has no object for."""
    hardware = machine.hardware
    nodes = machine.numa_nodes
    ids = [node.id for node in nodes]
    return {
        "CPUs": format_id_list(machine.cpus),
        "NUMA nodes": set(ids),
        "CPUs by NUMA node": {node: format_id_list(cpus) for node, cpus in machine.cpus_of_numa_node.items()},
        "memory": {node.id: node.memory for node in nodes},
        "hugepages": {node.id: {pool.size: pool.count for pool in node.hugepages if pool.count} for node in nodes},
        "GPU memory": {node.id for node in nodes if node.gpu},
        # hwloc makes no matrix for one NUMA node.
        "distances": {
            (node.id, other): distance
            for node in nodes
            for other, distance in zip(ids, node.distances, strict=False)
            if len(nodes) > 1
        },
        "sockets": texts(hardware.sockets or machine.cpus_of_socket.values()),
        "dies": texts(hardware.dies),
        # To hwloc a level-2 cache of the same CPUs is the cluster.
        "clusters": texts(set(hardware.clusters) - theirs.l2_caches),
        "L3 caches": texts(hardware.l3_caches),
        "cores": texts(hardware.cores or (core.threads for core in machine.cores)),
        "PCI ids": {
            device.address: (device.pci_class >> 8, device.vendor_id, device.device_id)
            for device in machine.pci_devices
        },
        "PCI paths": {device.address: device.path for device in machine.pci_devices},
        "PCI locality": {device.address: nodes_of(machine, device) for device in machine.pci_devices},
    }


def of_lstopo(theirs: Reading, machine: Machine) -> dict[str, Any]:
    """What lstopo found, in the same words."""
    here = {device.address for device in machine.pci_devices}
    with_cpus = machine.cpus_of_numa_node
    return {
        "CPUs": format_id_list(theirs.cpus),
        "NUMA nodes": set(theirs.memory),
        # hwloc gives a NUMA node without CPUs those that are nearest to it.
        "CPUs by NUMA node": {
            node: format_id_list(cpus)
            for node, cpus in theirs.cpus_of_numa_node.items()
            if node in with_cpus or node not in {numa_node.id for numa_node in machine.numa_nodes}
        },
        "memory": dict(theirs.memory),
        "hugepages": dict(theirs.hugepages),
        "GPU memory": set(theirs.gpu_memory),
        "distances": dict(theirs.distances),
        "sockets": texts(theirs.sockets),
        "dies": texts(theirs.dies),
        "clusters": texts(theirs.clusters),
        "L3 caches": texts(theirs.l3_caches),
        "cores": texts(theirs.cores),
        "PCI ids": dict(theirs.pci_ids),
        # A function that hwloc drops has no place; that it is dropped shows among the ids.
        "PCI paths": {address: theirs.pci_path.get(address, path_of(machine, address)) for address in here},
        "PCI locality": {
            address: around(with_cpus, theirs.pci_cpus[address])
            if address in theirs.pci_cpus
            else nodes_of(machine, find(machine, address))
            for address in here
        },
    }


def texts(sets: Iterable[CPUSet]) -> set[str]:
    return {format_id_list(cpus) for cpus in sets}


def find(machine: Machine, address: str) -> PCIDevice:
    return next(device for device in machine.pci_devices if device.address == address)


def path_of(machine: Machine, address: str) -> tuple[str, ...]:
    return find(machine, address).path


def nodes_of(machine: Machine, device: PCIDevice) -> set[int]:
    """The NUMA nodes with CPUs that a device may be near: its own, or all where nothing tells."""
    return set(machine.cpus_of_numa_node) if device.numa_node is None else {device.numa_node}


def around(cpus_of_numa_node: Mapping[int, CPUSet], cpus: CPUSet) -> set[int]:
    return {node for node, own in cpus_of_numa_node.items() if own & cpus}


def differences(root: Path) -> dict[str, str]:
    machine = read_host(root, whole=True).machine
    theirs = read_with_lstopo(root)
    actual, expected = ours(machine, theirs), of_lstopo(theirs, machine)
    return {
        aspect: f"{aspect}: here {actual[aspect]}, lstopo {expected[aspect]}"
        for aspect in actual
        if actual[aspect] != expected[aspect]
    }


@pytest.mark.skipif(not NAMES, reason="no recorded machines beside the project (../shared/data/hwloc)")
@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_machine_is_what_lstopo_reads_but_for_the_differences_that_are_meant(name: str) -> None:
    intended = {aspect for machine, aspect in INTENDED if machine == name}
    actual = differences(unpacked(name))
    assert set(actual) == intended, "; ".join(actual.values())


def test_every_difference_that_is_meant_is_of_a_recorded_machine() -> None:
    assert {name for name, _ in INTENDED} <= set(NAMES) or not NAMES


@pytest.mark.parametrize(
    "shape",
    [
        "sockets:1 numa:1 cores:1 threads:1 memory:1Gi",
        "sockets:2 numa:2 cores:4 threads:2 memory:8Gi hugepages-1Gi:2 hugepages-2Mi:64",
        "sockets:2 numa:4 cores:8 threads:2 l3:2 memory:16Gi device:v.com/gpu@0=2,3=1,7=9 device:v.com/nic@3=1",
        "sockets:4 numa:1 cores:12 threads:1 l3:3 memory:3Gi",
    ],
)
def test_a_machine_of_the_sandbox_is_what_lstopo_reads(tmp_path: Path, shape: str) -> None:
    made = parse_shape(shape)
    write_machine(tmp_path / "machine", made.machine(), made.offered_devices())
    assert differences(tmp_path / "machine") == {}


def test_a_machine_with_holes_offline_cpus_and_memory_alone_is_what_lstopo_reads(tmp_path: Path) -> None:
    made = parse_shape("sockets:2 numa:2 cores:4 threads:2 memory:8Gi").machine()
    offline = made.cpus_of_numa_node[1] | 1 << 5
    online = (replace(core, numa_node=core.numa_node * 3, threads=core.threads & ~offline) for core in made.cores)
    port = PCIDevice("0000:00:01.0", 0x060400, 0x8086, 0x2030, numa_node=6)
    gpu = port._replace(
        address="0000:01:00.0", pci_class=0x030200, path=(port.address,), link=PCILink(8.0, 8, 16.0, 16)
    )
    machine = replace(
        made,
        numa_nodes=tuple(replace(node, id=node.id * 3, distances=()) for node in made.numa_nodes),
        cores=tuple(core for core in online if core.threads),
        offline=offline,
        pci_devices=(port, gpu),
    )
    write_machine(tmp_path / "machine", machine)
    read = read_host(tmp_path / "machine").machine
    assert (read.memory_only, read.offline) == (1 << 3, offline)
    assert differences(tmp_path / "machine") == {}


def test_this_machine_is_what_lstopo_reads() -> None:
    assert differences(Path("/")) == {}


@pytest.mark.cluster
@pytest.mark.parametrize("node", ["wide", "split", "pods"])
def test_what_a_kubelet_of_the_sandbox_is_shown_is_what_lstopo_reads(cluster: Sandbox, node: str) -> None:
    assert differences(cluster.folder / "nodes" / node / "machine") == {}
