import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.closed_folder import closed
from tests.discover.machines import Lister, container, cpu_state, pod, serving, write_state

from topomend.cli.main import main
from topomend.model.bitmask import format_id_list, mask_of, members, parse_id_list
from topomend.model.machine import Core, Machine, NUMANode
from topomend.model.shapes.shape import parse_shape
from topomend.sandbox.node.machine_files import write_machine
from topomend.wire.published.node_topology import read_node_topology

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


def test_yaml_and_json_say_the_same(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topomend.cli.discover.timestamp", lambda: "2026-01-02T03:04:05Z")
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


def test_a_machine_that_could_not_be_read_completely_is_printed_and_exits_with_3(root: Path) -> None:
    (root / "sys/devices/system/node/node0/meminfo").write_text("junk\n")
    for form in ("table", "json", "name"):
        printed = run("--root", root, "-o", form)
        assert printed.exit_code == 3
        assert printed.stdout


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    assert run("--root", tmp_path / "none").exit_code == 2


def test_this_host_is_discovered_without_any_flag() -> None:
    printed = run("-o", "json")
    assert printed.exit_code == 0
    assert read_node_topology(json.loads(printed.stdout)).machine.cpus


def conditions(*arguments: object) -> dict[str, tuple[str, str, str]]:
    printed = run(*arguments, "-o", "json")
    assert printed.exit_code == 0, printed.stderr
    return {
        each["type"]: (each["status"], each["reason"], each["message"])
        for each in json.loads(printed.stdout)["status"]["conditions"]
    }


def test_a_kubelets_part_in_a_folder_that_may_not_be_entered_is_a_condition(root: Path, tmp_path: Path) -> None:
    with closed(tmp_path / "closed") as folder:
        found = conditions(
            "--root", root, "--pod-resources", folder / "kubelet.sock", "--kubelet-config-dir", folder / "d"
        )
    assert found["AllocationsRead"][:2] == ("False", "PodResourcesUnavailable")
    assert found["KubeletConfigRead"][:2] == ("False", "Unreadable")
    assert "Permission denied" in found["AllocationsRead"][2]
    assert f"{folder}/d cannot be read (Permission denied)" in found["KubeletConfigRead"][2]


def kubelet(folder: Path, configuration: str) -> list[object]:
    """The flags of a kubelet with this configuration, whose socket and state are in ``folder``."""
    kind = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"
    (folder / "kubelet.yaml").write_text(f"{kind}{configuration}")
    flags = ["--root", folder / "root", "--kubelet-config", folder / "kubelet.yaml", "--kubelet-version", "v1.37.0"]
    return [*flags, "--pod-resources", folder / "kubelet.sock", "--kubelet-state", folder / "state"]


HYBRID = Machine(
    (NUMANode(0, 32 << 30, distances=(10,)),),
    (*(Core(0b11 << 2 * core, 0, 0) for core in range(8)), *(Core(1 << cpu, 0, 0) for cpu in range(16, 28))),
)
"""Eight cores of two threads and twelve of one: the kubelet counts one CPU a core."""

ONE_OFFLINE = Machine(
    (NUMANode(0, 32 << 30, distances=(10, 21)), NUMANode(1, 32 << 30, distances=(21, 10))),
    tuple(Core(1 << core if core == 7 else 1 << core | 1 << core + 8, core // 4, core // 4) for core in range(8)),
)
"""CPU 15 is offline, so the kubelet counts one CPU a core too."""


@pytest.mark.parametrize(
    ("machine", "configuration", "reserved", "held"),
    [
        (HYBRID, "cpuManagerPolicy: static\nreservedSystemCPUs: '0'\n", "0", [0, 1]),
        (ONE_OFFLINE, "cpuManagerPolicy: static\nkubeReserved: {cpu: '2'}\n", "4,7", [4, 12]),
    ],
    ids=["hybrid cores", "one thread offline"],
)
def test_a_reserved_cpu_in_a_container_is_a_remark_where_that_kubelet_allocates_it(
    machine: Machine, configuration: str, reserved: str, held: list[int], tmp_path: Path
) -> None:
    write_machine(tmp_path / "root", machine)
    lister = Lister()
    lister.allocatable.cpu_ids.extend(members(machine.cpus & ~parse_id_list(reserved)))
    lister.listed.pod_resources.append(pod("web", container("main", held)))
    pool = format_id_list(machine.cpus & ~mask_of(held))
    entries = {"u1": {"main": format_id_list(mask_of(held))}}
    write_state(tmp_path / "state", "cpu_manager_state", {**cpu_state(entries, pool), "checksum": 0})
    with serving(tmp_path / "kubelet.sock", lister):
        found = conditions(*kubelet(tmp_path, configuration))
    status, reason, message = found["Ready"]
    assert (status, found["AllocationsRead"][0], reason) == ("True", "True", "WouldNotStartAgain")
    assert f"pod default/web holds CPUs {held[0]}, which are reserved; on this machine its kubelet counts" in message
    assert f'not all reserved cpus: "{reserved}" are present in defaultCpuSet' in message


def test_a_state_of_another_policy_says_which_file_to_delete_after_a_drain(tmp_path: Path) -> None:
    write_machine(tmp_path / "root", parse_shape("cores:4 memory:8Gi").machine())
    lister = Lister()
    lister.allocatable.cpu_ids.extend([1, 2, 3])
    state = {"policyName": "none", "defaultCpuSet": "", "checksum": 1353318690}
    write_state(tmp_path / "state", "cpu_manager_state", state)
    with serving(tmp_path / "kubelet.sock", lister):
        found = conditions(*kubelet(tmp_path, "cpuManagerPolicy: static\nreservedSystemCPUs: '0'\n"))
    status, reason, message = found["AllocationsRead"]
    assert (status, reason) == ("True", "WouldNotStartAgain")
    assert 'configured policy "static" differs from state checkpoint policy "none"' in message
    advice = f"drain the node, stop the kubelet, delete {tmp_path / 'state' / 'cpu_manager_state'}, then start it"
    assert advice in message
    assert advice in found["Ready"][2]


def test_a_kubelet_that_is_down_is_told_what_keeps_it_from_starting(tmp_path: Path) -> None:
    write_machine(tmp_path / "root", parse_shape("cores:4 memory:8Gi").machine())
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "cpu_manager_state").write_text('{"policyName":"sta')
    found = conditions(*kubelet(tmp_path, "cpuManagerPolicy: static\nreservedSystemCPUs: '0'\n"))
    status, reason, message = found["AllocationsRead"]
    assert (status, reason) == ("False", "PodResourcesUnavailable")
    assert "after a restart the kubelet would not start: start cpu manager error: could not restore state" in message
    assert "unexpected end of JSON input" in message


@pytest.mark.parametrize("form", ["table", "wide"])
def test_what_a_kubelets_files_say_reaches_no_terminal_raw(root: Path, tmp_path: Path, form: str) -> None:
    folder = tmp_path / "conf\x1b[2J\u202e"
    folder.mkdir()
    config = folder / "kubelet.yaml"
    config.write_text(
        "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"
        'topologyManagerPolicy: "evil\\e]0;pwned\\a\\u200b\\nforged: line"\n'
    )
    for file in (config, folder / "none.yaml"):
        printed = run("--root", root, "-o", form, "--kubelet-config", file)
        text = printed.stdout + printed.stderr
        assert r"\x1b" in text
        assert [line for line in text.splitlines() if not line.isprintable()] == []
        assert not any(line.startswith("forged") for line in text.splitlines())
