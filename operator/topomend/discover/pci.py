"""PCI devices and where they stand, out of sysfs.

Owns /sys/bus/pci and the class folders that lead back to it. Devices that work could be placed by (accelerators,
network, storage, what is passed through to guests) are kept whether or not a plugin offers them; bridges appear as the
path to a device. A chipset's own functions, hundreds on a big machine, are read only where every device is asked for.
Names come from the hardware database that udev keeps: asked through libudev on this machine, read from udev's records
under any other root.
"""

import logging
import re
from collections.abc import Mapping

from topomend.discover import udev
from topomend.discover.host_files import MAX_NAME, Root
from topomend.model.bitmask import CPUSet, format_id_list
from topomend.model.machine import Machine, PCIDevice, PCILink

DEVICES = "sys/bus/pci/devices"
MAX_DEVICES, MAX_DEVICES_WHOLE = 256, 2048
"""As many as are published, and as many as are shown where every device is asked for."""

MAX_NAMES = 16
MAX_PATH = 32
"""A bus has a number of 8 bits, and each bridge one of its own; real machines have paths of 2 to 7."""

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_RECORD = re.compile(r"E:(ID_(?:VENDOR|MODEL)_FROM_DATABASE)=(.*)", re.ASCII)

_KEPT_CLASSES = (0x00, 0x01, 0x02, 0x03, 0x10, 0x12, 0xFF)
"""Unclassified, storage, network, display, encryption, processing accelerator, unassigned (many FPGAs)."""

_KEPT_SUBCLASSES = (0x0502, 0x0B40, 0x0C04, 0x0C06)
"""CXL memory, co-processor, Fibre Channel, InfiniBand."""

NAMING_CLASSES = ("net", "infiniband", "block", "drm", "accel")

Names = Mapping[str, tuple[str, str]]
"""Vendor's and device's name by PCI address."""

_log = logging.getLogger(__name__)


def read_pci_devices(root: Root, machine: Machine, *, whole: bool = False) -> tuple[PCIDevice, ...]:
    """The devices under ``root``, by address; ``machine`` tells which NUMA nodes there are.

    ``whole`` adds bridges and the chipset's own functions. Whatever is odd about a device is a remark, never a
    problem: the kubelet asks device plugins where devices stand.
    """
    root = root.beside()
    most = MAX_DEVICES_WHOLE if whole else MAX_DEVICES
    kept = [address for address in root.names(DEVICES, ADDRESS) if _is_kept(root, address, whole=whole)]
    if len(kept) > most:
        root.remark(DEVICES, f"holds {len(kept)} devices; those after the first {most} are left out")
        kept = kept[:most]
    if not kept:
        return ()
    known = _names_from_libudev() if root.live else _names_from_records(root, kept)
    if not any(any(known.get(address, ())) for address in kept):
        root.remark(DEVICES, "holds devices that no hardware database names here: their ids alone are shown")
    names = names_under_devices(root)
    places = _Places(root, machine)
    return tuple(_device(root, address, places, known, names) for address in kept)


def _is_kept(root: Root, address: str, *, whole: bool) -> bool:
    number = _number(root, address, "class", most=0xFFFFFF)
    if number is None:
        root.remark(f"{DEVICES}/{address}/class", "is missing or no PCI class; the device is left out")
        return False
    if whole or number >> 16 in _KEPT_CLASSES or number >> 8 in _KEPT_SUBCLASSES:
        return True
    return number >> 16 != 0x06 and root.link(f"{DEVICES}/{address}/driver") == "vfio-pci"


def _device(
    root: Root, address: str, places: "_Places", known: Names, names: Mapping[str, tuple[str, ...]]
) -> PCIDevice:
    folder = f"{DEVICES}/{address}"
    path = path_of(root, address)
    numa_node, numa_source = places.numa_node(address, path)
    vendor_name, device_name = known.get(address, ("", ""))
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
    """A number of the configuration space as sysfs writes it, such as ``0x8086``."""
    text = root.text(f"{DEVICES}/{address}/{name}")
    try:
        number = -1 if text is None else int(text[:20], 16)
    except ValueError:
        return None
    return number if 0 <= number <= most else None


def _count(root: Root, name: str) -> int:
    """How many virtual functions; 0 where the device has no such file. PCI allows for 65535."""
    text = root.text(name) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 0


# Where it stands


def path_of(root: Root, address: str) -> tuple[str, ...]:
    """The bridges above a device, root first, as its place in the tree of /sys/devices says."""
    parts = root.target(f"{DEVICES}/{address}").split("/")
    return tuple(part for part in parts[:-1] if ADDRESS.fullmatch(part))[:MAX_PATH]


class _Places:
    """The NUMA nodes of devices, and what told each of them, from the surest source to the weakest.

    Firmware that does not say leaves -1 in ``numa_node`` (Documentation/ABI/testing/sysfs-bus-pci). Then the nearest
    bridge that has one counts; then the CPUs said to be local to the device, and those local to its root bus, where
    they stand within one node; then what the other devices of the root complex say with one voice; then, on a machine
    of one node, that one.
    """

    def __init__(self, root: Root, machine: Machine) -> None:
        self._root = root
        self._machine = machine
        self._said: dict[str, int | None] = {}
        self._roots: dict[str, set[int]] | None = None

    def numa_node(self, address: str, path: tuple[str, ...]) -> tuple[int | None, str]:
        """The NUMA node, None where nothing tells, and the source's name."""
        said = self._node_said_of(address)
        if said is not None:
            return said, "sysfs"
        for bridge in reversed(path):
            above = self._node_said_of(bridge)
            if above is not None:
                return above, f"bridge {bridge}"
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
        said = self._nodes_said_by_root().get(bus, set())
        return (next(iter(said)), f"root complex pci{bus}") if len(said) == 1 else (None, "")

    def _node_of_cpus(self, cpus: CPUSet) -> int | None:
        """The one NUMA node that has all of ``cpus`` that are online."""
        online = cpus & self._machine.cpus
        around = (node for node, own in self._machine.cpus_of_numa_node.items() if online and online & ~own == 0)
        return next(around, None)

    def _nodes_said_by_root(self) -> dict[str, set[int]]:
        """What all devices of each root bus say in ``numa_node``; read once, and only where it is needed."""
        if self._roots is None:
            self._roots = {}
            for address in self._root.names(DEVICES, ADDRESS):
                said = self._node_said_of(address)
                if said is not None:
                    first = (*path_of(self._root, address), address)[0]
                    self._roots.setdefault(first.rpartition(":")[0], set()).add(said)
        return self._roots

    def _node_said_of(self, address: str) -> int | None:
        if address not in self._said:
            self._said[address] = self._read_node(address)
        return self._said[address]

    def _read_node(self, address: str) -> int | None:
        name = f"{DEVICES}/{address}/numa_node"
        text = self._root.text(name)
        if text is None or text == "-1":
            return None
        if text.isascii() and text.isdigit() and int(text[:6]) in {each.id for each in self._machine.numa_nodes}:
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
    """GT/s out of a text such as ``16.0 GT/s PCIe``; ``Unknown`` is None."""
    matched = re.match(r"(\d{1,4}(?:\.\d{1,3})?) GT/s", root.text(name) or "", re.ASCII)
    return float(matched[1]) if matched else None


def _width(root: Root, name: str) -> int | None:
    """Lanes; 0 and 255 stand for a link that is down or not known."""
    text = root.text(name) or ""
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text[:4]) < 255 else None


# What it is called


def names_under_devices(root: Root) -> dict[str, tuple[str, ...]]:
    """Network interfaces, disks, InfiniBand and accelerator devices by the PCI address that they hang under."""
    found: dict[str, list[str]] = {}
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
                found.setdefault(addresses[-1], []).append(name[:MAX_NAME])
    return {address: tuple(names) for address, names in found.items()}


def class_device(root: Root, kind: str, name: str) -> str:
    """Where a device of a class stands in the tree; on old kernels its ``device`` link alone tells."""
    path = root.target(f"sys/class/{kind}/{name}")
    return root.target(f"sys/class/{kind}/{name}/device") if path.startswith("sys/class/") else path


def _names_from_libudev() -> Names:
    try:
        return udev.pci_names()
    except udev.UdevUnavailable as error:
        _log.warning("PCI devices are told by their ids alone: %s", error)
        return {}


def record_of(address: str) -> str:
    """The file in which udev keeps what it found out about a PCI device."""
    return f"run/udev/data/+pci:{address}"


def _names_from_records(root: Root, addresses: list[str]) -> Names:
    names = {}
    for address in addresses:
        matched = [_RECORD.fullmatch(line) for line in root.lines(record_of(address), _RECORD) or ()]
        facts = {each[1]: _printable(each[2]) for each in matched if each is not None}
        names[address] = (facts.get("ID_VENDOR_FROM_DATABASE", ""), facts.get("ID_MODEL_FROM_DATABASE", ""))
    return names


def _printable(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())
