"""Convert a machine to and from a NodeTopology's ``status.machine``, and check that its fields agree.

Owns the layout: sets of CPUs are cpulist strings, a core is the list of its threads, and caches and sockets are lists
of CPUs. Leaves reading a machine to ``discover``. Sizes are bytes.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from topomend.model.bitmask import MAX_ID, CPUSet, format_id_list, mask_of, members
from topomend.model.machine import Core, CoreKind, Hardware, HugePages, Machine, NUMANode, PCIDevice, PCILink
from topomend.model.quantity import MAX_INT64
from topomend.wire.document import Document, without_empty


def machine_fields(machine: Machine) -> dict[str, Any]:
    """``status.machine`` of a NodeTopology, without empty fields."""
    return without_empty(
        {
            "numaNodes": [
                without_empty(
                    {
                        "id": node.id,
                        "cpus": format_id_list(machine.cpus_of_numa_node.get(node.id, 0)),
                        "memoryBytes": node.memory,
                        "hugepages": [_hugepage_fields(pool) for pool in node.hugepages],
                        "distances": list(node.distances),
                        "gpu": node.gpu,
                    }
                )
                for node in machine.numa_nodes
            ],
            "sockets": _groups(machine.cpus_of_socket),
            "l3Caches": _groups(_cpus_of_known_l3_caches(machine)),
            "cores": [format_id_list(core.threads) for core in machine.cores],
            "offlineCPUs": format_id_list(machine.offline),
            "isolatedCPUs": format_id_list(machine.isolated),
            "hardware": _hardware_fields(machine.hardware),
            "pciDevices": [_pci_fields(device) for device in machine.pci_devices],
        }
    )


def _hugepage_fields(pool: HugePages) -> dict[str, Any]:
    fields = {"sizeBytes": pool.size, "count": pool.count}
    return fields if pool.free is None else fields | {"free": pool.free}


def _hardware_fields(hardware: Hardware) -> dict[str, Any]:
    return without_empty(
        {
            "cores": _lists(hardware.cores),
            "sockets": _lists(hardware.sockets),
            "dies": _lists(hardware.dies),
            "clusters": _lists(hardware.clusters),
            "l3Caches": _lists(hardware.l3_caches),
            "coreKinds": [
                without_empty({"cpus": format_id_list(kind.cpus), "name": kind.name, "capacity": kind.capacity})
                for kind in hardware.core_kinds
            ],
            "nohzFullCPUs": format_id_list(hardware.nohz_full),
            "reservedHugepages": [_hugepage_fields(pool) for pool in hardware.reserved_hugepages],
        }
    )


def _lists(sets: Iterable[CPUSet]) -> list[str]:
    return [format_id_list(cpus) for cpus in sets]


def _groups(sets: Mapping[int, CPUSet]) -> list[dict[str, Any]]:
    return [{"id": group_id, "cpus": format_id_list(cpus)} for group_id, cpus in sets.items()]


def _cpus_of_known_l3_caches(machine: Machine) -> dict[int, CPUSet]:
    sets: dict[int, CPUSet] = {}
    for core in machine.cores:
        if core.l3_cache is not None:
            sets[core.l3_cache] = sets.get(core.l3_cache, 0) | core.threads
    return dict(sorted(sets.items()))


def _pci_fields(device: PCIDevice) -> dict[str, Any]:
    link = device.link or PCILink()
    fields = without_empty(
        {
            "address": device.address,
            "class": f"{device.pci_class:06x}",
            "vendorID": f"{device.vendor_id:04x}",
            "deviceID": f"{device.device_id:04x}",
            "vendorName": device.vendor_name,
            "deviceName": device.device_name,
            "driver": device.driver,
            "numaNode": device.numa_node,
            "numaSource": device.numa_source,
            "path": list(device.path),
            "iommuGroup": device.iommu_group,
            "physicalFunction": device.physical_function,
            "virtualFunctions": device.virtual_functions or None,
            "maxVirtualFunctions": device.max_virtual_functions or None,
            "names": list(device.names),
        }
    )
    link_fields = without_empty(
        {
            "speedGTs": _decimal(link.speed),
            "width": link.width,
            "maxSpeedGTs": _decimal(link.max_speed),
            "maxWidth": link.max_width,
        }
    )
    return fields | ({"link": link_fields} if link_fields else {})


def _decimal(number: float | None) -> str | None:
    return None if number is None else f"{number:g}"


def core_fields(machine: Mapping[str, Any]) -> dict[str, Any]:
    """What of ``status.machine`` says which cores there are: the same for machines that differ in their memory."""
    fields = {name: machine.get(name) for name in ("cores", "sockets", "l3Caches", "numaNodes")}
    if isinstance(fields["numaNodes"], list):
        fields["numaNodes"] = [
            {name: node.get(name) for name in ("id", "cpus")} if isinstance(node, dict) else node
            for node in fields["numaNodes"]
        ]
    return fields


def machine_of(machine: Document, cores: tuple[Core, ...] | None = None) -> Machine:
    """The machine in ``status.machine``. Raises MalformedObject, also where fields contradict each other.

    Every core needs one NUMA node and one socket, and cores and NUMA nodes must cover the same CPUs. ``cores`` spares
    reading them again, where they were read of the same ``core_fields``.
    """
    nodes = tuple(
        NUMANode(
            id=node["id"].integer(most=MAX_ID - 1),
            memory=node["memoryBytes"].integer(default=0),
            hugepages=tuple(_read_hugepages(pool) for pool in node["hugepages"]),
            distances=tuple(distance.integer(most=255) for distance in node["distances"]),
            gpu=node["gpu"].text(""),
        )
        for node in machine["numaNodes"]
    )
    if not nodes:
        raise machine["numaNodes"].wrong("a list of at least one NUMA node")
    if list({node.id: None for node in nodes}) != sorted(node.id for node in nodes):
        raise machine["numaNodes"].wrong("a list of NUMA nodes with ascending ids, each once,")
    return Machine(
        numa_nodes=nodes,
        cores=_read_cores(machine) if cores is None else cores,
        offline=machine["offlineCPUs"].id_list(),
        isolated=machine["isolatedCPUs"].id_list(),
        pci_devices=tuple(_read_pci(device) for device in machine["pciDevices"]),
        hardware=_read_hardware(machine["hardware"]),
    )


def _read_hugepages(pool: Document) -> HugePages:
    free = None if pool["free"].absent else pool["free"].integer()
    return HugePages(pool["sizeBytes"].integer(least=1), pool["count"].integer(), free)


def _read_hardware(hardware: Document) -> Hardware:
    return Hardware(
        cores=_read_lists(hardware["cores"]),
        sockets=_read_lists(hardware["sockets"]),
        dies=_read_lists(hardware["dies"]),
        clusters=_read_lists(hardware["clusters"]),
        l3_caches=_read_lists(hardware["l3Caches"]),
        core_kinds=tuple(
            CoreKind(
                kind["cpus"].id_list(),
                kind["name"].text(""),
                None if kind["capacity"].absent else kind["capacity"].integer(),
            )
            for kind in hardware["coreKinds"]
        ),
        nohz_full=hardware["nohzFullCPUs"].id_list(),
        reserved_hugepages=tuple(_read_hugepages(pool) for pool in hardware["reservedHugepages"]),
    )


def _read_lists(sets: Document) -> tuple[CPUSet, ...]:
    return tuple(id_list.id_list() for id_list in sets)


def _read_cores(machine: Document) -> tuple[Core, ...]:
    numa_nodes = _owners(machine["numaNodes"])
    sockets = _owners(machine["sockets"])
    l3_caches = _owners(machine["l3Caches"])
    cores = []
    covered = 0
    for core in machine["cores"]:
        threads = core.id_list()
        if not threads or threads & covered:
            raise core.wrong("a list of CPUs that no other core has")
        covered |= threads
        first, *others = members(threads)
        owners = [(numa_nodes.get(cpu), sockets.get(cpu), l3_caches.get(cpu)) for cpu in (first, *others)]
        numa_node, socket, l3_cache = owners[0]
        if numa_node is None or socket is None:
            raise core.wrong("CPUs that a NUMA node and a socket have")
        if any(owner[:2] != owners[0][:2] for owner in owners):
            raise core.wrong("CPUs of one NUMA node and one socket")
        cores.append(Core(threads, socket, numa_node, l3_cache))
    if covered != mask_of(numa_nodes):
        raise machine["cores"].wrong(f"a list that covers the NUMA nodes' CPUs {format_id_list(mask_of(numa_nodes))}")
    return tuple(cores)


def _owners(groups: Document) -> dict[int, int]:
    """The id of each CPU's group, by CPU. Raises MalformedObject where a CPU is in two groups."""
    owners: dict[int, int] = {}
    for group in groups:
        for cpu in members(group["cpus"].id_list()):
            if cpu in owners:
                raise group["cpus"].wrong(f"a list without CPU {cpu}, which another entry has,")
            owners[cpu] = group["id"].integer(least=-1, most=MAX_INT64)
    return owners


def _read_pci(device: Document) -> PCIDevice:
    link = device["link"]
    return PCIDevice(
        address=device["address"].text(),
        pci_class=_hexadecimal(device["class"]),
        vendor_id=_hexadecimal(device["vendorID"]),
        device_id=_hexadecimal(device["deviceID"]),
        vendor_name=device["vendorName"].text(""),
        device_name=device["deviceName"].text(""),
        driver=device["driver"].text(""),
        numa_node=None if device["numaNode"].absent else device["numaNode"].integer(most=MAX_ID - 1),
        numa_source=device["numaSource"].text(""),
        path=tuple(address.text() for address in device["path"]),
        iommu_group=None if device["iommuGroup"].absent else device["iommuGroup"].integer(),
        physical_function=device["physicalFunction"].text(""),
        virtual_functions=device["virtualFunctions"].integer(default=0),
        max_virtual_functions=device["maxVirtualFunctions"].integer(default=0),
        link=None
        if link.absent
        else PCILink(
            speed=_read_decimal(link["speedGTs"]),
            width=None if link["width"].absent else link["width"].integer(),
            max_speed=_read_decimal(link["maxSpeedGTs"]),
            max_width=None if link["maxWidth"].absent else link["maxWidth"].integer(),
        ),
        names=tuple(name.text() for name in device["names"]),
    )


def _hexadecimal(number: Document) -> int:
    try:
        return int(number.text(), 16)
    except ValueError as error:
        raise number.wrong("a hexadecimal number") from error


def _read_decimal(number: Document) -> float | None:
    if number.absent:
        return None
    try:
        return float(number.text())
    except ValueError as error:
        raise number.wrong("a decimal number") from error
