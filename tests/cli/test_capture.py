import json
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.builders import pod_manifest

from topomend.cli.main import main
from topomend.model.shapes.shape import parse_shape
from topomend.sandbox.node.machine_files import write_machine


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_machine(tmp_path / "host", parse_shape("sockets:2 numa:1 cores:2 memory:4Gi device:v.com/gpu@1=1").machine())
    return tmp_path / "host"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml"])
def test_what_is_packed_is_printed_as_the_host_is(
    root: Path, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topomend.cli.discover.timestamp", lambda: "2026-01-02T03:04:05Z")
    packed = run("capture", tmp_path / "gpu-01.tar.gz", "--root", root)
    assert packed.exit_code == 0
    assert f"topomend discover --root {tmp_path / 'gpu-01.tar.gz'}" in packed.stdout
    with tarfile.open(tmp_path / "gpu-01.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    first, second, third = (
        run("discover", "--root", host, "--node-name", "n", "-o", form)
        for host in (root, tmp_path / "gpu-01", tmp_path / "gpu-01.tar.gz")
    )
    assert first.exit_code == 0
    assert first.stdout == second.stdout == third.stdout


def test_a_machine_from_an_archive_has_its_name_and_is_asked_as_one_of_a_shape(root: Path, tmp_path: Path) -> None:
    archive, pods = tmp_path / "gpu-01.tar.gz", tmp_path / "pod.json"
    run("capture", archive, "--root", root)
    assert run("discover", "--root", archive, "-o", "name").stdout == "nodetopology.topomend.io/gpu-01\n"
    pods.write_text(json.dumps(pod_manifest("p", "cpu=2 memory=1Mi")))
    flags = ("--cpu-manager-policy", "static", "--pods", pods, "-o", "json")
    of_shape, *recorded = (
        run("simulate", "--node", node, *flags) for node in ("sockets:2 numa:1 cores:2 memory:4Gi", archive, root)
    )
    assert json.loads(of_shape.stdout)[0]["admitted"]
    assert {(each.exit_code, each.stdout, each.stderr) for each in recorded} == {(0, of_shape.stdout, of_shape.stderr)}


@pytest.mark.parametrize("content", [b"no archive", b"\x1f\x8bnor this"])
@pytest.mark.parametrize(("verb", "flag"), [("discover", "--root"), ("simulate", "--node")])
def test_another_file_is_none_and_the_error_says_so(verb: str, flag: str, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "machine.tar.gz"
    file.write_bytes(content)
    pods = ("--pods", file) if verb == "simulate" else ()
    printed = run(verb, flag, file, *pods)
    assert printed.exit_code == 2
    assert printed.stderr.startswith(f"Error: {flag} {file}")
    if verb == "discover" or content.startswith(b"\x1f"):
        assert "archive of topomend capture: it cannot be unpacked" in printed.stderr


@pytest.mark.parametrize("name", ["machine.zip", ".tar.gz", "machine"])
def test_another_kind_of_archive_is_a_usage_error(root: Path, tmp_path: Path, name: str) -> None:
    printed = run("capture", tmp_path / name, "--root", root)
    assert printed.exit_code == 2
    assert "must end in .tar.gz" in printed.stderr


def test_a_file_that_exists_is_not_overwritten(root: Path, tmp_path: Path) -> None:
    archive = tmp_path / "machine.tar.gz"
    archive.write_text("of last week")
    printed = run("capture", archive, "--root", root)
    assert printed.exit_code == 2
    assert "exists already: name another file" in printed.stderr
    assert archive.read_text() == "of last week"


def test_a_folder_that_is_no_root_leaves_no_archive(tmp_path: Path) -> None:
    printed = run("capture", tmp_path / "machine.tar.gz", "--root", tmp_path)
    assert printed.exit_code == 3
    assert "name a folder that contains sys/ and proc/" in printed.stderr
    assert not (tmp_path / "machine.tar.gz").exists()


def test_a_file_that_cannot_be_written_is_told_in_one_line(root: Path, tmp_path: Path) -> None:
    printed = run("capture", tmp_path / "nowhere" / "machine.tar.gz", "--root", root)
    assert printed.exit_code == 3
    assert len(printed.stderr.strip().splitlines()) == 1
    assert "cannot be written" in printed.stderr
