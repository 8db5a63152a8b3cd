"""Pictures of a cluster whose names and messages were chosen to break a page: markup, controls, endless words."""

from collections.abc import Sequence
from dataclasses import replace

from tests.builders import node_topology_object
from tests.cli.numa.served_lists import ServedLists
from verify.pictures.examples import PCI, TWO, Example, Workload, few, server

from topomend.model.machine import PCIDevice
from topomend.model.nodes.node_state import ContainerAllocation, Device, DeviceAllocation, NodeState, PodAllocation

EVIL = "</title></style><script>fetch('http://evil.example')</script><img src=http://evil.example onerror=alert(1)>&\"'"
CONTROLS = "\x1b[2J\x00\u202egnirts\u2028\ud800 ]]>"
ENDLESS = "w" * 253
WIDE = "漢字" * 60

NAMES = (EVIL, CONTROLS, ENDLESS, WIDE)


def hostile_state() -> NodeState:
    """A node on which every text that others choose is hostile."""
    state = server("gpu-01", TWO, reserved_cpus="0,16")
    pods = tuple(
        PodAllocation(name, name, "", (ContainerAllocation(name, cpus=1 << 2 + number, devices=_one(name)),))
        for number, name in enumerate(NAMES)
    )
    devices = (*state.devices, *(Device(name, name, (0,)) for name in NAMES))
    functions = tuple(
        PCIDevice(f"0000:f{number}:00.0", 0x020000, 1, 1, name, name, name, 0, names=(name,))
        for number, name in enumerate(NAMES)
    )
    machine = replace(state.machine, pci_devices=(*PCI, *functions))
    return replace(state, pods=pods, devices=devices, machine=machine)


def _one(name: str) -> tuple[DeviceAllocation, ...]:
    return (DeviceAllocation(name, (name,)),)


def node() -> ServedLists:
    """A cluster of that node."""
    served = few()
    served.items["nodetopologies"] = [node_topology_object(hostile_state())]
    return served


def pods() -> ServedLists:
    """A waiting pod whose containers and requests are hostile, and a refused one with a hostile message."""
    served = few()
    waiting = Workload("evil", ["cpu=7 memory=1Gi", "cpu=1 memory=1Gi"]).manifest
    for container, name in zip(waiting["spec"]["containers"], NAMES, strict=False):
        container["name"] = name
    condition = {"type": "PodScheduled", "status": "False", "reason": EVIL, "message": f"{CONTROLS} {ENDLESS} {WIDE}"}
    waiting["status"]["conditions"] = [condition]
    served.items["pods"] = [*served.items["pods"], waiting]
    return served


HOSTILE: Sequence[Example] = (
    Example("hostile-node", node, ["show", "gpu-01"]),
    Example("hostile-pod", pods, ["explain", "pod/evil"], 1),
)
