import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from topomend.cli.main import main
from topomend.model.shape import parse_shape
from topomend.sandbox.machine_files import write_machine
from topomend.wire.node_topology import read_node_topology

SHAPE = "sockets:2 numa:1 cores:2 threads:2 memory:4Gi"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_machine(tmp_path / "Recorded Host", parse_shape(SHAPE).machine())
    return tmp_path / "Recorded Host"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["discover", *map(str, arguments)])


def test_a_recorded_tree_is_printed_as_a_node_topology(root: Path) -> None:
    printed = run("--root", root, "-o", "json")
    assert printed.exit_code == 0
    state = read_node_topology(json.loads(printed.stdout))
    assert state.name == "recorded-host"
    assert state.machine.numa_nodes == parse_shape(SHAPE).machine().numa_nodes
    assert printed.stderr == ""


def test_yaml_and_json_say_the_same(root: Path) -> None:
    documents = [run("--root", root, "--node-name", "n1", "-o", form).stdout for form in ("yaml", "json")]
    assert yaml.safe_load(documents[0]) == json.loads(documents[1])


def test_the_table_shows_each_numa_node_and_what_is_missing(root: Path) -> None:
    lines = run("--root", root).stdout.splitlines()
    assert lines[0].split() == ["NUMA", "CPUS", "MEMORY", "HUGEPAGES", "DEVICES", "PCI"]
    assert lines[1].split() == ["0", "0-1,4-5", "4Gi", "-", "0", "0"]
    assert any(line.startswith("KubeletConfigRead   False    NotGiven") for line in lines)


def test_where_the_kubelet_counts_otherwise_than_linux_the_table_says_so(root: Path) -> None:
    """A cache that serves a whole NUMA node is none to the kubelet; and it takes equal ids of a socket for one core."""
    lines = run("--root", root).stdout.splitlines()
    heading = next(number for number, line in enumerate(lines) if line.startswith("SOCKETS"))
    assert lines[heading + 1].split()[:7] == ["2", "2", "-", "2", "(kubelet:", "0)", "4"]
    for cpu in (1, 5):
        (root / f"sys/devices/system/cpu/cpu{cpu}/topology/core_id").write_text("0\n")
    lines = run("--root", root).stdout.splitlines()
    assert "4 (kubelet: 3)" in lines[heading + 1]
    assert any("has cores that the kubelet groups otherwise, CPUs 0,4 among them" in line for line in lines)


def test_the_kubelets_parts_are_read_where_they_are_named(root: Path, tmp_path: Path) -> None:
    config = tmp_path / "kubelet.yaml"
    config.write_text(
        "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\ntopologyManagerPolicy: restricted\n"
    )
    printed = run(
        "--root", root, "-o", "json", "--kubelet-config", config, "--pod-resources", tmp_path / "no.sock",
        "--kubelet-state", tmp_path, "--kubelet-version", "v1.35.2",
    )  # fmt: skip
    status = json.loads(printed.stdout)["status"]
    assert status["kubelet"]["topologyManagerPolicy"] == "restricted"
    assert status["kubelet"]["version"] == "v1.35.2"
    conditions = {condition["type"]: condition for condition in status["conditions"]}
    assert conditions["KubeletConfigRead"]["status"] == "True"
    assert conditions["AllocationsRead"]["reason"] == "PodResourcesUnavailable"
    assert "no.sock is not there" in conditions["Ready"]["message"]


def test_a_folder_that_is_no_root_is_told_in_one_line(tmp_path: Path) -> None:
    printed = run("--root", tmp_path)
    assert printed.exit_code == 3
    assert printed.stdout == ""
    assert len(printed.stderr.strip().splitlines()) == 1
    assert "name a folder that contains sys/ and proc/" in printed.stderr


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    assert run("--root", tmp_path / "none").exit_code == 2


def test_this_host_is_discovered_without_any_flag() -> None:
    printed = run("-o", "json")
    assert printed.exit_code == 0
    assert read_node_topology(json.loads(printed.stdout)).machine.cpus
