"""Unpacking a module of standalone Pythons: files, links and permissions as its list says, and nothing outside."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from deploy.release.kubectl_plugin.standalone import GO_DIRECTORY, GO_LINK, PLATFORMS, Pythons, Unsafe, unpack


def module(folder: Path, *files: dict[str, Any], **content: bytes) -> Path:
    folder.mkdir(parents=True)
    (folder / "files.json").write_text(json.dumps({"files": files}))
    for name, data in content.items():
        (folder / name.replace("_", ".")).write_bytes(data)
    return folder


def test_files_links_and_permissions_are_as_listed(tmp_path: Path) -> None:
    source = module(
        tmp_path / "source",
        {"name": "bin", "size": 0, "perm": GO_DIRECTORY | 0o755},
        {"name": "bin/python3", "size": 6, "perm": GO_LINK, "symlink": "../program"},
        {"name": "program", "size": 4, "perm": 0o755, "compressed": True},
        {"name": "plain", "size": 5, "perm": 0o644},
        program_gz=gzip.compress(b"code"),
        plain=b"plain",
    )
    unpack(source, tmp_path / "target")
    assert (tmp_path / "target" / "bin" / "python3").read_bytes() == b"code"
    assert (tmp_path / "target" / "program").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "target" / "plain").read_bytes() == b"plain"


@pytest.mark.parametrize(
    "file",
    [
        {"name": "../outside", "size": 1, "perm": 0o644},
        {"name": "/outside", "size": 1, "perm": 0o644},
        {"name": "link", "size": 1, "perm": GO_LINK, "symlink": "../outside"},
        {"name": "link", "size": 1, "perm": GO_LINK, "symlink": "/etc/passwd"},
    ],
    ids=["above", "absolute", "a link above", "an absolute link"],
)
def test_a_name_outside_the_folder_is_refused(tmp_path: Path, file: dict[str, Any]) -> None:
    with pytest.raises(Unsafe, match="outside the folder"):
        unpack(module(tmp_path / "source", file), tmp_path / "target")


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsafe, match="a has 2 bytes, not 3"):
        unpack(module(tmp_path / "source", {"name": "a", "size": 3, "perm": 0o644}, a=b"ab"), tmp_path / "target")


def test_what_the_plugin_does_without_is_left_out(tmp_path: Path) -> None:
    names = ["bin/pip3", "bin/python3.14", "lib/libpython3.14.so", "lib/libpython3.14.dylib", "lib/python3.14/os.py"]
    files = [{"name": name, "size": 0, "perm": 0o644} for name in names]
    source = module(tmp_path / "linux-amd64", *files)
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(b"")
    Pythons(tmp_path, "3.14.6", "20260610").unpack(PLATFORMS[0], tmp_path / "target")
    left = sorted(str(path.relative_to(tmp_path / "target")) for path in (tmp_path / "target").rglob("*.*"))
    assert left == ["bin/python3.14", "lib/libpython3.14.dylib", "lib/python3.14", "lib/python3.14/os.py"]
