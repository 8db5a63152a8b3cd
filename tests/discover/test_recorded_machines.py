"""Recorded machines, some deliberately broken: each is read, and its problems are named.

They are not part of the project; the test runs if they are stored beside it.
"""

import json

import pytest
from tests.discover.discovered import object_of
from tests.discover.lstopo import NAMES
from verify.oracle.random_cases.recorded import unpacked

from topomend.discover.discover import discover
from topomend.wire.published.node_topology import read_node_topology

BROKEN = {
    "2ps3-2t": "core_id is missing",
    "4fake-4gr1nu1pu": "core_id is missing",
    "fakeheterocpunuma": "claims CPUs 20-23, which an earlier node has",
}

pytestmark = pytest.mark.skipif(not NAMES, reason="no recorded machines beside the project (../shared/data/hwloc)")


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_machine_is_read_whole_or_its_fault_is_named(name: str) -> None:
    discovery = discover(unpacked(name), None, None, None, "recorded")
    document = json.loads(json.dumps(object_of(discovery)))
    assert read_node_topology(document).machine == discovery.state.machine
    assert discovery.state.machine.cores
    condition = next(condition for condition in discovery.conditions if condition.type == "HostDiscovered")
    expected = BROKEN.get(name)
    assert condition.status == ("False" if expected else "True"), condition.message
    assert (expected or "") in condition.message
    hardware = discovery.state.machine.hardware
    for kind, groups in (("cores", hardware.cores), ("sockets", hardware.sockets)):
        assert expected or (f"has {kind} that the kubelet groups otherwise" in condition.message) == bool(groups)
    assert discovery.conditions[0].status == "False"


@pytest.mark.parametrize(
    ("name", "nodes", "cpus", "cores"),
    [
        ("128arm-2pa2n8cluster4co", 4, 128, 128),
        ("16em64t-4s2c2t", 1, 16, 8),
        ("20em64t-hybrid-1p6c2t+2ca4co1t", 1, 20, 14),
        ("256ia64-64n2s2c", 64, 256, 256),
        ("fakecpuid1f-64intel64-2p4d2n2c2t", 16, 64, 32),
        ("fakeheteromemtiers", 7, 6, 6),
        ("nvidiagpunumanodes", 8, 32, 8),
    ],
)
def test_counts_agree_with_what_the_machine_is_known_for(name: str, nodes: int, cpus: int, cores: int) -> None:
    machine = discover(unpacked(name), None, None, None, "recorded").state.machine
    assert (len(machine.numa_nodes), machine.cpus.bit_count(), len(machine.cores)) == (nodes, cpus, cores)


def test_a_machine_whose_cores_the_kubelet_groups_otherwise_is_shown_with_both_groupings() -> None:
    """An Itanium whose firmware gives the cores of different sockets equal ids."""
    machine = discover(unpacked("16ia64-8n2s"), None, None, None, "recorded").state.machine
    assert (len(machine.cores), len(machine.hardware.cores)) == (8, 16)
