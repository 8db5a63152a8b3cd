from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from topomend.cli.main import main
from topomend.discover.host_files import Root
from topomend.discover.machine.pci import DEVICES, MAX_DEVICES, read_pci_devices
from topomend.discover.machine.sysfs import read_machine
from topomend.model.machine import Machine, PCIDevice, PCILink
from topomend.model.shapes.shape import parse_shape
from topomend.sandbox.node.machine_files import write_machine

GPU = PCIDevice(
    "0000:3b:00.0",
    pci_class=0x030200,
    vendor_id=0x10DE,
    device_id=0x2330,
    driver="nvidia",
    numa_node=1,
    numa_source="sysfs",
    path=("0000:3a:00.0",),
    iommu_group=7,
    link=PCILink(16.0, 8, 32.0, 16),
)
BRIDGE = PCIDevice("0000:3a:00.0", pci_class=0x060400, vendor_id=0x8086, device_id=0x2030, numa_node=1)


def tree(folder: Path, *devices: PCIDevice, shape: str = "sockets:1 numa:2 cores:2 memory:4Gi") -> Path:
    machine = replace(parse_shape(shape).machine(), pci_devices=devices)
    write_machine(folder / "machine", machine)
    return folder / "machine"


def read(folder: Path) -> tuple[tuple[PCIDevice, ...], Root]:
    root = Root(folder)
    machine: Machine = read_machine(root)
    return read_pci_devices(root, machine), root


def test_a_device_is_read_with_its_driver_link_group_and_the_bridges_above_it(tmp_path: Path) -> None:
    devices, root = read(tree(tmp_path, BRIDGE, GPU))
    assert devices == (GPU,)
    assert root.problems == []


def test_a_device_without_a_node_takes_the_one_of_its_nearest_bridge(tmp_path: Path) -> None:
    devices, _ = read(tree(tmp_path, BRIDGE, GPU._replace(numa_node=None)))
    assert (devices[0].numa_node, devices[0].numa_source) == (1, "bridge 0000:3a:00.0")


def test_of_two_bridges_with_nodes_of_their_own_the_nearest_one_counts(tmp_path: Path) -> None:
    root_port = BRIDGE._replace(address="0000:39:00.0", numa_node=0)
    switch = BRIDGE._replace(path=(root_port.address,))
    gpu = GPU._replace(numa_node=None, path=(root_port.address, switch.address))
    devices, _ = read(tree(tmp_path, root_port, switch, gpu))
    assert [(device.address, device.numa_node, device.numa_source) for device in devices] == [
        (GPU.address, 1, f"bridge {switch.address}")
    ]


def test_devices_of_a_root_complex_that_disagree_say_nothing_about_another(tmp_path: Path) -> None:
    neighbours = [
        GPU._replace(address=f"0000:3a:0{slot}.0", numa_node=numa_node, path=()) for slot, numa_node in ((1, 0), (2, 1))
    ]
    gpu = GPU._replace(address="0000:3a:03.0", numa_node=None, path=())
    devices, _ = read(tree(tmp_path / "agreeing", neighbours[1], gpu))
    assert (devices[-1].numa_node, devices[-1].numa_source) == (1, "root complex pci0000:3a")
    devices, _ = read(tree(tmp_path / "disagreeing", *neighbours, gpu))
    assert (devices[-1].numa_node, devices[-1].numa_source) == (None, "")


def test_without_a_bridge_that_knows_the_cpus_said_to_be_local_tell(tmp_path: Path) -> None:
    folder = tree(tmp_path, GPU._replace(numa_node=None, path=()))
    for name, text in (("local_cpulist", "2-3"), ("local_cpus", "c")):
        (folder / DEVICES / GPU.address / name).write_text(text)
    devices, _ = read(folder)
    assert (devices[0].numa_node, devices[0].numa_source) == (1, "local CPUs")


def test_local_cpus_of_two_nodes_tell_nothing(tmp_path: Path) -> None:
    devices, root = read(tree(tmp_path, GPU._replace(numa_node=None, path=())))
    assert (devices[0].numa_node, devices[0].numa_source) == (None, "")
    assert root.problems == []


def test_local_cpus_that_contradict_each_other_are_named_and_not_used(tmp_path: Path) -> None:
    folder = tree(tmp_path, GPU._replace(numa_node=None, path=()))
    (folder / DEVICES / GPU.address / "local_cpus").write_text("3")
    devices, root = read(folder)
    assert devices[0].numa_node is None
    assert any("local_cpus says 0-1, its local_cpulist 0-3" in remark for remark in root.remarks)


def test_on_a_machine_of_one_node_every_device_stands_there(tmp_path: Path) -> None:
    folder = tree(tmp_path, GPU._replace(numa_node=None, path=()), shape="sockets:1 numa:1 cores:2 memory:4Gi")
    devices, _ = read(folder)
    assert (devices[0].numa_node, devices[0].numa_source) == (0, "only NUMA node")


def test_a_node_that_does_not_exist_is_named_and_not_used(tmp_path: Path) -> None:
    folder = tree(tmp_path, GPU._replace(path=()))
    (folder / DEVICES / GPU.address / "numa_node").write_text("5\n")
    devices, root = read(folder)
    assert (devices[0].numa_node, devices[0].numa_source) == (1, "local CPUs")
    assert any("numa_node says '5', and there is no such NUMA node" in remark for remark in root.remarks)


def test_a_virtual_function_names_its_physical_function(tmp_path: Path) -> None:
    nic = PCIDevice("0000:5e:00.0", 0x020000, 0x8086, 0x1592, numa_node=0)
    function = nic._replace(address="0000:5e:01.0", device_id=0x1889)
    folder = tree(tmp_path, nic, function)
    (folder / "sys/devices/pci0000:5e/0000:5e:01.0/physfn").symlink_to("../0000:5e:00.0")
    devices, _ = read(folder)
    assert [device.physical_function for device in devices] == ["", "0000:5e:00.0"]


def test_interfaces_and_disks_are_named_partitions_and_connectors_are_not(tmp_path: Path) -> None:
    disk = PCIDevice("0000:02:00.0", 0x010802, 0x144D, 0xA80A, numa_node=0)
    folder = tree(tmp_path, disk, GPU._replace(path=()))
    places = {
        "block/nvme0n1": "pci0000:02/0000:02:00.0/nvme/nvme0/nvme0n1",
        "block/nvme0n1p1": "pci0000:02/0000:02:00.0/nvme/nvme0/nvme0n1/nvme0n1p1",
        "drm/card0": "pci0000:3b/0000:3b:00.0/drm/card0",
        "drm/card0-DP-1": "pci0000:3b/0000:3b:00.0/drm/card0/card0-DP-1",
    }
    for name, place in places.items():
        (folder / "sys/devices" / place).mkdir(parents=True)
        link = folder / "sys/class" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../../devices/{place}")
    devices, _ = read(folder)
    assert {device.address: device.names for device in devices} == {
        disk.address: ("nvme0n1",),
        GPU.address: ("card0",),
    }


def test_names_come_from_the_records_that_udev_keeps(tmp_path: Path) -> None:
    folder = tree(tmp_path, GPU._replace(path=()))
    record = folder / f"run/udev/data/+pci:{GPU.address}"
    record.parent.mkdir(parents=True)
    record.write_text("E:ID_VENDOR_FROM_DATABASE=NVIDIA Corporation\nE:ID_MODEL_FROM_DATABASE=GH100\nV:1\n")
    devices, root = read(folder)
    assert (devices[0].vendor_name, devices[0].device_name) == ("NVIDIA Corporation", "GH100")
    assert root.remarks == []


def test_without_a_hardware_database_devices_have_their_ids_and_that_is_said(tmp_path: Path) -> None:
    devices, root = read(tree(tmp_path, GPU._replace(path=())))
    assert (devices[0].vendor_name, devices[0].device_name) == ("", "")
    assert (devices[0].vendor_id, devices[0].device_id) == (GPU.vendor_id, GPU.device_id)
    (remark,) = root.remarks
    assert remark.endswith("no hardware database names here: their ids alone are shown")
    printed = CliRunner().invoke(main, ["discover", "--root", str(tmp_path / "machine")]).stdout
    assert f"{GPU.vendor_id:04x}:{GPU.device_id:04x}" in printed


def test_the_chipsets_own_functions_are_left_out_and_what_is_passed_through_is_kept(tmp_path: Path) -> None:
    counter = PCIDevice("0000:7f:08.0", 0x088000, 0x8086, 0x3C80, numa_node=0)
    serial = PCIDevice("0000:00:16.0", 0x070002, 0x8086, 0xA13D, driver="vfio-pci", numa_node=0)
    devices, _ = read(tree(tmp_path, counter, serial))
    assert [device.address for device in devices] == [serial.address]


def test_more_devices_than_can_be_published_are_cut_and_said_so(tmp_path: Path) -> None:
    many = [
        PCIDevice(f"{number:04x}:00:00.0", 0x020000, 0x8086, 0x1889, numa_node=0) for number in range(MAX_DEVICES + 1)
    ]
    devices, root = read(tree(tmp_path, *many))
    assert len(devices) == MAX_DEVICES
    assert any(f"holds {MAX_DEVICES + 1} devices" in remark for remark in root.remarks)


def test_a_device_without_a_class_is_left_out_and_named(tmp_path: Path) -> None:
    folder = tree(tmp_path, GPU._replace(path=()))
    (folder / DEVICES / GPU.address / "class").unlink()
    devices, root = read(folder)
    assert devices == ()
    assert any("class is missing" in remark for remark in root.remarks)


def test_libudev_agrees_on_which_devices_this_machine_has() -> None:
    devices, root = read(Path("/"))
    assert {device.address for device in devices} <= set(root.names(DEVICES))
    assert not any("disagree" in remark for remark in root.remarks)
