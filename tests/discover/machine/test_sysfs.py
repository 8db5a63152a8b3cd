import os
from pathlib import Path

import pytest

from topomend.discover.host_files import Root
from topomend.discover.machine.sysfs import read_machine
from topomend.model.bitmask import format_id_list, mask_of
from topomend.model.machine import Machine
from topomend.model.shapes.shape import parse_shape
from topomend.sandbox.node.machine_files import write_machine

NODE = "sys/devices/system/node"
CPU = "sys/devices/system/cpu"


def tree(folder: Path, shape: str) -> Path:
    write_machine(folder / "machine", parse_shape(shape).machine())
    return folder / "machine"


def read(folder: Path) -> tuple[Machine, list[str]]:
    root = Root(folder)
    machine = read_machine(root)
    return machine, root.problems


@pytest.mark.parametrize(
    "shape",
    [
        "sockets:1 numa:1 cores:1 threads:1 memory:1Gi",
        "sockets:2 numa:2 cores:4 threads:2 memory:64Gi hugepages-1Gi:4 hugepages-2Mi:0",
        "sockets:2 numa:4 cores:8 threads:2 l3:2 memory:16Gi",
        "sockets:4 numa:2 cores:12 threads:1 l3:3 memory:3Gi",
    ],
)
def test_a_machine_that_was_written_as_files_is_read_back_as_the_kubelet_sees_it(tmp_path: Path, shape: str) -> None:
    machine, problems = read(tree(tmp_path, shape))
    assert machine == parse_shape(shape).machine()
    assert problems == []


def test_a_cache_that_only_some_cores_of_a_node_share_is_their_uncore_cache(tmp_path: Path) -> None:
    machine, _ = read(tree(tmp_path, "sockets:1 numa:2 cores:4 l3:2 memory:4Gi"))
    assert [core.l3_cache for core in machine.cores] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_without_the_id_of_one_cache_the_nodes_later_cores_have_no_uncore_cache(tmp_path: Path) -> None:
    folder = tree(tmp_path, "sockets:1 numa:1 cores:4 l3:2 memory:4Gi")
    (folder / CPU / "cpu2/cache/index3/id").unlink()
    machine, problems = read(folder)
    assert [core.l3_cache for core in machine.cores] == [0, 0, None, None]
    assert problems == []


def test_a_cpu_that_is_offline_is_no_thread_of_its_core(tmp_path: Path) -> None:
    folder = tree(tmp_path, "sockets:1 numa:2 cores:2 threads:2 memory:4Gi")
    (folder / CPU / "online").write_text("0-4,6-7\n")
    machine, problems = read(folder)
    assert machine.offline == mask_of([5])
    assert [format_id_list(core.threads) for core in machine.cores] == ["0,4", "1", "2,6", "3,7"]
    assert problems == []


def test_without_hotplug_every_cpu_is_online(tmp_path: Path) -> None:
    folder = tree(tmp_path, "sockets:1 numa:1 cores:2 memory:4Gi")
    (folder / CPU / "online").unlink()
    assert read(folder)[0].cpus == mask_of([0, 1])


def test_isolated_cpus_are_reported(tmp_path: Path) -> None:
    folder = tree(tmp_path, "sockets:1 numa:1 cores:4 memory:4Gi")
    (folder / CPU / "isolated").write_text("2-3\n")
    assert read(folder)[0].isolated == mask_of([2, 3])


def test_a_node_without_cpus_and_one_without_memory_are_kept(tmp_path: Path) -> None:
    folder = tree(tmp_path, "sockets:1 numa:2 cores:2 memory:4Gi")
    for cpu in (2, 3):
        (folder / NODE / f"node1/cpu{cpu}").unlink()
    (folder / NODE / "node1/cpulist").write_text("\n")
    (folder / CPU / "online").write_text("0-1\n")
    (folder / NODE / "node0/meminfo").unlink()
    machine, problems = read(folder)
    assert machine.memory_only == mask_of([1])
    assert [node.memory for node in machine.numa_nodes] == [0, 4 << 30]
    assert problems == []


def test_node_ids_may_have_holes(tmp_path: Path) -> None:
    folder = tree(tmp_path, "sockets:1 numa:2 cores:2 memory:4Gi")
    (folder / NODE / "node1").rename(folder / NODE / "node250")
    machine, problems = read(folder)
    assert [node.id for node in machine.numa_nodes] == [0, 250]
    assert machine.cpus_of_numa_node[250] == mask_of([2, 3])
    assert problems == []


def test_without_numa_in_the_kernel_each_socket_stands_for_a_node_without_memory(tmp_path: Path) -> None:
    folder = tree(tmp_path, "sockets:2 numa:1 cores:2 memory:4Gi")
    (folder / NODE).rename(folder / "elsewhere")
    root = Root(folder)
    machine = read_machine(root)
    assert [(node.id, node.memory) for node in machine.numa_nodes] == [(0, 0), (1, 0)]
    assert machine.cpus_of_numa_node == {0: mask_of([0, 1]), 1: mask_of([2, 3])}
    assert any("has no nodes" in remark for remark in root.remarks)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        (f"{CPU}/cpu1/topology/core_id", None, "cpu1/topology/core_id is missing"),
        (f"{CPU}/cpu1/topology/core_id", "?", "cpu1/topology/core_id holds '?'"),
        (f"{NODE}/node0/meminfo", "nothing", "node0/meminfo has no MemTotal"),
        (f"{NODE}/node0/distance", "10 x", "node0/distance holds '10 x'"),
        (f"{NODE}/node0/distance", "10", "node0/distance does not have 2 entries"),
        (f"{NODE}/node0/hugepages/hugepages-2048kB/nr_hugepages", "many", "hugepages-2048kB"),
        (f"{NODE}/node0/meminfo", "x" * 100_000, "node0/meminfo is longer than"),
        (f"{CPU}/online", "0-", "cpu/online is not a list of ids"),
        (f"{CPU}/online", "0-3,9", "cpu/online lists CPUs 9"),
    ],
)
def test_a_file_that_is_missing_or_wrong_is_named_and_the_rest_is_read(
    tmp_path: Path, file: str, content: str | None, words: str
) -> None:
    folder = tree(tmp_path, "sockets:1 numa:2 cores:2 memory:4Gi hugepages-2Mi:8")
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    machine, problems = read(folder)
    assert any(words in problem for problem in problems), problems
    assert machine.cpus == mask_of(range(4))
    assert [node.id for node in machine.numa_nodes] == [0, 1]


def test_a_pipe_instead_of_a_file_blocks_nobody(tmp_path: Path) -> None:
    folder = tree(tmp_path, "sockets:1 numa:1 cores:1 memory:4Gi")
    (folder / NODE / "node0/meminfo").unlink()
    os.mkfifo(folder / NODE / "node0/meminfo")
    _, problems = read(folder)
    assert any("meminfo is not a file" in problem for problem in problems)


def test_links_never_lead_out_of_the_root(tmp_path: Path) -> None:
    folder = tree(tmp_path, "sockets:1 numa:1 cores:1 memory:4Gi")
    (tmp_path / "secret").write_text("MemTotal: 1 kB")
    meminfo = folder / NODE / "node0/meminfo"
    meminfo.unlink()
    for target in (str(tmp_path / "secret"), "../" * 30 + str(tmp_path / "secret").lstrip("/")):
        meminfo.symlink_to(target)
        assert read(folder)[0].numa_nodes[0].memory == 0
        meminfo.unlink()


def test_a_loop_of_links_is_an_unreadable_file(tmp_path: Path) -> None:
    folder = tree(tmp_path, "sockets:1 numa:1 cores:1 memory:4Gi")
    meminfo = folder / NODE / "node0/meminfo"
    meminfo.unlink()
    meminfo.symlink_to("meminfo")
    assert read(folder)[0].numa_nodes[0].memory == 0


def test_an_empty_folder_is_no_machine_and_says_so(tmp_path: Path) -> None:
    machine, problems = read(tmp_path)
    assert machine.cores == ()
    assert any("is this folder a host's root?" in problem for problem in problems)


def test_this_machine_is_read_without_a_problem() -> None:
    machine, problems = read(Path("/"))
    assert machine.cpus
    assert problems == []


def test_huge_pages_that_the_machine_and_its_numa_nodes_count_differently_are_remarked_on(tmp_path: Path) -> None:
    folder = tree(tmp_path, "sockets:1 numa:2 cores:2 memory:4Gi hugepages-2Mi:8")
    count = folder / "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    for words, named in (("16", False), ("24", True), ("many", False)):
        count.write_text(f"{words}\n")
        root = Root(folder)
        read_machine(root)
        difference = "says 24, the NUMA nodes 16: the kubelet offers the former, pins the latter"
        assert any(difference in remark for remark in root.remarks) == named
        assert root.problems == []


def test_what_several_nodes_lack_is_one_remark(tmp_path: Path) -> None:
    folder = tree(tmp_path, "sockets:2 numa:4 cores:2 memory:4Gi")
    for node in (1, 2, 3, 6):
        (folder / NODE / f"node{node}/distance").unlink()
        (folder / NODE / f"node{node}/meminfo").unlink()
        for link in (folder / NODE / f"node{node}").glob("cpu[0-9]*"):
            link.unlink()
    root = Root(folder)
    assert read_machine(root).cpus == mask_of(range(16))
    assert [remark for remark in root.remarks if "has nodes" in remark] == [
        f"/{NODE} has nodes 1-3,6 without {part}"
        for part in (
            "meminfo: the kubelet counts them as nodes without memory",
            "distance: with prefer-closest-numa-nodes the kubelet would not start",
            "cpuN links: their CPUs are taken from cpulist or cpumap",
        )
    ]
