"""PCI devices and where they stand, out of sysfs.

Owns /sys/bus/pci and the class folders that lead back to it. Devices that work could be placed by (accelerators,
network, storage, what is passed through to guests) are kept whether or not a plugin offers them; bridges appear as the
path to a device, and a chipset's own functions, hundreds on a big machine, are left out. Names come from the hardware
database that udev keeps: asked through libudev on this machine, read from its files under any other root.
"""

import re
from collections.abc import Mapping

from topomend.discover import udev
from topomend.discover.root import Root
from topomend.discover.sysfs import read_map
from topomend.model.bitmask import format_id_list
from topomend.model.machine import Machine, PCIDevice, PCILink

DEVICES = "sys/bus/pci/devices"
MAX_DEVICES = 256
MAX_NAMES = 16
MAX_NAME_LENGTH = 128

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)

_KEPT_CLASSES = (0x00, 0x01, 0x02, 0x03, 0x10, 0x12, 0xFF)
"""Unclassified, storage, network, display, encryption, processing accelerator, unassigned (many FPGAs)."""

_KEPT_SUBCLASSES = (0x0502, 0x0B40, 0x0C04, 0x0C06)
"""CXL memory, co-processor, Fibre Channel, InfiniBand."""

_NAMING_CLASSES = ("net", "infiniband", "block", "drm")

Names = Mapping[str, tuple[str, str]]
"""Vendor's and device's name by PCI address."""


def read_pci_devices(root: Root, machine: Machine) -> tuple[PCIDevice, ...]:
    """The devices under ``root``, by address; ``machine`` tells which NUMA nodes there are.

    Whatever is odd about a device is a remark, never a problem: the kubelet asks device plugins where devices stand.
    """
    addresses = [name for name in root.names(DEVICES) if _ADDRESS.fullmatch(name)]
    kept = [address for address in addresses if _is_kept(root, address)]
    if len(kept) > MAX_DEVICES:
        root.remark(DEVICES, f"holds {len(kept)} devices; those after the first {MAX_DEVICES} are left out")
        kept = kept[:MAX_DEVICES]
    known = _names_from_database(root, addresses) if kept else {}
    names = _names_under_devices(root) if kept else {}
    return tuple(_device(root, address, machine, known, names) for address in kept)


def _is_kept(root: Root, address: str) -> bool:
    number = _number(root, address, "class")
    if number is None:
        root.remark(f"{DEVICES}/{address}/class", "is missing or no number; the device is left out")
        return False
    if number >> 16 in _KEPT_CLASSES or number >> 8 in _KEPT_SUBCLASSES:
        return True
    return number >> 16 != 0x06 and root.link(f"{DEVICES}/{address}/driver") == "vfio-pci"


def _device(
    root: Root, address: str, machine: Machine, known: Names, names: Mapping[str, tuple[str, ...]]
) -> PCIDevice:
    folder = f"{DEVICES}/{address}"
    path = tuple(part for part in root.target(folder).split("/") if _ADDRESS.fullmatch(part))
    numa_node, numa_source = _numa_node(root, address, path[:-1], machine)
    vendor_name, device_name = known.get(address, ("", ""))
    group = root.link(f"{folder}/iommu_group")
    return PCIDevice(
        address=address,
        pci_class=_number(root, address, "class") or 0,
        vendor_id=_number(root, address, "vendor") or 0,
        device_id=_number(root, address, "device") or 0,
        vendor_name=vendor_name[:MAX_NAME_LENGTH],
        device_name=device_name[:MAX_NAME_LENGTH],
        driver=root.link(f"{folder}/driver")[:MAX_NAME_LENGTH],
        numa_node=numa_node,
        numa_source=numa_source,
        path=path[:-1],
        iommu_group=int(group) if group.isascii() and group.isdigit() and len(group) <= 9 else None,
        physical_function=root.link(f"{folder}/physfn"),
        link=_link(root, folder),
        names=names.get(address, ())[:MAX_NAMES],
    )


def _number(root: Root, address: str, name: str) -> int | None:
    """A number of the configuration space as sysfs writes it, such as ``0x8086``."""
    text = root.text(f"{DEVICES}/{address}/{name}")
    try:
        return None if text is None else int(text[:20], 16)
    except ValueError:
        return None


# Where it stands


def _numa_node(root: Root, address: str, path: tuple[str, ...], machine: Machine) -> tuple[int | None, str]:
    """The NUMA node of a device and what told it, from the surest source to the weakest.

    Firmware that does not say leaves -1 in ``numa_node`` (Documentation/ABI/testing/sysfs-bus-pci). Then the nearest
    bridge that has one counts, then CPUs said to be local if they stand within one node, then a machine of one node.
    """
    said = _said_node(root, address, machine)
    if said is not None:
        return said, "sysfs"
    for bridge in reversed(path):
        above = _said_node(root, bridge, machine)
        if above is not None:
            return above, f"bridge {bridge}"
    local = _local_cpus(root, address) & machine.cpus
    around = [node for node, cpus in machine.cpus_of_numa_node.items() if local and local & ~cpus == 0]
    if len(machine.numa_nodes) == 1:
        return machine.numa_nodes[0].id, "only NUMA node"
    return (around[0], "local CPUs") if around else (None, "")


def _said_node(root: Root, address: str, machine: Machine) -> int | None:
    name = f"{DEVICES}/{address}/numa_node"
    node = root.integer(name)
    if node is None or node < 0:
        return None
    if node not in {each.id for each in machine.numa_nodes}:
        root.remark(name, f"says {node}, and there is no such NUMA node: it is not used")
        return None
    return node


def _local_cpus(root: Root, address: str) -> int:
    folder = f"{DEVICES}/{address}"
    listed, mapped = root.id_list(f"{folder}/local_cpulist"), read_map(root, f"{folder}/local_cpus")
    if listed is not None and mapped is not None and listed != mapped:
        texts = f"{format_id_list(mapped)}, its local_cpulist {format_id_list(listed)}"
        root.remark(f"{folder}/local_cpus", f"says {texts}; neither is used")
        return 0
    return listed or mapped or 0


def _link(root: Root, folder: str) -> PCILink | None:
    link = PCILink(
        speed=_speed(root, f"{folder}/current_link_speed"),
        width=_width(root, f"{folder}/current_link_width"),
        max_speed=_speed(root, f"{folder}/max_link_speed"),
        max_width=_width(root, f"{folder}/max_link_width"),
    )
    return None if link == PCILink() else link


def _speed(root: Root, name: str) -> float | None:
    """GT/s out of a text such as ``16.0 GT/s PCIe``; ``Unknown`` is None."""
    matched = re.match(r"(\d{1,4}(?:\.\d{1,3})?) GT/s", root.text(name) or "", re.ASCII)
    return float(matched[1]) if matched else None


def _width(root: Root, name: str) -> int | None:
    """Lanes; 0 and 255 stand for a link that is down or not known."""
    text = root.text(name) or ""
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text[:4]) < 255 else None


# What it is called


def _names_under_devices(root: Root) -> dict[str, tuple[str, ...]]:
    """Network interfaces, disks, graphics and InfiniBand devices by the PCI address that they hang under."""
    found: dict[str, list[str]] = {}
    for kind in _NAMING_CLASSES:
        names = root.names(f"sys/class/{kind}")
        for name in names:
            if kind == "drm" and "-" in name:  # a connector of a card, such as card0-DP-1
                continue
            path = root.target(f"sys/class/{kind}/{name}")
            if path.startswith("sys/class/"):
                path = root.target(f"sys/class/{kind}/{name}/device")
            parts = path.split("/")
            if kind == "block" and set(parts[:-1]) & set(names):  # a partition hangs under its disk
                continue
            addresses = [part for part in parts if _ADDRESS.fullmatch(part)]
            if addresses:
                found.setdefault(addresses[-1], []).append(name)
    return {address: tuple(names) for address, names in found.items()}


def _names_from_database(root: Root, addresses: list[str]) -> Names:
    return _names_from_libudev(root, addresses) if root.live else _names_from_files(root, addresses)


def _names_from_libudev(root: Root, addresses: list[str]) -> Names:
    try:
        names = udev.pci_names()
    except udev.UdevUnavailable as error:
        root.remark(DEVICES, f"has devices without names: {error}")
        return {}
    if set(names) != set(addresses):
        differing = ", ".join(sorted(set(names) ^ set(addresses))[:4])
        root.remark(DEVICES, f"and libudev disagree on which devices there are: {differing}")
    return names


def _names_from_files(root: Root, addresses: list[str]) -> Names:
    names = {}
    for address in addresses:
        text = root.text(f"run/udev/data/+pci:{address}")
        if text is not None:
            entries = dict(line[2:].split("=", 1) for line in text.splitlines() if line[:2] == "E:" and "=" in line)
            names[address] = (entries.get("ID_VENDOR_FROM_DATABASE", ""), entries.get("ID_MODEL_FROM_DATABASE", ""))
    return names
