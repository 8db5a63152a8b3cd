"""A shape, a name and a file are told from each other; what is none of them is left to others."""

from pathlib import Path

import pytest
from tests.model.shapes.test_pasted_machine import LSCPU, NUMACTL

from topomend.cli.input.made_machine import any_machine, made_machine, nearest_machine
from topomend.cli.output.failures import BadInput
from topomend.discover.capture import capture
from topomend.model.shapes.shape import parse_shape
from topomend.sandbox.node.machine_files import write_machine


@pytest.mark.parametrize("source", ["numa:2 cores:1", "p5.48xlarge", "P5.48xlarge dra:a.com/b@0=1"])
def test_shapes_and_names_are_machines(source: str) -> None:
    made = made_machine(source, "--machine")
    assert made is not None
    assert len(made.machine.numa_nodes) == 2


def test_claimable_devices_of_a_shape_are_kept_apart() -> None:
    made = made_machine("cores:1 dra:a.com/b@0=1 device:a.com/c@0=1", "--machine")
    assert made is not None
    assert [len(made.devices), len(made.claimable)] == [1, 1]


def test_a_file_goes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p5.48xlarge").write_text(LSCPU + NUMACTL)
    monkeypatch.chdir(tmp_path)
    made = made_machine("p5.48xlarge", "--machine")
    assert made is not None
    assert len(made.machine.numa_nodes) == 3


@pytest.mark.parametrize("source", ["-", "", "no-such-file.yaml", "a file", "."])
def test_what_is_no_machine_is_left_to_others(source: str) -> None:
    assert made_machine(source, "--machine") is None


@pytest.mark.parametrize("content", [b"kind: NodeTopology\n", b"\xff\xfe", b""])
def test_a_file_of_something_else_is_left_to_others(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    assert made_machine(str(tmp_path / "file"), "--machine") is None


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_file_of_an_editor_of_windows_is_read(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes((LSCPU + NUMACTL).replace("\n", "\r\n").encode(encoding))
    made = made_machine(str(tmp_path / "file"), "--machine")
    assert made is not None
    assert len(made.machine.numa_nodes) == 3


def test_a_wrong_paste_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(LSCPU + NUMACTL + "\x1b[31mred\n")
    with pytest.raises(BadInput, match=r"--machine .*file: line 22: '\\x1b\[31mred' is of neither"):
        made_machine(str(tmp_path / "file"), "--machine")


def test_a_wrong_shape_is_named_with_what_would_be_right() -> None:
    with pytest.raises(BadInput, match=r"--machine 'p5\.48xlarge numas:2' .*a shape has sockets, numa"):
        made_machine("p5.48xlarge numas:2", "--machine")
    with pytest.raises(BadInput, match=r"did you mean p5\.48xlarge"):
        made_machine("p5.48xlrge numa:2", "--machine")


def test_the_nearest_name_is_found() -> None:
    assert nearest_machine("dgxh100") == ": did you mean DGX-H100?"
    assert nearest_machine("pods.yaml") == ""


def test_a_recorded_machine_is_read_from_its_folder_and_from_its_archive(tmp_path: Path) -> None:
    machine = parse_shape("sockets:2 cores:2 threads:2 memory:4Gi").machine()
    write_machine(tmp_path / "host", machine)
    (tmp_path / "host.tar.gz").write_bytes(capture(tmp_path / "host", "host").archive)
    for source in ("host", "host.tar.gz"):
        assert any_machine(str(tmp_path / source), "--machine").machine.numa_nodes == machine.numa_nodes
    assert any_machine("sockets:2 cores:2 threads:2 memory:4Gi", "--machine").machine == machine


def test_what_is_no_machine_at_all_is_named_with_all_that_may_be_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--machine 'dgxh100' is neither a shape .*: did you mean DGX-H100\?"):
        any_machine("dgxh100", "--machine")
    (tmp_path / "pods.yaml").write_text("kind: Pod\n")
    with pytest.raises(BadInput, match=r"pods\.yaml: neither lscpu -e .* nor an archive of topomend capture"):
        any_machine(str(tmp_path / "pods.yaml"), "--machine")
    (tmp_path / "empty" / "sys").mkdir(parents=True)
    with pytest.raises(BadInput, match=r"--machine .*empty: "):
        any_machine(str(tmp_path / "empty"), "--machine")
