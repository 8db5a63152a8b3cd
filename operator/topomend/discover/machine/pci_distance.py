"""The distance between two PCI devices, in the steps that matter for placing GPUs near network adapters.

The steps are those of ``nvidia-smi topo --matrix`` (NVML: nvmlGpuTopologyLevel_t), in words: the fewer bridges and
interconnects lie between two devices, the faster they exchange data without the CPU's memory.
"""

from collections.abc import Sequence
from enum import StrEnum

from topomend.model.machine import PCIDevice


class PCIDistance(StrEnum):
    """From near to far. In brackets what nvidia-smi prints."""

    SAME_DEVICE = "same device"
    """Functions of one device (X)."""
    SAME_SWITCH = "same switch"
    """One PCIe switch lies between them (PIX)."""
    SAME_ROOT_PORT = "same root port"
    """Several switches lie between them, all below one root port (PXB)."""
    SAME_ROOT_COMPLEX = "same root complex"
    """The CPU's host bridge lies between them (PHB)."""
    SAME_NUMA_NODE = "same NUMA node"
    """Two host bridges of one NUMA node (NODE)."""
    ACROSS_NUMA_NODES = "across NUMA nodes"
    """The interconnect between NUMA nodes lies between them (SYS)."""
    UNKNOWN = "unknown"
    """Different host bridges, of which one does not say its NUMA node."""


def pci_distance(one: PCIDevice, other: PCIDevice) -> PCIDistance:
    """How far apart two devices stand, by the bridges above them and by their NUMA nodes."""
    if _device(one.address) == _device(other.address) or _is_function_of(one, other) or _is_function_of(other, one):
        return PCIDistance.SAME_DEVICE
    shared = _shared(one.path, other.path)
    if shared:
        # Below what both share, a switch has one downstream port on the way to each of them.
        below = max(len(one.path), len(other.path)) - shared
        return PCIDistance.SAME_SWITCH if below <= 1 else PCIDistance.SAME_ROOT_PORT
    if one.root_complex == other.root_complex:
        return PCIDistance.SAME_ROOT_COMPLEX
    if one.numa_node is None or other.numa_node is None:
        return PCIDistance.UNKNOWN
    return PCIDistance.SAME_NUMA_NODE if one.numa_node == other.numa_node else PCIDistance.ACROSS_NUMA_NODES


def _device(address: str) -> str:
    return address.rpartition(".")[0]


def _is_function_of(one: PCIDevice, other: PCIDevice) -> bool:
    """Whether ``one`` is a virtual function of ``other``'s device, or both are of the same."""
    parent = other.physical_function or other.address
    return bool(one.physical_function) and _device(one.physical_function) == _device(parent)


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """How many bridges, from the root on, are above both."""
    for count, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return count
    return min(len(one), len(other))
