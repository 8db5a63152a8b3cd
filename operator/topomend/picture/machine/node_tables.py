"""The facts of a node's drawing as tables."""

from collections.abc import Iterator

from topomend.model.bitmask import format_id_list
from topomend.model.machine import NUMANode, PCIDevice
from topomend.model.nodes.node_state import Device
from topomend.model.quantity import format_bytes
from topomend.picture.drawing.document import Table
from topomend.picture.holders import Holder
from topomend.picture.machine.devices import functions_near
from topomend.picture.machine.facts import Facts
from topomend.picture.machine.memory import MemoryOnNode


def tables_of(facts: Facts) -> Iterator[Table]:
    """Who holds what, the NUMA nodes, and the devices that are not at one of them."""
    name = facts.state.name
    if facts.holders:
        heading = ("Mark", "Container", "CPUs", "Memory", "Devices")
        yield Table(f"Who holds what on {name}", heading, [_holder_row(facts, holder) for holder in facts.holders])
    columns = ("NUMA node", "CPUs", "Free CPUs", "Reserved CPUs", "Memory", "Devices", "Distances")
    yield Table(f"NUMA nodes of {name}", columns, [_node_row(facts, node) for node in facts.machine.numa_nodes])
    if nowhere := facts.devices_at(None):
        kinds = ("Device", "Resource", "Near", "Held by")
        its = [(device.id, device.resource, _near(device), _held_by(facts, device)) for device in nowhere]
        yield Table(f"Devices of {name} near no NUMA node or several", kinds, its)
    if claimed := facts.claimed_at(None):
        drivers = ("Device", "Driver", "Had by")
        yield Table(
            f"Claimed devices of {name} whose NUMA node is not known",
            drivers,
            [(device[2], device[0], facts.of_claimed(device).words) for device in claimed],
        )
    places = [*(node.id for node in facts.machine.numa_nodes), None]
    if functions := [each for place in places for each in functions_near(facts.machine, place)]:
        fields = ("Device", "NUMA node", "Kind", "Driver", "Functions")
        yield Table(f"PCI devices of {name}", fields, [_pci_row(*each) for each in functions])


def _holder_row(facts: Facts, holder: Holder) -> tuple[str, ...]:
    memory = ", ".join(
        f"{block.resource} {format_bytes(block.size)} on NUMA {format_id_list(block.numa_nodes)}"
        for block in holder.memory
    )
    devices = [f"{each.resource} {','.join(each.ids)}" for each in holder.allocation.devices]
    devices += [f"{driver} {device} by a claim" for driver, _, device in sorted(holder.claimed)]
    going = " (has to go)" if facts.is_going(holder) else ""
    cells = format_id_list(holder.cpus) or "-", memory or "-", ", ".join(devices) or "-"
    return holder.mark, f"{holder.name}{going}", *cells


def _node_row(facts: Facts, node: NUMANode) -> tuple[str, ...]:
    cpus = facts.machine.cpus_of_numa_node.get(node.id, 0)
    free = format_id_list(cpus & ~facts.taken) or "none"
    reserved = format_id_list(cpus & facts.reserved) or "none"
    memory = ", ".join(_memory_words(each) for each in facts.memory if each.numa_node == node.id)
    devices = [f"{device.resource} {device.id}: {_held_by(facts, device)}" for device in facts.devices_at(node.id)]
    devices += [f"{driver} {device} by a claim" for driver, _, device in facts.claimed_at(node.id)]
    distances = " ".join(map(str, node.distances)) or "-"
    gpu = f" (memory of GPU {node.gpu})" if node.gpu else ""
    cells = format_id_list(cpus) or "none", free, reserved, memory or "none", ", ".join(devices) or "none"
    return f"{node.id}{gpu}", *cells, distances


def _held_by(facts: Facts, device: Device) -> str:
    return f"{facts.of_device(device).words}{'' if device.healthy else ', unhealthy'}"


def _memory_words(memory: MemoryOnNode) -> str:
    words = f"{memory.resource} {format_bytes(memory.total)}"
    return f"{words} of which {format_bytes(memory.free)} free" if memory.managed else words


def _near(device: Device) -> str:
    return ", ".join(f"NUMA {node}" for node in device.numa_nodes or ()) or "not known"


def _pci_row(device: PCIDevice, number: int) -> tuple[str, ...]:
    name = " ".join((device.address, *device.names))
    place = "not known" if device.numa_node is None else str(device.numa_node)
    return name, place, device.device_name or device.kind, device.driver or "-", str(number)
