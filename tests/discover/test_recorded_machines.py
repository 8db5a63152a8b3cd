"""Recorded machines, some deliberately broken: each is read, and what is wrong with it is named.

They are not part of the project; the test runs where they lie beside it.
"""

import json
import tarfile
from pathlib import Path

import pytest

from topomend.discover import discover
from topomend.wire.node_topology import read_node_topology

RECORDED = Path(__file__).parents[3] / "shared" / "data" / "hwloc"
ARCHIVES = sorted(RECORDED.glob("*.tar.bz2"))

BROKEN = {
    "2ps3-2t": "core_id is missing",
    "4fake-4gr1nu1pu": "core_id is missing",
    "fakeheterocpunuma": "claims CPUs 20-23, which an earlier node has",
}

pytestmark = pytest.mark.skipif(not ARCHIVES, reason="no recorded machines beside the project (../shared/data/hwloc)")


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.bz2"))
def test_a_recorded_machine_is_read_whole_or_its_fault_is_named(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as recorded:
        recorded.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    found = discover(folder, None, None, None, "recorded")
    document = json.loads(json.dumps(found.node_topology()))
    assert read_node_topology(document).machine == found.state.machine
    assert found.state.machine.cores
    condition = next(each for each in found.conditions if each.type == "HostDiscovered")
    expected = BROKEN.get(archive.name.removesuffix(".tar.bz2"))
    assert condition.status == ("False" if expected else "True"), condition.message
    assert (expected or "") in condition.message
    assert found.conditions[0].status == "False"


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
def test_counts_agree_with_what_the_machine_is_known_for(
    name: str, nodes: int, cpus: int, cores: int, tmp_path: Path
) -> None:
    with tarfile.open(RECORDED / f"{name}.tar.bz2") as recorded:
        recorded.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    machine = discover(folder, None, None, None, "recorded").state.machine
    assert (len(machine.numa_nodes), machine.cpus.bit_count(), len(machine.cores)) == (nodes, cpus, cores)
