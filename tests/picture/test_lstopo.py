"""A drawing has as many CPUs, cores, packages, dies, caches, NUMA nodes and devices as Debian's lstopo finds."""

import pytest
from tests.discover.lstopo import LSTOPO, NAMES, Reading, read_with_lstopo
from tests.discover.test_lstopo import INTENDED
from tests.picture.drawn import of_class, svg_of_node
from verify.oracle.random_cases.recorded import unpacked

from topomend.discover.host import read_host
from topomend.model.machine import Machine, PCIDevice
from topomend.model.nodes.node_state import NodeState

pytestmark = [
    pytest.mark.skipif(LSTOPO is None, reason="no lstopo on this machine: apt-get install hwloc"),
    pytest.mark.skipif(not NAMES, reason="no recorded machines beside the project (../shared/data/hwloc)"),
]


def drawn(machine: Machine) -> dict[str, int]:
    """How many there are in the drawing, by what ``tests/discover/test_lstopo`` calls them."""
    svg = svg_of_node(NodeState("recorded", machine))
    counts = {
        "CPUs": "pu",
        "cores": "b-core",
        "sockets": "b-package",
        "dies": "b-die",
        "L3 caches": "b-l3",
        "NUMA nodes": "b-numa",
    }
    functions = sum(int(element.attrib["data-functions"]) for element in of_class(svg, "b-pci"))
    return {aspect: len(of_class(svg, name)) for aspect, name in counts.items()} | {"PCI ids": functions}


def of_lstopo(theirs: Reading) -> dict[str, int]:
    """How many lstopo finds, of PCI functions those that are drawn."""
    functions = [PCIDevice(address, ids[0] << 8, *ids[1:]) for address, ids in theirs.pci_ids.items()]
    return {
        "CPUs": theirs.cpus.bit_count(),
        "cores": len(theirs.cores),
        "sockets": len(theirs.sockets),
        "dies": len(theirs.dies),
        "L3 caches": len(theirs.l3_caches),
        "NUMA nodes": len(theirs.memory),
        "PCI ids": sum(device.kind not in ("", "bridge") for device in functions),
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_of_a_recorded_machine_has_the_counts_of_lstopo(name: str) -> None:
    actual = drawn(read_host(unpacked(name), whole=True).machine)
    expected = of_lstopo(read_with_lstopo(unpacked(name)))
    meant = {aspect for machine, aspect in INTENDED if machine == name}
    assert {aspect: count for aspect, count in actual.items() if aspect not in meant} == {
        aspect: count for aspect, count in expected.items() if aspect not in meant
    }
