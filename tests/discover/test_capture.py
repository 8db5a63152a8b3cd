"""Discovery reads a capture exactly as it reads the machine, and a capture contains no other files."""

import gzip
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from tests.closed_folder import closed
from tests.discover.discovered import object_of
from tests.discover.lstopo import NAMES
from tests.seeds import cases
from verify.oracle.random_cases.recorded import unpacked

from topomend.discover.capture import MAX_UNPACKED, Capture, NotACapture, capture
from topomend.discover.capture import unpack as unpack_archive
from topomend.discover.discover import discover
from topomend.model.machine import PCIDevice, PCILink
from topomend.model.shapes.shape import parse_shape
from topomend.sandbox import Sandbox
from topomend.sandbox.node.machine_files import write_machine

PORT = PCIDevice("0000:00:01.0", 0x060400, 0x8086, 0x2030, numa_node=1, driver="pcieport")
NIC = PCIDevice(
    "0000:01:00.0",
    0x020000,
    0x15B3,
    0x101D,
    numa_node=1,
    driver="mlx5_core",
    path=(PORT.address,),
    iommu_group=7,
    link=PCILink(16.0, 8, 32.0, 16),
)
SHAPE = "sockets:2 numa:1 cores:4 threads:2 l3:2 memory:8Gi hugepages-2Mi:16"

SECRETS = ("cali8d1f", "b8:59:9f:01:02:03", "b8599f010203", "SN-4711", "Serial", "topsecret", "4c4c4544")


def tree(folder: Path) -> Path:
    """A machine with what a real one has beside what discovery reads, secrets among it."""
    write_machine(folder / "machine", replace(parse_shape(SHAPE).machine(), pci_devices=(PORT, NIC)))
    root = folder / "machine"
    place = "devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    interfaces = {"ens1f0np0": place, "enxb8599f010203": place, "cali8d1f": "devices/virtual"}
    for name, parent in interfaces.items():
        (root / f"sys/{parent}/net/{name}").mkdir(parents=True)
        (root / f"sys/{parent}/net/{name}/address").write_text("b8:59:9f:01:02:03\n")
        (root / "sys/class/net" / name).symlink_to(f"../../{parent}/net/{name}")
    files = {
        f"sys/{place}/sriov_totalvfs": "8",
        f"sys/{place}/vpd": "SN-4711",
        "sys/class/dmi/id/product_uuid": "4c4c4544",
        "proc/cmdline": "password=topsecret",
        f"run/udev/data/+pci:{NIC.address}": (
            "I:4711\nE:ID_VENDOR_FROM_DATABASE=Mellanox\nE:ID_MODEL_FROM_DATABASE=MT2892\nE:ID_SERIAL=SN-4711\nG:cali8d1f"
        ),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    for name, line in (("cpuinfo", "Serial\t\t: SN-4711"), ("meminfo", "topsecret: 1 kB")):
        with (root / "proc" / name).open("a") as file:
            file.write(f"{line}\n")
    return root


def unpack(captured: Capture, folder: Path) -> Path:
    with tarfile.open(fileobj=io.BytesIO(captured.archive)) as archive:
        archive.extractall(folder, filter="data")
    (root,) = folder.iterdir()
    return root


def printed(root: Path) -> str:
    return json.dumps(object_of(discover(root, None, None, None, "node")))


def recaptured(root: Path, folder: Path) -> str:
    return printed(unpack(capture(root, "machine"), folder / "unpacked"))


def test_a_capture_is_read_as_the_machine_is_but_for_the_address_in_a_name(tmp_path: Path) -> None:
    root = tree(tmp_path)
    before = printed(root)
    assert '"enxb8599f010203"' in before
    assert '"Mellanox"' in before
    assert recaptured(root, tmp_path) == before.replace("b8599f010203", "000000000001")


def test_a_capture_holds_no_pod_secret_serial_number_or_hardware_address(tmp_path: Path) -> None:
    content = gzip.decompress(capture(tree(tmp_path), "machine").archive)
    assert [secret for secret in SECRETS if secret.encode() in content] == []
    assert b"ens1f0np0" in content


def test_a_capture_holds_no_more_than_discovery_reads(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(capture(tree(tmp_path), "machine").archive)) as archive:
        names = {entry.name for entry in archive}
    assert not {name for name in names if name.endswith(("config", "uevent", "modalias", "address", "vpd"))}
    assert "machine/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/sriov_totalvfs" in names


def test_equal_machines_give_equal_archives_that_say_nothing_of_who_made_them(tmp_path: Path) -> None:
    root = tree(tmp_path)
    first = capture(root, "machine").archive
    assert capture(root, "machine").archive == first
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        assert {(entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname) for entry in archive} == {
            (0, 0, 0, "", "")
        }


def test_links_never_lead_out_of_the_archive(tmp_path: Path) -> None:
    root = tree(tmp_path)
    driver = root / "sys/devices/pci0000:00/0000:00:01.0/driver"
    driver.unlink()
    driver.symlink_to("/sys/bus/pci/drivers/pcieport")
    assert recaptured(root, tmp_path) == printed(root).replace("b8599f010203", "000000000001")


def test_a_capture_of_this_machine_is_read_as_this_machine_is(tmp_path: Path) -> None:
    before = printed(Path("/"))
    after = recaptured(Path("/"), tmp_path)
    # Between two looks, pages come and go.
    assert without_free(after) == without_free(before)


def without_free(text: str) -> object:
    return json.loads(
        text, object_hook=lambda fields: {name: value for name, value in fields.items() if name != "free"}
    )


@pytest.mark.skipif(not NAMES, reason="no recorded machines beside the project (../shared/data/hwloc)")
@pytest.mark.parametrize("name", NAMES[:: cases(5, 1)])
def test_a_capture_of_a_recorded_machine_is_read_as_the_recording_is(name: str, tmp_path: Path) -> None:
    assert recaptured(unpacked(name), tmp_path) == printed(unpacked(name))


@pytest.mark.cluster
@pytest.mark.parametrize("node", ["wide", "split", "pods"])
def test_a_capture_of_a_sandbox_machine_is_read_as_that_machine_is(cluster: Sandbox, node: str, tmp_path: Path) -> None:
    root = cluster.folder / "nodes" / node / "machine"
    assert recaptured(root, tmp_path) == printed(root)


def test_a_capture_leaves_out_what_may_not_be_entered(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    with closed(folder / "sys" / "devices" / "system" / "node", 0o400):
        captured = capture(folder, "x")
    assert "cannot be read (Permission denied)" in " ".join(captured.host.problems)
    assert captured.files


def packed(folder: Path, *entries: tarfile.TarInfo) -> Path:
    """An archive of these entries, each as large as it says."""
    path = folder / "given.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for entry in entries:
            archive.addfile(entry, io.BytesIO(bytes(entry.size)))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, target, size
    return made


def test_an_archive_is_unpacked_into_the_folder_of_the_machine(tmp_path: Path) -> None:
    captured = capture(tree(tmp_path), "machine")
    (tmp_path / "machine.tar.gz").write_bytes(captured.archive)
    (tmp_path / "into").mkdir()
    assert printed(unpack_archive(tmp_path / "machine.tar.gz", tmp_path / "into")) == recaptured(
        tmp_path / "into" / "machine", tmp_path
    )


HOSTILE = {
    "a file outside": entry("../escaped"),
    "a link outside": entry("machine/sys", tarfile.SYMTYPE, "/etc"),
    "a device": entry("machine/null", tarfile.CHRTYPE),
    "a file larger than any machine": entry("machine/sys/large", size=MAX_UNPACKED + 1),
    "no machine": entry("machine/proc/meminfo"),
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_archive_is_refused_and_nothing_is_written_outside(hostile: tarfile.TarInfo, tmp_path: Path) -> None:
    (tmp_path / "into").mkdir()
    archive = packed(tmp_path, hostile)
    with pytest.raises(NotACapture):
        unpack_archive(archive, tmp_path / "into")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given.tar.gz", "into"]


def test_a_python_that_unpacks_anything_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tarfile, "data_filter")
    with pytest.raises(NotACapture, match="unpack it yourself"):
        unpack_archive(packed(tmp_path, entry("machine/sys/a")), tmp_path / "into")


NO_ARCHIVES = {
    "empty": b"",
    "a text": b"kind: Pod",
    "a packed text": gzip.compress(b"x" * 2000, mtime=0),
    "half a file": gzip.compress(b"x" * 2000, mtime=0)[:20],
}


@pytest.mark.parametrize("content", NO_ARCHIVES.values(), ids=NO_ARCHIVES)
def test_what_is_no_archive_is_refused_in_words(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(NotACapture, match="it "):
        unpack_archive(tmp_path / "file", tmp_path)
