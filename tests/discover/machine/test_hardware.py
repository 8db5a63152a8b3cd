from pathlib import Path

import pytest

from topomend.discover.host_files import Root
from topomend.discover.machine.sysfs import read_machine
from topomend.model.bitmask import mask_of
from topomend.model.machine import CoreKind, Hardware, HugePages
from topomend.model.shapes.shape import parse_shape
from topomend.sandbox.node.machine_files import cpu_map, write_machine

CPU = "sys/devices/system/cpu"
FOUR = "sockets:1 numa:1 cores:4 memory:4Gi"


def tree(folder: Path, shape: str = FOUR) -> Path:
    write_machine(folder / "machine", parse_shape(shape).machine())
    return folder / "machine"


def read(folder: Path, *, whole: bool = False) -> tuple[Hardware, Root]:
    root = Root(folder)
    hardware = read_machine(root, whole=whole).hardware
    assert root.problems == []
    return hardware, root


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"{text}\n")


def group(folder: Path, name: str, *sets: int) -> None:
    """Let each CPU of each set say that it stands together with the others, in all ways a kernel writes it."""
    for cpus in sets:
        for cpu in range(cpus.bit_length()):
            if cpus >> cpu & 1:
                write(folder, f"{CPU}/cpu{cpu}/topology/{name}", cpu_map(cpus, 32))


def test_a_plain_machine_has_nothing_to_add_but_its_caches(tmp_path: Path) -> None:
    assert read(tree(tmp_path))[0] == Hardware(l3_caches=(0b1111,))


def test_dies_of_a_socket_and_clusters_of_a_die_are_reported(tmp_path: Path) -> None:
    folder = tree(tmp_path, "sockets:1 numa:1 cores:8 memory:4Gi")
    group(folder, "die_cpus", 0x0F, 0xF0)
    group(folder, "cluster_cpus", 0x03, 0x0C, 0x30, 0xC0)
    hardware, _ = read(folder)
    assert hardware.dies == (0x0F, 0xF0)
    assert hardware.clusters == (0x03, 0x0C, 0x30, 0xC0)


def test_dies_that_are_sockets_or_single_cores_are_not_reported(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    for dies in ((0b1111,), (0b1, 0b10, 0b100, 0b1000)):
        group(folder, "die_cpus", *dies)
        assert read(folder)[0].dies == ()


def test_cores_that_the_kubelet_takes_for_one_are_reported_and_remarked_on(tmp_path: Path) -> None:
    """Firmware that counts core ids anew on each die: cadvisor takes equal ids of a socket for one core."""
    folder = tree(tmp_path)
    write(folder, f"{CPU}/cpu2/topology/core_id", "0")
    hardware, root = read(folder)
    assert hardware.cores == (0b1, 0b10, 0b100, 0b1000)
    assert any("cores that the kubelet groups otherwise, CPUs 0 among them" in remark for remark in root.remarks)


def test_a_cpu_that_contradicts_the_others_is_remarked_on_and_the_others_are_trusted(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    write(folder, f"{CPU}/cpu0/cache/index3/shared_cpu_map", "1")
    write(folder, f"{CPU}/cpu3/cache/index3/shared_cpu_map", "ff00")
    hardware, root = read(folder)
    assert hardware.l3_caches == (0b1,)
    assert any("cpu1 has an L3 cache of CPUs 0-3, other CPUs say otherwise" in remark for remark in root.remarks)


def test_offline_cpus_are_in_no_group(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    write(folder, f"{CPU}/online", "0-2")
    assert read(folder)[0].l3_caches == (0b111,)


@pytest.mark.parametrize(("text", "cpus"), [("2-3", 0b1100), ("(null)", 0), ("", 0), ("2-9", 0b1100)])
def test_cpus_without_a_tick_are_reported(tmp_path: Path, text: str, cpus: int) -> None:
    folder = tree(tmp_path)
    write(folder, f"{CPU}/nohz_full", text)
    assert read(folder)[0].nohz_full == cpus


def test_kinds_of_cores_have_the_kernels_names(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    write(folder, "sys/devices/cpu_core/cpus", "0-1")
    write(folder, "sys/devices/cpu_atom/cpus", "2-3")
    assert read(folder)[0].core_kinds == (CoreKind(0b11, "core"), CoreKind(0b1100, "atom"))


@pytest.mark.parametrize("file", ["cpu_capacity", "acpi_cppc/nominal_perf"])
def test_kinds_of_cores_are_reported_by_their_capacity_the_strongest_first(tmp_path: Path, file: str) -> None:
    folder = tree(tmp_path)
    for cpu, number in enumerate((250, 250, 500, 500)):
        write(folder, f"{CPU}/cpu{cpu}/{file}", str(number))
    assert read(folder)[0].core_kinds == (CoreKind(0b1100, "", 1024), CoreKind(0b11, "", 512))


def test_equal_cores_are_of_no_kind_and_neither_are_those_of_which_one_does_not_tell(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    for cpu in range(4):
        write(folder, f"{CPU}/cpu{cpu}/cpu_capacity", "446")
    assert read(folder)[0].core_kinds == ()
    write(folder, f"{CPU}/cpu0/cpu_capacity", "1024")
    assert len(read(folder)[0].core_kinds) == 2
    (folder / CPU / "cpu3/cpu_capacity").unlink()
    assert read(folder)[0].core_kinds == ()


def test_gpu_memory_is_distinguished_from_the_machines(tmp_path: Path) -> None:
    folder = tree(tmp_path, "sockets:1 numa:2 cores:2 memory:4Gi")
    write(folder, "proc/driver/nvidia/gpus/0009:01:00.0/numa_status", "Node:      1\nStatus:    online")
    assert [node.gpu for node in read_machine(Root(folder)).numa_nodes] == ["", "0009:01:00.0"]


def test_free_and_promised_huge_pages_are_read_where_they_are_asked_for(tmp_path: Path) -> None:
    folder = tree(tmp_path, "sockets:1 numa:1 cores:1 memory:4Gi hugepages-2Mi:8")
    pool = "hugepages/hugepages-2048kB"
    write(folder, f"sys/devices/system/node/node0/{pool}/free_hugepages", "5")
    write(folder, f"sys/kernel/mm/{pool}/resv_hugepages", "2")
    for whole, expected, promised in ((True, 5, (HugePages(2 << 20, 2),)), (False, None, ())):
        machine = read_machine(Root(folder), whole=whole)
        assert machine.numa_nodes[0].hugepages == (HugePages(2 << 20, 8, expected),)
        assert machine.hardware.reserved_hugepages == promised


def test_what_is_wrong_with_the_hardware_alone_leaves_the_node_ready(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    write(folder, f"{CPU}/cpu0/topology/die_cpus", "nonsense")
    write(folder, f"{CPU}/nohz_full", "nonsense")
    _, root = read(folder)
    assert sum("nonsense" in remark for remark in root.remarks) == 2
    assert mask_of(range(4)) == read_machine(root).cpus
