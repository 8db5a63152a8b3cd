"""The agent and a real kubelet on a machine whose NUMA nodes and PCI buses QEMU emulates: ``make vm-test``.

Its name keeps it out of ``make test``: it needs QEMU and some minutes. Everything is real but the processors: Debian's
kernel, sysfs, device messages, a kubelet with containerd inside, the sandbox's API server outside, and the agent as
its DaemonSet runs it from the image.
"""

import json
import time

from click.testing import CliRunner
from verify.e2e.images import IDLE
from verify.vm import machine
from verify.vm.node import KUBELET_LOG, NODE, Guest

from topomend.cli.kubectl_numa import numa
from topomend.discover.machine.pci_distance import PCIDistance, pci_distance
from topomend.model.bitmask import mask_of, members
from topomend.model.machine import Machine, PCIDevice
from topomend.wire.published.node_topology import read_conditions

MIB = 1 << 20


def _device(published: Machine, address: str) -> PCIDevice | None:
    return next((device for device in published.pci_devices if device.address == address), None)


def test_the_published_machine_is_the_emulated_one(node: Guest) -> None:
    published = node.machine()
    assert [one.id for one in published.numa_nodes] == [one.id for one in machine.NODES]
    assert published.cpus_of_numa_node == {one.id: mask_of(one.cpus) for one in machine.NODES if one.cpus}
    assert published.memory_only == mask_of([3])
    assert [one.distances for one in published.numa_nodes] == [one.distances for one in machine.NODES]
    for one, spec in zip(published.numa_nodes, machine.NODES, strict=True):
        # What firmware and kernel keep for themselves is not in MemTotal; their bounce buffers alone are 64 MiB.
        assert spec.mebibytes - 128 <= one.memory / MIB <= spec.mebibytes
        counted = {pool.resource: pool.count for pool in one.hugepages if pool.count}
        assert counted == ({"hugepages-2Mi": spec.hugepages} if spec.hugepages else {})
    assert published.cpus_of_socket == {socket: mask_of(cpus) for socket, cpus in machine.SOCKETS.items()}
    assert [core.threads for core in published.cores] == [mask_of(threads) for threads in machine.CORES]
    assert published.isolated == mask_of([machine.ISOLATED])
    assert published.offline == 0


def test_every_pci_function_has_the_numa_node_of_sysfs(node: Guest) -> None:
    devices = node.discover().pci_devices
    listed = node.vm.run("sh", "-c", "cd /sys/bus/pci/devices; for d in *; do echo $d $(cat $d/numa_node); done")
    listed_numa_nodes = dict(line.split() for line in listed.splitlines())
    assert {
        device.address: str(-1 if device.numa_node is None else device.numa_node) for device in devices
    } == listed_numa_nodes


def test_every_condition_is_true_beside_a_real_kubelet(node: Guest) -> None:
    conditions = read_conditions(node.published())
    assert {condition.type: condition.status for condition in conditions} == dict.fromkeys(
        ("Ready", "HostDiscovered", "KubeletConfigRead", "AllocationsRead"), "True"
    )


def test_a_selftest_agrees_with_the_kubelet(node: Guest) -> None:
    began = time.monotonic()
    asked = ["selftest", NODE, "--yes", "--image", IDLE, "--timeout", "300", "-o", "json"]
    result = CliRunner().invoke(numa, [*asked, "--kubeconfig", str(node.kubeconfig)])
    print(result.stderr, f"after {time.monotonic() - began:.0f} s")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["counts"] == {"agrees": len(answer["cases"]), "differs": 0, "unsure": 0, "notTried": 0}
    assert answer["notes"] == []
    refused = {case["name"] for case in answer["cases"] if not case["happened"]["admitted"]}
    assert {"beyond", "memory-beyond", "huge-pages-1-beyond"} <= refused


def test_every_device_that_pods_could_use_is_where_qemu_put_it(node: Guest) -> None:
    published = {device.address: device for device in node.machine().pci_devices}
    for device in published.values():
        print(device)
    assert {
        device.address: (device.numa_node, device.numa_source, device.path, device.driver)
        for device in published.values()
    } == {
        device.address: (device.numa_node, "" if device.numa_node is None else "sysfs", device.path, device.driver)
        for device in machine.DEVICES
    }
    assert all(device.iommu_group is not None for device in published.values())
    assert published[machine.NETWORK_CARD].names == ("eth0",)
    assert published[machine.NETWORK_CARD].vendor_name == "Red Hat, Inc."
    assert [published[address].max_virtual_functions for address in (machine.LEFT_DISK, machine.RIGHT_DISK)] == [0, 2]


def test_how_far_apart_devices_are_follows_their_buses(node: Guest) -> None:
    published = {device.address: device for device in node.machine().pci_devices}
    assert {pair: pci_distance(*(published[address] for address in pair)) for pair in machine.PCI_DISTANCES} == {
        pair: PCIDistance(distance) for pair, distance in machine.PCI_DISTANCES.items()
    }


def test_the_kubelet_has_found_the_same_cores(node: Guest) -> None:
    line = node.vm.run("grep", "Detected CPU topology", KUBELET_LOG)
    cpu_details = json.loads(line.partition("topology=")[2])["CPUDetails"]
    sockets = node.machine().cpus_of_socket
    caches = node.machine().cpus_of_l3_cache
    assert {
        cpu: (where["NUMANodeID"], where["SocketID"], where["CoreID"], caches[where["UncoreCacheID"]])
        for cpu, where in cpu_details.items()
    } == {
        str(cpu): (
            core.numa_node,
            core.socket,
            core.id,
            next(shared for shared in caches.values() if shared >> cpu & 1),
        )
        for core in node.machine().cores
        for cpu in members(core.threads)
    }
    assert len(cpu_details) == sum(map(int.bit_count, sockets.values()))


def test_a_device_that_is_plugged_in_and_pulled_out_is_published(node: Guest) -> None:
    before = node.machine()
    assert _device(before, machine.HOT_ADDRESS) is None
    node.vm.monitor("device_add", {"driver": "nvme", "id": "hot", "bus": machine.HOT_PORT, "serial": "hot"})
    node.within_seconds("a disk plugged in", lambda: _device(node.machine(), machine.HOT_ADDRESS) is not None)
    plugged = _device(node.machine(), machine.HOT_ADDRESS)
    print(plugged)
    assert plugged is not None
    assert (plugged.numa_node, plugged.numa_source) == (machine.HOT_NUMA_NODE, "sysfs")
    assert plugged.path == machine.HOT_PATH
    (left,) = (device for device in before.pci_devices if device.address == machine.LEFT_DISK)
    assert pci_distance(plugged, left) is PCIDistance.SAME_ROOT_COMPLEX
    node.vm.monitor("device_del", {"id": "hot"})
    node.within_seconds("a disk pulled out", lambda: node.machine() == before)


def test_virtual_functions_name_their_physical_function(node: Guest) -> None:
    before = node.machine()
    folder = f"/sys/bus/pci/devices/{machine.RIGHT_DISK}"
    node.vm.write(f"{folder}/sriov_drivers_autoprobe", "0")

    def functions() -> list[PCIDevice]:
        return [device for device in node.machine().pci_devices if device.physical_function == machine.RIGHT_DISK]

    node.vm.write(f"{folder}/sriov_numvfs", "2")
    node.within_seconds("two virtual functions", lambda: len(functions()) == 2)
    assert [function.numa_node for function in functions()] == [2, 2]
    node.vm.write(f"{folder}/sriov_numvfs", "0")
    node.within_seconds("no virtual function", lambda: node.machine() == before)


def test_a_cpu_that_goes_offline_and_comes_back_is_published(node: Guest) -> None:
    before = node.machine()
    node.vm.write("/sys/devices/system/cpu/cpu5/online", "0")
    node.within_seconds("CPU 5 offline", lambda: node.machine().offline == mask_of([5]))
    assert node.machine().cpus_of_numa_node[1] == mask_of([4])
    status, message = node.condition("KubeletConfigRead")
    assert (status, "CPUs 5" in message) == ("False", True), message
    node.vm.write("/sys/devices/system/cpu/cpu5/online", "1")
    node.within_seconds("CPU 5 online", lambda: node.machine() == before)
    assert node.condition("Ready")[0] == "True"


def test_memory_that_is_plugged_in_is_reported_beside_the_kubelets_count(node: Guest) -> None:
    before = node.machine()
    node.vm.monitor("object-add", {"qom-type": "memory-backend-ram", "id": "more", "size": 128 * MIB})
    node.vm.monitor("device_add", {"driver": "pc-dimm", "id": "dimm", "memdev": "more", "node": 3})
    blocks = "/sys/devices/system/memory"
    node.vm.run(
        "sh",
        "-c",
        f"for i in 1 2 3 4 5 6 7 8 9 10; do grep -l offline {blocks}/memory*/state && exit; sleep 1; done; exit 1",
    )
    node.vm.run("sh", "-c", f"for f in {blocks}/memory*/state; do grep -q offline $f && echo online > $f; done; true")
    node.within_seconds("128 MiB more in NUMA node 3", lambda: "NUMA node 3 has" in node.condition("HostDiscovered")[1])
    print(node.condition("HostDiscovered")[1])
    assert node.machine() == before
    assert round((node.discover().numa_nodes[3].memory - before.numa_nodes[3].memory) / MIB) == 128
