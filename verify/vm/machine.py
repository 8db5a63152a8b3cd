"""The machine that QEMU emulates: sockets, NUMA nodes, distances, and PCI devices behind expander bridges.

This module defines the numbers once, for QEMU's flags and for the expected discovery.
"""

from dataclasses import dataclass
from pathlib import Path

SOCKETS = {0: (0, 1, 2, 3), 1: (4, 5, 6, 7)}
CORES = ((0, 1), (2, 3), (4, 5), (6, 7))
ISOLATED = 7
"""CPUs by socket and by core, as QEMU numbers them."""


@dataclass(frozen=True)
class Node:
    """One NUMA node. ``place`` selects its ``cpus`` in QEMU's flags; a node with only memory has neither."""

    id: int
    mebibytes: int
    hugepages: int
    place: str
    cpus: tuple[int, ...]
    distances: tuple[int, ...]


NODES = (
    Node(0, 1024, 0, "socket-id=0", (0, 1, 2, 3), (10, 21, 22, 17)),
    Node(1, 768, 16, "socket-id=1,core-id=0", (4, 5), (21, 10, 12, 28)),
    Node(2, 512, 0, "socket-id=1,core-id=1", (6, 7), (22, 12, 10, 27)),
    Node(3, 256, 8, "", (), (18, 29, 26, 10)),
)
"""Sub-NUMA clustering in the second socket only, and memory without CPUs, nearest to the first socket. The distances
from and to that memory differ, so that a test notices if one is taken for the other."""


@dataclass(frozen=True)
class Device:
    """A PCI device that topomend shows: its address, NUMA node, bridges above it, and driver."""

    address: str
    numa_node: int | None
    path: tuple[str, ...]
    driver: str


ON_ROOT_BUS = "0000:00:05.0"
SYSTEM_DISK = "0000:00:06.0"
NETWORK_CARD, LEFT_DISK, RIGHT_DISK, FAR = "0000:41:00.0", "0000:83:00.0", "0000:84:00.0", "0000:c1:00.0"
_SWITCH = ("0000:80:00.0", "0000:81:00.0")
DEVICES = (
    Device(ON_ROOT_BUS, None, (), "virtio-pci"),
    Device(SYSTEM_DISK, None, (), "virtio-pci"),
    Device("0000:00:1f.2", None, (), ""),
    Device(NETWORK_CARD, 1, ("0000:40:00.0",), "virtio-pci"),
    Device(LEFT_DISK, 2, (*_SWITCH, "0000:82:00.0"), "nvme"),
    Device(RIGHT_DISK, 2, (*_SWITCH, "0000:82:01.0"), "nvme"),
    Device(FAR, 3, ("0000:c0:00.0",), "virtio-pci"),
)
"""The first three, one of them q35's own SATA controller, are on the chipset's bus, which has no NUMA node in the
firmware."""

PCI_DISTANCES = {
    (LEFT_DISK, RIGHT_DISK): "same switch",
    (LEFT_DISK, NETWORK_CARD): "across NUMA nodes",
    (FAR, NETWORK_CARD): "across NUMA nodes",
    (LEFT_DISK, ON_ROOT_BUS): "unknown",
    (ON_ROOT_BUS, "0000:00:1f.2"): "same root complex",
}

HOT_PORT, HOT_NUMA_NODE, HOT_PATH = "port-hot", 2, ("0000:80:01.0",)
HOT_ADDRESS = "0000:85:00.0"
"""Where a device can be plugged in while the machine runs."""


def flags(disk: Path) -> list[str]:
    """QEMU's flags for processors, memory, buses, ``disk`` and a network in which 10.0.2.2 is this machine."""
    size = sum(node.mebibytes for node in NODES)
    argv = ["-machine", "q35", "-cpu", "max,vendor=GenuineIntel,la57=off", "-m", f"{size}M,slots=2,maxmem=8G"]
    cores, threads = len(CORES) // len(SOCKETS), len(CORES[0])
    argv += ["-smp", f"{sum(map(len, CORES))},sockets={len(SOCKETS)},cores={cores},threads={threads}"]
    for node in NODES:
        argv += ["-object", f"memory-backend-ram,id=memory{node.id},size={node.mebibytes}M"]
        argv += ["-numa", f"node,nodeid={node.id},memdev=memory{node.id}"]
    for node in NODES:
        argv += ["-numa", f"cpu,node-id={node.id},{node.place}"] if node.place else []
        for other, distance in enumerate(node.distances):
            argv += ["-numa", f"dist,src={node.id},dst={other},val={distance}"]
    argv += ["-drive", f"if=none,id=system,file={disk},format=raw,cache=unsafe"]
    argv += ["-netdev", "user,id=net,ipv6=off"]
    return argv + _buses()


def _buses() -> list[str]:
    devices = [
        "intel-iommu",
        "pxb-pcie,id=host1,bus=pcie.0,bus_nr=64,numa_node=1",
        "pxb-pcie,id=host2,bus=pcie.0,bus_nr=128,numa_node=2",
        "pxb-pcie,id=host3,bus=pcie.0,bus_nr=192,numa_node=3",
        "pcie-root-port,id=port-net,bus=host1,chassis=1,slot=1",
        "virtio-net-pci,netdev=net,bus=port-net",
        "pcie-root-port,id=port-switch,bus=host2,chassis=1,slot=2",
        "x3130-upstream,id=switch,bus=port-switch",
        "xio3130-downstream,id=leg1,bus=switch,chassis=2,slot=1",
        "xio3130-downstream,id=leg2,bus=switch,chassis=2,slot=2",
        "nvme,serial=left,bus=leg1",
        "nvme-subsys,id=subsystem,nqn=right",
        "nvme,serial=right,bus=leg2,subsys=subsystem,sriov_max_vfs=2,sriov_vq_flexible=4,sriov_vi_flexible=2,max_ioqpairs=6,msix_qsize=8",
        f"pcie-root-port,id={HOT_PORT},bus=host2,chassis=1,slot=3",
        "pcie-root-port,id=port-far,bus=host3,chassis=1,slot=4",
        "virtio-rng-pci,bus=port-far",
        "virtio-rng-pci,bus=pcie.0,addr=5",
        "virtio-blk-pci,drive=system,bus=pcie.0,addr=6",
    ]
    return [part for device in devices for part in ("-device", device)]
