"""Write a machine as the files that Linux would show of it: a folder with ``sys/`` and ``proc/``.

The kubelet's cadvisor (v0.56.2: utils/sysfs, utils/sysinfo, machine), hwloc, udev and topomend's own discovery read
it. The machine comes from ``node_spec``; mounting the folder is left to ``kubelet`` and ``supervisor``.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from topomend.model.bitmask import CPUSet, format_id_list, mask_of, members
from topomend.model.layout import cores_by_numa_node, serves_its_numa_node
from topomend.model.machine import Core, Machine, NUMANode, PCIDevice, PCILink
from topomend.model.nodes.node_state import Device

CACHE_KIB = {"L1d": 32, "L1i": 32, "L2": 1024, "L3": 32768}

BRIDGE_CLASS, DISPLAY_CLASS, NETWORK_CLASS, ACCELERATOR_CLASS = 0x060400, 0x030200, 0x020000, 0x120000

MAX_FUNCTIONS = 240
"""Functions of one NUMA node. Each has its own root port and bus; a host bridge has 31 slots of 8 ports, 255 buses."""

ROOT_PORT_IDS, ENDPOINT_IDS = (0x1B36, 0x000C), (0x1B36, 0x0005)
"""Vendor and device ids of QEMU's PCI Express root port and PCI test device: virtual ids for made-up hardware."""


def write_machine(folder: Path, machine: Machine, devices: Iterable[Device] = ()) -> None:
    """Write ``machine`` below ``folder``; ``devices`` that name a NUMA node become PCI functions there."""
    files = {
        **_cpu_files(machine),
        **_node_files(machine),
        **_hugepage_files(machine),
        **_proc_files(machine),
    }
    links = _node_links(machine)
    for function in (*machine.pci_devices, *synthetic_pci(machine, devices)):
        more_files, more_links = _pci_files(function, machine)
        files |= more_files
        links |= more_links
    for empty in ("sys/block", "sys/class/net", "sys/fs/cgroup", "sys/bus/pci/devices", "sys/kernel/mm/hugepages"):
        (folder / empty).mkdir(parents=True)
    for path, content in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
    for path, target in links.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)


def cpu_map(cpus: CPUSet, width: int) -> str:
    """A CPU set as the kernel's hexadecimal map: groups of 32 bits, as many as ``width`` CPUs need (``%*pb``)."""
    groups = max(1, -(-width // 32))
    return ",".join(f"{cpus >> (32 * group) & 0xFFFFFFFF:08x}" for group in reversed(range(groups)))


def synthetic_pci(machine: Machine, devices: Iterable[Device]) -> tuple[PCIDevice, ...]:
    """A PCI function, below its own root port, for each device with exactly one NUMA node of ``machine``.

    Each NUMA node has a host bridge in its own PCI domain, whose number is the node's id. Devices beyond MAX_FUNCTIONS
    on one NUMA node get no function.
    """
    functions: list[PCIDevice] = []
    used: dict[int, int] = {}
    node_ids = {node.id for node in machine.numa_nodes}
    for device in devices:
        if device.numa_nodes is None or len(device.numa_nodes) != 1 or device.numa_nodes[0] not in node_ids:
            continue
        node = device.numa_nodes[0]
        index = used[node] = used.get(node, -1) + 1
        if index >= MAX_FUNCTIONS:
            continue
        port = f"{node:04x}:00:{1 + index // 8:02x}.{index % 8}"
        link = PCILink(speed=16.0, width=16, max_speed=16.0, max_width=16)
        functions.append(PCIDevice(port, BRIDGE_CLASS, *ROOT_PORT_IDS, driver="pcieport", numa_node=node, link=link))
        functions.append(
            PCIDevice(
                f"{node:04x}:{1 + index:02x}:00.0",
                _class_of(device.resource),
                *ENDPOINT_IDS,
                numa_node=node,
                path=(port,),
                iommu_group=len(functions) // 2,
                link=link,
            )
        )
    return tuple(functions)


def _class_of(resource: str) -> int:
    name = resource.rpartition("/")[2]
    if "gpu" in name:
        return DISPLAY_CLASS
    return NETWORK_CLASS if any(part in name for part in ("nic", "vf", "sriov", "rdma")) else ACCELERATOR_CLASS


Files = dict[str, str | bytes]

_CPU, _NODE = "sys/devices/system/cpu", "sys/devices/system/node"


def _cpu_files(machine: Machine) -> Files:
    all_cpus = machine.cpus | machine.offline
    width = all_cpus.bit_length()
    files: Files = {
        f"{_CPU}/possible": format_id_list(all_cpus),
        f"{_CPU}/present": format_id_list(all_cpus),
        f"{_CPU}/online": format_id_list(machine.cpus),
        f"{_CPU}/offline": format_id_list(machine.offline),
        f"{_CPU}/isolated": format_id_list(machine.isolated),
        f"{_CPU}/kernel_max": str(max(width, 8192) - 1),
    }
    for cpu in members(all_cpus):
        files[f"{_CPU}/cpu{cpu}/online"] = str(machine.cpus >> cpu & 1)
    l3_caches = _l3_caches(machine)
    for core, number in _core_numbers(machine).items():
        for cpu in members(core.threads):
            files |= _topology_files(machine, core, number, cpu, width)
            files |= _cache_files(core, cpu, l3_caches.get(core), width)
    return files | _core_kind_files(machine)


def _core_kind_files(machine: Machine) -> Files:
    """The kinds of cores as the kernel tells of them: by name on x86, by capacity on arm64."""
    kinds = machine.hardware.core_kinds
    files: Files = {f"sys/devices/cpu_{kind.name}/cpus": format_id_list(kind.cpus) for kind in kinds if kind.name}
    for kind in kinds:
        for cpu in members(kind.cpus if kind.capacity else 0):
            files[f"{_CPU}/cpu{cpu}/cpu_capacity"] = str(kind.capacity)
    return files


def _l3_caches(machine: Machine) -> Mapping[Core, tuple[int, CPUSet]]:
    """The id and the CPUs of each core's L3 cache.

    A cache that the kubelet leaves out for its size has no id in the model and gets one here. One that it leaves out
    for another reason, such as a file that was missing, has no files: with them the kubelet would see it.
    """
    cpus_of: dict[int, CPUSet] = {}
    for core in machine.cores:
        if core.l3_cache is not None:
            cpus_of[core.l3_cache] = cpus_of.get(core.l3_cache, 0) | core.threads
    counts, following = cores_by_numa_node(machine.cores), max(cpus_of, default=-1) + 1
    for index, cache in enumerate(machine.hardware.l3_caches):
        sharing = [core for core in machine.cores if core.threads & cache]
        ids = {core.l3_cache for core in sharing} - {None}
        if not ids and all(serves_its_numa_node(cache, core, counts) for core in sharing):
            ids = {following + index}
        if len(ids) == 1:
            cpus_of[ids.pop() or 0] = cache
    return {core: each for core in machine.cores for each in cpus_of.items() if core.threads & each[1]}


def _core_numbers(machine: Machine) -> Mapping[Core, int]:
    """The ``core_id`` of each core, counted within its socket: cadvisor distinguishes cores by the pair."""
    counts: dict[int, int] = {}
    numbers: dict[Core, int] = {}
    for core in sorted(machine.cores, key=lambda core: core.id):
        numbers[core] = counts[core.socket] = counts.get(core.socket, -1) + 1
    return numbers


def _topology_files(machine: Machine, core: Core, number: int, cpu: int, width: int) -> Files:
    folder, socket = f"{_CPU}/cpu{cpu}/topology", machine.cpus_of_socket[core.socket]
    files: Files = {
        f"{folder}/core_id": str(number),
        f"{folder}/physical_package_id": str(core.socket),
        f"{folder}/die_id": "0",
        f"{folder}/cluster_id": "65535",
    }
    sets = {
        "thread_siblings": core.threads,
        "core_cpus": core.threads,
        "core_siblings": socket,
        "package_cpus": socket,
        "die_cpus": socket,
        "cluster_cpus": core.threads,
    }
    for name, cpus in sets.items():
        files[f"{folder}/{name}"] = cpu_map(cpus, width)
        files[f"{folder}/{name}_list"] = format_id_list(cpus)
    return files


def _cache_files(core: Core, cpu: int, l3_cache: tuple[int, CPUSet] | None, width: int) -> Files:
    caches = [
        ("L1d", 1, "Data", core.id, core.threads),
        ("L1i", 1, "Instruction", core.id, core.threads),
        ("L2", 2, "Unified", core.id, core.threads),
    ]
    if l3_cache is not None:
        caches.append(("L3", 3, "Unified", *l3_cache))
    files: Files = {}
    for index, (name, level, kind, number, cpus) in enumerate(caches):
        folder = f"{_CPU}/cpu{cpu}/cache/index{index}"
        files |= {
            f"{folder}/id": str(number),
            f"{folder}/level": str(level),
            f"{folder}/type": kind,
            f"{folder}/size": f"{CACHE_KIB[name]}K",
            f"{folder}/coherency_line_size": "64",
            f"{folder}/shared_cpu_map": cpu_map(cpus, width),
            f"{folder}/shared_cpu_list": format_id_list(cpus),
        }
    return files


def _node_files(machine: Machine) -> Files:
    with_memory = mask_of(node.id for node in machine.numa_nodes if node.memory)
    with_cpus = mask_of(machine.cpus_of_numa_node)
    node_list = format_id_list(machine.numa_mask)
    files: Files = {
        f"{_NODE}/possible": node_list,
        f"{_NODE}/online": node_list,
        f"{_NODE}/has_cpu": format_id_list(with_cpus),
        f"{_NODE}/has_memory": format_id_list(with_memory),
        f"{_NODE}/has_normal_memory": format_id_list(with_memory),
    }
    width = (machine.cpus | machine.offline).bit_length()
    for node in machine.numa_nodes:
        folder = f"{_NODE}/node{node.id}"
        cpus = machine.cpus_of_numa_node.get(node.id, 0)
        files[f"{folder}/cpulist"] = format_id_list(cpus)
        files[f"{folder}/cpumap"] = cpu_map(cpus, width)
        files[f"{folder}/meminfo"] = _node_meminfo(node)
        if node.distances:
            files[f"{folder}/distance"] = " ".join(map(str, node.distances))
        for pages in node.hugepages:
            place = f"{folder}/hugepages/hugepages-{pages.size >> 10}kB"
            files |= _pool_files(place, pages.count)
    return files


def _node_links(machine: Machine) -> dict[str, str]:
    links = {}
    for node, cpus in machine.cpus_of_numa_node.items():
        for cpu in members(cpus):
            links[f"{_NODE}/node{node}/cpu{cpu}"] = f"../../cpu/cpu{cpu}"
            links[f"{_CPU}/cpu{cpu}/node{node}"] = f"../../node/node{node}"
    return links


def _node_meminfo(node: NUMANode) -> str:
    total, huge = node.memory >> 10, sum(pages.size * pages.count for pages in node.hugepages) >> 10
    amounts = {"MemTotal": total, "MemFree": total - huge, "MemUsed": huge}
    return "\n".join(f"Node {node.id} {name}: {amount:>15} kB" for name, amount in amounts.items())


def _pool_files(folder: str, count: int) -> Files:
    return {f"{folder}/nr_hugepages": str(count), f"{folder}/free_hugepages": str(count)}


def _hugepage_files(machine: Machine) -> Files:
    totals: dict[int, int] = {}
    for node in machine.numa_nodes:
        for pages in node.hugepages:
            totals[pages.size] = totals.get(pages.size, 0) + pages.count
    files: Files = {}
    for size, count in totals.items():
        files |= _pool_files(f"sys/kernel/mm/hugepages/hugepages-{size >> 10}kB", count)
    return files


def _proc_files(machine: Machine) -> Files:
    total = sum(node.memory for node in machine.numa_nodes) >> 10
    huge = sum(pages.size * pages.count for node in machine.numa_nodes for pages in node.hugepages) >> 10
    amounts = {
        "MemTotal": total,
        "MemFree": total - huge,
        "MemAvailable": total - huge,
        "Buffers": 0,
        "Cached": 0,
        "SwapCached": 0,
        "Active": 0,
        "Inactive": 0,
        "SwapTotal": 0,
        "SwapFree": 0,
        "Shmem": 0,
        "Slab": 0,
        "SReclaimable": 0,
    }
    numbers = _core_numbers(machine)
    processors = [(cpu, core.socket, number) for core, number in numbers.items() for cpu in members(core.threads)]
    return {
        "proc/meminfo": "\n".join(f"{name + ':':<16}{amount:>8} kB" for name, amount in amounts.items()),
        "proc/cpuinfo": "\n".join(_processor(*processor) for processor in sorted(processors)),
    }


def _processor(cpu: int, socket: int, core: int) -> str:
    facts = {
        "processor": cpu,
        "vendor_id": "Synthetic",
        "model name": "Synthetic NUMA machine",
        "cpu MHz": "2000.000",
        "physical id": socket,
        "core id": core,
    }
    return "".join(f"{name:<16}: {fact}\n" for name, fact in facts.items())


def _pci_files(function: PCIDevice, machine: Machine) -> tuple[Files, dict[str, str]]:
    first = (*function.path, function.address)[0]
    parts = ("devices", f"pci{first.rpartition(':')[0]}", *function.path, function.address)
    folder = "sys/" + "/".join(parts)
    cpus = machine.cpus if function.numa_node is None else machine.cpus_of_numa_node.get(function.numa_node, 0)
    modalias = (
        f"pci:v{function.vendor_id:08X}d{function.device_id:08X}sv00000000sd00000000"
        f"bc{function.pci_class >> 16:02X}sc{function.pci_class >> 8 & 0xFF:02X}i{function.pci_class & 0xFF:02X}"
    )
    facts: dict[str, str | bytes] = {
        "class": f"0x{function.pci_class:06x}",
        "vendor": f"0x{function.vendor_id:04x}",
        "device": f"0x{function.device_id:04x}",
        "subsystem_vendor": "0x0000",
        "subsystem_device": "0x0000",
        "revision": "0x00",
        "numa_node": str(-1 if function.numa_node is None else function.numa_node),
        "local_cpulist": format_id_list(cpus),
        "local_cpus": cpu_map(cpus, machine.cpus.bit_length()),
        "modalias": modalias,
        "uevent": "\n".join(_uevent(function, modalias)),
        "config": _configuration_space(function),
        **_link_facts(function.link),
    }
    up = "../" * len(parts)
    links = {
        f"sys/bus/pci/devices/{function.address}": "../../../" + "/".join(parts),
        f"{folder}/subsystem": f"{up}bus/pci",
    }
    if function.driver:
        driver = f"bus/pci/drivers/{function.driver}"
        links[f"{folder}/driver"] = up + driver
        links[f"sys/{driver}/{function.address}"] = "../../../../" + "/".join(parts)
    files: Files = {f"{folder}/{name}": fact for name, fact in facts.items()}
    if function.iommu_group is not None:
        group = f"kernel/iommu_groups/{function.iommu_group}"
        links[f"{folder}/iommu_group"] = up + group
        links[f"sys/{group}/devices/{function.address}"] = "../../../../" + "/".join(parts)
    return files, links


def _uevent(function: PCIDevice, modalias: str) -> Sequence[str]:
    driver = [f"DRIVER={function.driver}"] if function.driver else []
    return [
        *driver,
        f"PCI_CLASS={function.pci_class:X}",
        f"PCI_ID={function.vendor_id:04X}:{function.device_id:04X}",
        "PCI_SUBSYS_ID=0000:0000",
        f"PCI_SLOT_NAME={function.address}",
        f"MODALIAS={modalias}",
    ]


def _link_facts(link: PCILink | None) -> Files:
    if link is None:
        return {}
    facts = {
        "current_link_speed": link.speed and f"{link.speed:.1f} GT/s PCIe",
        "current_link_width": link.width and str(link.width),
        "max_link_speed": link.max_speed and f"{link.max_speed:.1f} GT/s PCIe",
        "max_link_width": link.max_width and str(link.max_width),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _configuration_space(function: PCIDevice) -> bytes:
    """The first 64 bytes of the configuration space: ids and class; for a bridge also type 1 and bus numbers."""
    is_bridge = function.pci_class >> 8 == BRIDGE_CLASS >> 8
    header = struct.pack(
        "<HHHHBBHBBBB",
        function.vendor_id,
        function.device_id,
        0x0006,
        0x0010,
        0,
        function.pci_class & 0xFF,
        function.pci_class >> 8,
        0,
        0,
        1 if is_bridge else 0,
        0,
    )
    space = bytearray(header.ljust(64, b"\0"))
    if is_bridge:
        slot, _, port = function.address.rpartition(":")[2].partition(".")
        below = (int(slot, 16) - 1) * 8 + int(port) + 1
        space[0x18:0x1B] = bytes((int(function.address.split(":")[1], 16), below & 0xFF, below & 0xFF))
    return bytes(space)
