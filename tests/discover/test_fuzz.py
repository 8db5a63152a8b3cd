"""Whatever the files of a machine hold, discovery answers: with an object that the API accepts, and words for what is
wrong. Hypothesis breaks the files of a made machine, several at a time; it prints what reproduces a failure.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from itertools import cycle, islice
from pathlib import Path

import pytest
import yaml
from deploy.manifests import crd_schema
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.deploy.schema import complaints
from tests.discover.discovered import object_of
from tests.seeds import SEED, cases

from topomend.discover.assemble import Discovery
from topomend.discover.discover import discover
from topomend.model.condition import Condition
from topomend.model.machine import Machine, PCIDevice, PCILink
from topomend.model.shapes.shape import parse_shape
from topomend.sandbox.node.machine_files import write_machine
from topomend.wire.published.node_topology import read_node_topology

SCHEMA = crd_schema("nodetopologies")["properties"]["status"]

Break = Callable[[Path], None]


def missing(path: Path) -> None:
    del path


def empty(path: Path) -> None:
    path.write_bytes(b"")


def binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)))


def invalid_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00nonsense\n\n\x1b[31m")


def huge(path: Path) -> None:
    path.write_bytes(b"0123456789\n" * 20_000)


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def long_loop(path: Path) -> None:
    path.symlink_to("../" * 60 + "sys/devices/system/node/../../system/cpu/cpu0/..")


def leads_nowhere(path: Path) -> None:
    path.symlink_to("nowhere\xff/../\x01")


def holding(text: str) -> Break:
    def write(path: Path) -> None:
        path.write_text(text)

    write.__name__ = f"holding {text[:20]!r}"
    return write


BROKEN = (binary, invalid_text, huge, folder, pipe)
"""What no kernel writes: never passed over in silence where it changes what the kubelet decides by."""

BREAKS: Sequence[Break] = (
    *BROKEN,
    missing,
    empty,
    loop,
    long_loop,
    leads_nowhere,
    *map(
        holding,
        (
            "-1",
            "0",
            "1",
            "7",
            "16383",
            "16384",
            str(1 << 63),
            "9" * 400,
            "0x10de",
            "0-3",
            "0-99999999",
            "3-1",
            "0,0,0,1-2,2-3",
            ",".join(map(str, range(0, 16384, 2))),
            "ffffffff,ffffffff",
            "f" * 9000,
            "10 20 x",
            " ".join(["255"] * 300),
            "Node 0 MemTotal: 99999999999999999999 kB",
            "MemTotal: 0 kB",
            "processor: 0\n" * 1000,
            "Node: 3",
            "99999.9 GT/s PCIe",
            "E:ID_MODEL_FROM_DATABASE=\x00\x07\u2028" + "x" * 5000,
        ),
    ),
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two NUMA nodes, huge pages, two L3 caches each, a GPU and a virtual function behind a port; names and links."""
    root = tmp_path_factory.mktemp("fuzz") / "machine"
    port = PCIDevice("0000:00:01.0", 0x060400, 0x8086, 0x2030, numa_node=1, driver="pcieport")
    gpu = PCIDevice(
        "0000:01:00.0", 0x030200, 0x10DE, 0x2330, driver="nvidia", numa_node=1, path=(port.address,), iommu_group=3,
        link=PCILink(16.0, 8, 32.0, 16),
    )  # fmt: skip
    function = PCIDevice("0000:02:00.1", 0x020000, 0x15B3, 0x101E, path=(port.address,))
    shape = parse_shape("sockets:2 numa:1 cores:2 threads:1 l3:2 memory:8Gi hugepages-2Mi:16")
    write_machine(root, replace(shape.machine(), pci_devices=(port, gpu, function)))
    place = "devices/pci0000:00/0000:00:01.0/0000:02:00.1"
    (root / "sys" / place / "net/eth0").mkdir(parents=True)
    (root / "sys" / place / "physfn").symlink_to("../0000:01:00.0")
    (root / "sys/class/net/eth0").symlink_to(f"../../{place}/net/eth0")
    files = {
        "sys/devices/system/cpu/nohz_full": "2-3",
        "sys/devices/cpu_core/cpus": "0-1",
        "sys/devices/cpu_atom/cpus": "2-3",
        "sys/devices/system/cpu/cpu0/cpu_capacity": "1024",
        f"sys/{place}/sriov_totalvfs": "8",
        f"sys/{place}/sriov_numvfs": "2",
        "sys/devices/pci0000:00/pci_bus/0000:00/cpulistaffinity": "2-3",
        "proc/driver/nvidia/gpus/0000:01:00.0/numa_status": "Node: 1",
        f"run/udev/data/+pci:{gpu.address}": "E:ID_VENDOR_FROM_DATABASE=NVIDIA Corporation",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


@cache
def places(root: Path) -> Sequence[Path]:
    """Everything in the tree, folders and links included; what discovery reads of it and what it does not."""
    return sorted(root.rglob("*"))


@contextmanager
def broken(path: Path, how: Break) -> Iterator[None]:
    """The tree with one thing in it replaced, and put back afterwards; nothing happens where it is gone already."""
    if not os.path.lexists(path) or any(parent.is_symlink() for parent in path.parents):
        yield
        return
    aside = path.with_name("aside")
    path.rename(aside)
    try:
        how(path)
        yield
    finally:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        aside.rename(path)


def look(root: Path) -> Discovery:
    return discover(root, None, None, None, "node")


def host_condition(discovery: Discovery) -> Condition:
    return next(condition for condition in discovery.conditions if condition.type == "HostDiscovered")


def check(discovery: Discovery) -> None:
    """The object is whole: the API accepts it, and it is read back as what was found, or says that there is nothing."""
    document = object_of(discovery)
    json.dumps(document, ensure_ascii=False).encode()
    assert yaml.safe_load(yaml.safe_dump(document)) == document
    conditions = {condition.type: condition for condition in discovery.conditions}
    status = json.loads(json.dumps(document["status"]))
    for condition in status["conditions"]:
        condition["lastTransitionTime"] = "2026-01-02T03:04:05Z"
    assert list(complaints(status, SCHEMA)) == []
    if discovery.state.machine.cores:
        assert read_node_topology(document).machine == discovery.state.machine
    else:
        assert conditions["HostDiscovered"].status == "False"
    if conditions["HostDiscovered"].status == "False":
        assert conditions["HostDiscovered"].message
        assert conditions["Ready"].status == "False"


@settings(max_examples=cases(50, 150), deadline=None, print_blob=True)
@given(data=st.data())
def test_whatever_the_files_hold_the_answer_is_whole(machine: Path, data: st.DataObject) -> None:
    folders = st.sampled_from(places(machine)), st.sampled_from(BREAKS)
    chosen = data.draw(st.lists(st.tuples(*folders), min_size=1, max_size=4, unique_by=lambda choice: choice[0].parent))
    with ExitStack() as stack:
        for path, how in chosen:
            stack.enter_context(broken(path, how))
        check(look(machine))


def test_what_no_kernel_writes_is_never_passed_over_where_it_changes_what_the_kubelet_decides_by(machine: Path) -> None:
    """Each file by itself, each way in turn; for a change every fourth file, from one that the seed chooses."""
    whole = look(machine).state.machine
    files = [path for path in places(machine) if path.is_file() and not path.is_symlink()]
    step = cases(4, 1)
    for path, how in islice(zip(files, cycle(BROKEN), strict=False), SEED % step, None, step):
        with broken(path, how):
            discovery = look(machine)
        check(discovery)
        condition = host_condition(discovery)
        same = decisive(discovery.state.machine) == decisive(whole)
        assert same or condition.status == "False", f"{path}: {how.__name__}"


def decisive(machine: Machine) -> object:
    """What the kubelet decides by: not whose memory a node is, nor how many pages are free."""
    nodes = [
        (node.id, node.memory, [(pool.size, pool.count) for pool in node.hugepages], node.distances)
        for node in machine.numa_nodes
    ]
    return nodes, machine.cores


def test_what_is_broken_is_put_back(machine: Path) -> None:
    assert host_condition(look(machine)).status == "True"
