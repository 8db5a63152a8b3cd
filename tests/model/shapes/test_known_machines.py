"""Each machine by name is one that can be, and says where its facts are."""

import re

import pytest

from topomend.model.bitmask import format_id_list
from topomend.model.shapes.known_machines import MACHINES, KnownMachine, find_machine
from topomend.model.shapes.shape import parse_shape


@pytest.mark.parametrize("known", MACHINES, ids=[machine.name for machine in MACHINES])
def test_a_known_machine_is_a_shape_with_sources(known: KnownMachine) -> None:
    assert parse_shape(known.name) == parse_shape(known.shape)
    assert find_machine(known.name.upper()) is known
    assert known.what
    assert known.sources
    assert all(re.fullmatch(r"https://[a-z.-]+/\S+", source) for source in known.sources)


def test_names_are_unique_whatever_their_case() -> None:
    assert len({machine.name.lower() for machine in MACHINES}) == len(MACHINES)


def test_published_cpu_lists_are_those_of_the_shapes() -> None:
    """As lscpu and nvidia-smi print them in the sources."""
    published = {
        "p4d.24xlarge": "0-23,48-71",
        "DGX-A100": "0-15,128-143",
        "DGX-H100": "0-55,112-167",
        "Standard_ND96isr_H100_v5": "0-47",
        "Aurora": "0-51,104-155",
        "GH200": "0-71",
        "Threadripper-3960X-NPS4": "0-5,24-29",
        "Xeon-56c-SNC4": "0-13,112-125",
        "Xeon-E7-4870-interleaved": "0,4,8,12,16,20,24,28,32,36",
        "Core-i7-1370P": "0-19",
    }
    assert {name: format_id_list(parse_shape(name).machine().cpus_of_numa_node[0]) for name in published} == published


def test_grace_blackwell_has_the_published_rows_of_distances() -> None:
    nodes = parse_shape("GB200").machine().numa_nodes
    assert len(nodes) == 34
    assert nodes[0].distances == (10, 40, *[80] * 16, *[120] * 16)
    assert nodes[1].distances == (40, 10, *[120] * 16, *[80] * 16)
    assert nodes[3].distances == (80, 120, 11, 10, *[11] * 6, *[40] * 24)
    assert all(nodes[a].distances[b] == nodes[b].distances[a] for a in range(34) for b in range(34))
    assert [node.id for node in nodes if node.memory] == [0, 1, 2, 10, 18, 26]
