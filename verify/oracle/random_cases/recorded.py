"""Recorded machines as the oracle's: the ``sys`` and ``proc`` trees of real machines, read as an agent reads its host.

They are not part of the project and are used if they are next to it.
"""

import hashlib
import tarfile
import tempfile
from pathlib import Path

from verify.oracle.kubelet_oracle import Case

from topomend.discover.host import read_host
from topomend.model.bitmask import members
from topomend.model.machine import Core, Machine, NUMANode
from topomend.sandbox.layout import cache_folder
from topomend.sandbox.releases.build import locked

FOLDER = Path(__file__).parents[4] / "shared" / "data" / "hwloc"

RECORDED = {path.name.removesuffix(".tar.bz2"): path for path in sorted(FOLDER.glob("*.tar.bz2"))}
"""Each recorded machine's archive by name; none if the folder is missing."""


def unpacked(name: str) -> Path:
    """The folder of one of RECORDED, which nobody may change: it is unpacked once, into the cache of this user.

    A machine has thousands of files, which take longer to unpack and to remove than to read.
    """
    archive = RECORDED[name]
    folder = cache_folder() / "recorded" / f"{name}-{hashlib.sha256(archive.read_bytes()).hexdigest()[:24]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f"{folder.name}.lock"), lambda: None):
        if not folder.exists():
            with (
                tempfile.TemporaryDirectory(dir=folder.parent) as partial,
                tarfile.open(archive) as packed,
            ):
                packed.extractall(partial, filter="data")
                (root,) = Path(partial).iterdir()
                root.rename(folder)
    return folder


def recorded_machine(name: str) -> Case:
    """One of RECORDED."""
    return case_machine(read_host(unpacked(name)).machine)


def case_machine(machine: Machine) -> Case:
    """A machine as a part of a case."""
    return {"numaNodes": [_numa_node(node) for node in machine.numa_nodes], "cores": list(map(_core, machine.cores))}


def _numa_node(node: NUMANode) -> Case:
    numa_node: Case = {"id": node.id, "memory": node.memory}
    if node.hugepages:
        numa_node["hugepages"] = [{"size": pages.size, "count": pages.count} for pages in node.hugepages]
    if node.distances:
        numa_node["distances"] = list(node.distances)
    return numa_node


def _core(core: Core) -> Case:
    return {
        "threads": ",".join(map(str, members(core.threads))),
        "socket": core.socket,
        "numaNode": core.numa_node,
        "l3Cache": core.l3_cache,
    }
