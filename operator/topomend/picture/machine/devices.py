"""The devices of a node as small boxes: those of device plugins, those by claims, and PCI functions."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement

from topomend.model.devices.claimed_device import DeviceKey
from topomend.model.machine import Machine, PCIDevice
from topomend.model.nodes.node_state import Device
from topomend.picture.drawing.blocks import Area, Block, chip, column, flow, text
from topomend.picture.machine.facts import Facts

MOST_FUNCTIONS = 6
"""So many like PCI functions of a NUMA node have a box each; more of them are one box with their number."""

_MOST_LABEL = 300

_LEAST_WIDTH = 200


def devices_at(facts: Facts, numa_node: int | None, width: int) -> Iterator[Block]:
    """The devices near a NUMA node, or those near none or several, in rows of about this width."""
    for resource, its in groupby(facts.devices_at(numa_node), key=lambda device: device.resource):
        yield _group(resource, [_device(facts, device) for device in its], width)
    for driver, claimed in groupby(facts.claimed_at(numa_node), key=lambda device: device[0]):
        yield _group(f"{driver} (claims)", [_claimed(facts, device) for device in claimed], width)
    if pci := [_pci(device, number) for device, number in functions_near(facts.machine, numa_node)]:
        yield _group("PCI", pci, max(width, _LEAST_WIDTH))


def _group(heading: str, boxes: list[Block], width: int) -> Block:
    return column([text(heading, "muted", most=_MOST_LABEL), flow(boxes, width)], 2)


def _device(facts: Facts, device: Device) -> Block:
    look = facts.of_device(device)
    sick = "" if device.healthy else " unhealthy"
    near = f" @{','.join(map(str, device.numa_nodes or ()))}" if len(device.numa_nodes or ()) > 1 else ""
    label = f"{look.mark} {device.id}{near}{sick}".lstrip()
    words = f"{device.resource} {device.id}: {look.words}{sick}"
    return chip(label, f"device {look.css}", most=_MOST_LABEL, words=words, hatch=not device.healthy)


def _claimed(facts: Facts, device: DeviceKey) -> Block:
    look = facts.of_claimed(device)
    words = f"{device[0]} {device[2]}: {look.words}"
    return chip(f"{look.mark} {device[2]}", f"claim {look.css}", most=_MOST_LABEL, words=words)


def functions_near(machine: Machine, numa_node: int | None) -> list[tuple[PCIDevice, int]]:
    """The PCI functions near a NUMA node that people look for, each with its number; many of a kind are one.

    None has those that are near no NUMA node of the machine.
    """
    there = {node.id for node in machine.numa_nodes}
    shown_at = ((device, device.numa_node if device.numa_node in there else None) for device in machine.pci_devices)
    here = [device for device, place in shown_at if place == numa_node and device.kind not in ("", "bridge")]
    like = Counter(map(_like, here))
    shown: list[tuple[PCIDevice, int]] = []
    seen: set[tuple[int, int, int, str]] = set()
    for device in here:
        number = like[_like(device)]
        if number <= MOST_FUNCTIONS:
            shown.append((device, 1))
        elif _like(device) not in seen:
            seen.add(_like(device))
            shown.append((device, number))
    return shown


def _like(device: PCIDevice) -> tuple[int, int, int, str]:
    return device.pci_class, device.vendor_id, device.device_id, device.physical_function


def _pci(device: PCIDevice, number: int) -> Block:
    name = device.names[0] if device.names else device.device_name or device.kind
    label = f"{device.address} {name}" if number == 1 else f"{number} of {name}"
    words = " ".join(filter(None, (device.address, device.vendor_name, device.device_name, device.driver)))
    inner = chip(label, "pci", most=_MOST_LABEL, words=words)

    def draw(parent: Element, area: Area) -> None:
        x, y, width, height = area
        group = SubElement(parent, "g", {"class": "b-pci", "data-functions": str(number)})
        inner.draw(group, Area(x, y, width, height))

    return Block(inner.width, inner.height, draw)
