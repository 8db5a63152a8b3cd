"""PCI devices and their NUMA nodes, from sysfs.

Owns /sys/bus/pci and the class folders that lead back to it. Devices that work could be placed by (accelerators,
network, storage, devices passed through to guests) are listed whether or not a device plugin offers them. Bridges
appear as the path to a device. A chipset's own functions, hundreds on a big machine, are listed only on request. Names
come from udev's hardware database: through libudev on the running machine, from udev's records under any other root.
"""

import logging
import re
from collections.abc import Mapping

from topomend.discover.host_files import MAX_NAME, Root
from topomend.discover.machine import udev
from topomend.model.bitmask import CPUSet, format_id_list
from topomend.model.machine import Machine, PCIDevice, PCILink

DEVICES = "sys/bus/pci/devices"
MAX_DEVICES, MAX_DEVICES_WHOLE = 256, 2048
"""The most devices that are published, and that are listed if every device is requested."""

MAX_NAMES = 16
MAX_PATH = 32
"""Bridges above a device. Bus numbers have 8 bits and each bridge has its own; real machines have 2 to 7."""

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_RECORD = re.compile(r"E:(ID_(?:VENDOR|MODEL)_FROM_DATABASE)=(.*)", re.ASCII)

_LISTED_CLASSES = (0x00, 0x01, 0x02, 0x03, 0x10, 0x12, 0xFF)
"""Unclassified, storage, network, display, encryption, processing accelerator, unassigned (many FPGAs)."""

_LISTED_SUBCLASSES = (0x0502, 0x0B40, 0x0C04, 0x0C06)
"""CXL memory, co-processor, Fibre Channel, InfiniBand."""

NAMING_CLASSES = ("net", "infiniband", "block", "drm", "accel")

Names = Mapping[str, tuple[str, str]]
"""The names of vendor and device, by PCI address."""

_log = logging.getLogger(__name__)


def read_pci_devices(root: Root, machine: Machine, *, whole: bool = False) -> tuple[PCIDevice, ...]:
    """The devices under ``root``, sorted by address; their NUMA nodes are among those of ``machine``.

    ``whole`` adds bridges and the chipset's own functions. Anything wrong about a device is a remark, never a problem:
    the kubelet takes the NUMA nodes of devices from their plugins. Never raises.
    """
    root = root.beside()
    most = MAX_DEVICES_WHOLE if whole else MAX_DEVICES
    listed = [address for address in root.names(DEVICES, ADDRESS) if _is_listed(root, address, whole=whole)]
    if len(listed) > most:
        root.remark(DEVICES, f"holds {len(listed)} devices; those after the first {most} are left out")
        listed = listed[:most]
    if not listed:
        return ()
    database_names = _names_from_libudev() if root.live else _names_from_records(root, listed)
    if not any(any(database_names.get(address, ())) for address in listed):
        root.remark(DEVICES, "holds devices that no hardware database names here: their ids alone are shown")
    names = names_under_devices(root)
    numa_nodes = _NUMANodes(root, machine)
    return tuple(_device(root, address, numa_nodes, database_names, names) for address in listed)


def _is_listed(root: Root, address: str, *, whole: bool) -> bool:
    number = _number(root, address, "class", most=0xFFFFFF)
    if number is None:
        root.remark(f"{DEVICES}/{address}/class", "is missing or no PCI class; the device is left out")
        return False
    if whole or number >> 16 in _LISTED_CLASSES or number >> 8 in _LISTED_SUBCLASSES:
        return True
    return number >> 16 != 0x06 and root.link(f"{DEVICES}/{address}/driver") == "vfio-pci"


def _device(
    root: Root, address: str, numa_nodes: "_NUMANodes", database_names: Names, names: Mapping[str, tuple[str, ...]]
) -> PCIDevice:
    folder = f"{DEVICES}/{address}"
    path = path_of(root, address)
    numa_node, numa_source = numa_nodes.numa_node(address, path)
    vendor_name, device_name = database_names.get(address, ("", ""))
    group, parent = root.link(f"{folder}/iommu_group"), root.link(f"{folder}/physfn")
    return PCIDevice(
        address=address,
        pci_class=_number(root, address, "class", most=0xFFFFFF) or 0,
        vendor_id=_number(root, address, "vendor", most=0xFFFF) or 0,
        device_id=_number(root, address, "device", most=0xFFFF) or 0,
        vendor_name=vendor_name[:MAX_NAME],
        device_name=device_name[:MAX_NAME],
        driver=root.link(f"{folder}/driver"),
        numa_node=numa_node,
        numa_source=numa_source,
        path=path,
        iommu_group=int(group) if group.isdigit() and len(group) <= 9 else None,
        physical_function=parent if ADDRESS.fullmatch(parent) else "",
        virtual_functions=_count(root, f"{folder}/sriov_numvfs"),
        max_virtual_functions=_count(root, f"{folder}/sriov_totalvfs"),
        link=_link(root, folder),
        names=names.get(address, ())[:MAX_NAMES],
    )


def _number(root: Root, address: str, name: str, *, most: int) -> int | None:
    """A field of the configuration space as sysfs writes it, such as ``0x8086``; None if absent or above ``most``."""
    text = root.text(f"{DEVICES}/{address}/{name}")
    try:
        number = -1 if text is None else int(text[:20], 16)
    except ValueError:
        return None
    return number if 0 <= number <= most else None


def _count(root: Root, name: str) -> int:
    """A number of virtual functions; 0 if the device has no such file. PCI allows 65535."""
    text = root.text(name) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 0


# NUMA nodes


def path_of(root: Root, address: str) -> tuple[str, ...]:
    """The addresses of the bridges above a device, root first, from its path in /sys/devices."""
    parts = root.target(f"{DEVICES}/{address}").split("/")
    return tuple(part for part in parts[:-1] if ADDRESS.fullmatch(part))[:MAX_PATH]


class _NUMANodes:
    """Finds the NUMA node of a device, and names the source that it comes from.

    Firmware without the information leaves -1 in ``numa_node`` (Documentation/ABI/testing/sysfs-bus-pci). Then these
    sources follow: the nearest bridge with a node; the only node of a machine that has one; the device's local CPUs,
    and those of its root bus, if they are within one node; the other devices of the root complex, if they all agree.
    """

    def __init__(self, root: Root, machine: Machine) -> None:
        self._root = root
        self._machine = machine
        self._own_nodes: dict[str, int | None] = {}
        self._nodes_by_root_bus: dict[str, set[int]] | None = None

    def numa_node(self, address: str, path: tuple[str, ...]) -> tuple[int | None, str]:
        """The NUMA node, None if no source has one, and the source's name."""
        own_node = self._own_node(address)
        if own_node is not None:
            return own_node, "sysfs"
        for bridge in reversed(path):
            bridge_node = self._own_node(bridge)
            if bridge_node is not None:
                return bridge_node, f"bridge {bridge}"
        if len(self._machine.numa_nodes) == 1:
            return self._machine.numa_nodes[0].id, "only NUMA node"
        return self._by_root_complex(address, (*path, address)[0])

    def _by_root_complex(self, address: str, first: str) -> tuple[int | None, str]:
        bus = first.rpartition(":")[0]
        local = self._node_of_cpus(_local_cpus(self._root, address))
        if local is not None:
            return local, "local CPUs"
        near = self._node_of_cpus(self._root.id_list(f"sys/devices/pci{bus}/pci_bus/{bus}/cpulistaffinity") or 0)
        if near is not None:
            return near, f"CPUs of root bus {bus}"
        nodes = self._read_nodes_by_root_bus().get(bus, set())
        return (next(iter(nodes)), f"root complex pci{bus}") if len(nodes) == 1 else (None, "")

    def _node_of_cpus(self, cpus: CPUSet) -> int | None:
        """The NUMA node that contains every online CPU of ``cpus``; None if there is none."""
        online = cpus & self._machine.cpus
        containing = (
            node for node, node_cpus in self._machine.cpus_of_numa_node.items() if online and online & ~node_cpus == 0
        )
        return next(containing, None)

    def _read_nodes_by_root_bus(self) -> dict[str, set[int]]:
        """The values of ``numa_node`` among the devices of each root bus. Read once, on first use."""
        if self._nodes_by_root_bus is None:
            self._nodes_by_root_bus = {}
            for address in self._root.names(DEVICES, ADDRESS):
                node = self._own_node(address)
                if node is not None:
                    first = (*path_of(self._root, address), address)[0]
                    self._nodes_by_root_bus.setdefault(first.rpartition(":")[0], set()).add(node)
        return self._nodes_by_root_bus

    def _own_node(self, address: str) -> int | None:
        if address not in self._own_nodes:
            self._own_nodes[address] = self._read_node(address)
        return self._own_nodes[address]

    def _read_node(self, address: str) -> int | None:
        name = f"{DEVICES}/{address}/numa_node"
        text = self._root.text(name)
        if text is None or text == "-1":
            return None
        if text.isascii() and text.isdigit() and int(text[:6]) in {node.id for node in self._machine.numa_nodes}:
            return int(text[:6])
        self._root.remark(name, f"says {text[:20]!r}, and there is no such NUMA node: it is not used")
        return None


def _local_cpus(root: Root, address: str) -> CPUSet:
    folder = f"{DEVICES}/{address}"
    listed, mapped = root.id_list(f"{folder}/local_cpulist"), root.id_map(f"{folder}/local_cpus")
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
    """GT/s from a text such as ``16.0 GT/s PCIe``; None for ``Unknown``."""
    matched = re.match(r"(\d{1,4}(?:\.\d{1,3})?) GT/s", root.text(name) or "", re.ASCII)
    return float(matched[1]) if matched else None


def _width(root: Root, name: str) -> int | None:
    """Lanes; None for 0 and 255, which mean a link that is down or unknown."""
    text = root.text(name) or ""
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text[:4]) < 255 else None


# Names


def names_under_devices(root: Root) -> dict[str, tuple[str, ...]]:
    """Names of network interfaces, disks, InfiniBand and accelerator devices, by the PCI address above them."""
    names_by_address: dict[str, list[str]] = {}
    for kind in NAMING_CLASSES:
        names = root.names(f"sys/class/{kind}")
        for name in names:
            if kind == "drm" and "-" in name:  # a connector of a card, such as card0-DP-1
                continue
            parts = class_device(root, kind, name).split("/")
            if kind == "block" and set(parts[:-1]) & set(names):  # a partition hangs under its disk
                continue
            addresses = [part for part in parts if ADDRESS.fullmatch(part)]
            if addresses:
                names_by_address.setdefault(addresses[-1], []).append(name[:MAX_NAME])
    return {address: tuple(names) for address, names in names_by_address.items()}


def class_device(root: Root, kind: str, name: str) -> str:
    """The path of a class device relative to the root; on old kernels through its ``device`` link."""
    path = root.target(f"sys/class/{kind}/{name}")
    return root.target(f"sys/class/{kind}/{name}/device") if path.startswith("sys/class/") else path


def _names_from_libudev() -> Names:
    try:
        return udev.pci_names()
    except ModuleNotFoundError:  # who reads machines without the extra operator shows no names
        return {}
    except udev.UdevUnavailable as error:
        _log.warning("PCI devices are shown by their ids only: %s", error)
        return {}


def record_of(address: str) -> str:
    """udev's record of a PCI device, relative to the root."""
    return f"run/udev/data/+pci:{address}"


def _names_from_records(root: Root, addresses: list[str]) -> Names:
    names = {}
    for address in addresses:
        matched = [_RECORD.fullmatch(line) for line in root.lines(record_of(address), _RECORD) or ()]
        facts = {match[1]: _printable(match[2]) for match in matched if match is not None}
        names[address] = (facts.get("ID_VENDOR_FROM_DATABASE", ""), facts.get("ID_MODEL_FROM_DATABASE", ""))
    return names


def _printable(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())
