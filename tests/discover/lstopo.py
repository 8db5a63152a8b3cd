"""What Debian's ``lstopo`` (hwloc) reads out of a tree, in the words of this project's model.

hwloc is written by others against the same kernel documentation: an independent reading of the same files.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from verify.oracle.random_cases.recorded import RECORDED

from topomend.model.bitmask import CPUSet

NAMES = list(RECORDED)

LSTOPO = shutil.which("lstopo-no-graphics") or shutil.which("lstopo")


@dataclass(frozen=True)
class Reading:
    """Sets of CPUs are those that are online. NUMA nodes by id; PCI functions by address."""

    cpus: CPUSet
    cpus_of_numa_node: Mapping[int, CPUSet]
    memory: Mapping[int, int]
    """In bytes, huge pages included."""
    hugepages: Mapping[int, Mapping[int, int]]
    """Pages by their size in bytes, for each NUMA node, pools without pages left out."""
    gpu_memory: frozenset[int]
    sockets: frozenset[CPUSet]
    dies: frozenset[CPUSet]
    clusters: frozenset[CPUSet]
    l2_caches: frozenset[CPUSet]
    l3_caches: frozenset[CPUSet]
    cores: frozenset[CPUSet]
    distances: Mapping[tuple[int, int], int]
    pci_ids: Mapping[str, tuple[int, int, int]]
    """Class (16 bits), vendor and device by address."""
    pci_path: Mapping[str, tuple[str, ...]]
    """The bridges above each function, root first."""
    pci_cpus: Mapping[str, CPUSet]
    """The CPUs of the object that each function hangs under; none where hwloc knows no place."""


def read_with_lstopo(root: Path) -> Reading:
    """Let lstopo read the tree under ``root``, every PCI function and cache included."""
    assert LSTOPO is not None
    command = [LSTOPO, "--input", str(root), "--if", "fsroot", "--of", "xml", "--disallowed"]
    command += ["--filter", "io:all", "--filter", "cache:all", "-"]
    environment = {
        **os.environ,
        "HWLOC_THISSYSTEM": "0",
        "HWLOC_HIDE_ERRORS": "2",
        "HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES": "1",
    }
    printed = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=240).stdout
    topology = ElementTree.fromstring(printed)  # noqa: S314 - our own child's output
    machine = topology.find("object")
    assert machine is not None
    objects = list(_walk(machine, machine, ()))
    places = [(element, parent) for element, parent, _ in objects]
    numa_nodes = [element for element, _ in places if element.get("type") == "NUMANode"]
    return Reading(
        cpus=_cpus(machine),
        cpus_of_numa_node={int(element.attrib["os_index"]): _cpus(element) for element in numa_nodes if _cpus(element)},
        memory={int(element.attrib["os_index"]): int(element.get("local_memory", "0")) for element in numa_nodes},
        hugepages={int(element.attrib["os_index"]): _hugepages(element) for element in numa_nodes},
        gpu_memory=frozenset(
            int(element.attrib["os_index"]) for element in numa_nodes if element.get("subtype") == "GPUMemory"
        ),
        sockets=_sets(places, "Package"),
        dies=_sets(places, "Die"),
        clusters=frozenset(_cpus(element) for element, _ in places if element.get("subtype") == "Cluster"),
        l2_caches=_sets(places, "L2Cache"),
        l3_caches=_sets(places, "L3Cache"),
        cores=_sets(places, "Core"),
        distances=_distances(topology),
        pci_ids={
            element.attrib["pci_busid"]: _ids(element.attrib["pci_type"])
            for element, _ in places
            if "pci_busid" in element.attrib
        },
        pci_path={element.attrib["pci_busid"]: path for element, _, path in objects if "pci_busid" in element.attrib},
        pci_cpus={
            element.attrib["pci_busid"]: _cpus(parent) for element, parent in places if "pci_busid" in element.attrib
        },
    )


def _walk(
    element: ElementTree.Element, place: ElementTree.Element, path: tuple[str, ...]
) -> Iterator[tuple[ElementTree.Element, ElementTree.Element, tuple[str, ...]]]:
    """Every object with the nearest object above it that has CPUs, and the PCI bridges above it."""
    yield element, place, path
    below = element if element.get("cpuset") else place
    address = element.get("pci_busid")
    for child in element.findall("object"):
        yield from _walk(child, below, (*path, address) if address else path)


def _cpus(element: ElementTree.Element) -> CPUSet:
    """hwloc's bitmap text: groups of 32 bits, highest first, empty groups left empty."""
    mask = 0
    for group in (element.get("cpuset") or "0").split(","):
        mask = mask << 32 | int(group or "0", 16)
    return mask


def _sets(places: list[tuple[ElementTree.Element, ElementTree.Element]], kind: str) -> frozenset[CPUSet]:
    return frozenset(_cpus(element) for element, _ in places if element.get("type") == kind and _cpus(element))


def _hugepages(numa_node: ElementTree.Element) -> dict[int, int]:
    """The page types after the first, which is the ordinary page."""
    pools = {
        int(element.attrib["size"]): int(element.get("count", "0")) for element in numa_node.findall("page_type")[1:]
    }
    return {size: count for size, count in pools.items() if count}


def _ids(text: str) -> tuple[int, int, int]:
    """``0200 [8086:1521] [1028:0000] 01``."""
    pci_class, ids = text.split()[:2]
    vendor, device = ids.strip("[]").split(":")
    return int(pci_class, 16), int(vendor, 16), int(device, 16)


def _distances(topology: ElementTree.Element) -> dict[tuple[int, int], int]:
    for matrix in topology.findall("distances2"):
        if matrix.get("type") == "NUMANode" and matrix.get("name") == "NUMALatency":
            ids = [int(word) for element in matrix.findall("indexes") for word in (element.text or "").split()]
            values = [int(word) for element in matrix.findall("u64values") for word in (element.text or "").split()]
            pairs = [(one, other) for one in ids for other in ids]
            return dict(zip(pairs, values, strict=True))
    return {}
