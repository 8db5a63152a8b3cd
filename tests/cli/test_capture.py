import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from topomend.cli.main import main
from topomend.model.shape import parse_shape
from topomend.sandbox.machine_files import write_machine


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_machine(tmp_path / "host", parse_shape("sockets:2 numa:1 cores:2 memory:4Gi device:v.com/gpu@1=1").machine())
    return tmp_path / "host"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml"])
def test_what_is_packed_is_printed_as_the_host_is(root: Path, tmp_path: Path, form: str) -> None:
    packed = run("capture", tmp_path / "gpu-01.tar.gz", "--root", root)
    assert packed.exit_code == 0
    assert "topomend discover --root gpu-01" in packed.stdout
    with tarfile.open(tmp_path / "gpu-01.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    first, second = (
        run("discover", "--root", host, "--node-name", "n", "-o", form) for host in (root, tmp_path / "gpu-01")
    )
    assert first.exit_code == 0
    assert second.stdout == first.stdout


@pytest.mark.parametrize("name", ["machine.zip", ".tar.gz", "machine"])
def test_another_kind_of_archive_is_a_usage_error(root: Path, tmp_path: Path, name: str) -> None:
    printed = run("capture", tmp_path / name, "--root", root)
    assert printed.exit_code == 2
    assert "must end in .tar.gz" in printed.stderr


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
