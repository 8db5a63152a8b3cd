"""Pythons that need nothing but a C library, for other machines than this one.

They are those of the project python-build-standalone, which come from no package index; the Go module
``github.com/kluctl/go-embed-python`` holds them for Linux and macOS, and Go checks the module by its sum. Owns that
module's layout: ``files.json`` lists all files of a platform, and large ones are compressed by gzip.
"""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploy.release.programs import PROGRAMS
from tools.go_programs import go

MODULE = "github.com/kluctl/go-embed-python"

GO_DIRECTORY, GO_LINK = 1 << 31, 1 << 27
"""Bits of Go's file modes (io/fs.ModeDir, ModeSymlink)."""

UNUSED = (
    "bin/idle*", "bin/pip*", "bin/pydoc*", "bin/*-config",
    "lib/itcl*", "lib/libtcl*", "lib/thread*", "lib/libpython*.so*", "lib/*/config-*", "lib/*/idlelib", "lib/*/tkinter",
    "lib/*/turtle.py", "lib/*/unittest", "lib/*/venv", "lib/*/ensurepip",
    "lib/*/lib-dynload/_test*", "lib/*/lib-dynload/_ctypes_test*", "lib/*/lib-dynload/_tkinter*",
    "lib/*/lib-dynload/_dbm*",
)  # fmt: skip
"""What a program without windows, tests and packages to install does without; and Berkeley DB, with its licence."""


@dataclass(frozen=True, slots=True)
class Platform:
    """A kind of machine, by Go's names, which krew uses too, and by uv's name for its wheels."""

    os: str
    arch: str
    wheels: str

    def __str__(self) -> str:
        return f"{self.os}-{self.arch}"


PLATFORMS = (
    Platform("linux", "amd64", "x86_64-unknown-linux-gnu"),
    Platform("linux", "arm64", "aarch64-unknown-linux-gnu"),
    Platform("darwin", "amd64", "x86_64-apple-darwin"),
    Platform("darwin", "arm64", "aarch64-apple-darwin"),
)


class Unsafe(Exception):
    """A module's list of files names one that is outside its folder, or that differs from what the list says."""


@dataclass(frozen=True, slots=True)
class Pythons:
    """The Pythons of a module: where they are, their version, and the release of python-build-standalone."""

    folder: Path
    version: str
    release: str

    @property
    def minor(self) -> str:
        """Such as ``3.14``."""
        return ".".join(self.version.split(".")[:2])

    @classmethod
    def download(cls) -> "Pythons":
        """Those that ``programs/go.mod`` pins. Raises NotBuilt, SandboxUnavailable."""
        readonly = {"GOFLAGS": "-mod=readonly"}
        found = json.loads(go(PROGRAMS.module, readonly, "mod", "download", "-json", MODULE))
        folder = Path(found["Dir"]) / "python" / "internal" / "data"
        named = dict(line.split("=", 1) for line in (folder / "PYTHON_VERSION").read_text().split())
        return cls(folder, named["PYTHON_VERSION"].strip('"'), named["PYTHON_STANDALONE_VERSION"].strip('"'))

    def unpack(self, platform: Platform, target: Path) -> None:
        """Write the Python of a platform, without what is UNUSED, to the folder ``target``. Raises Unsafe."""
        unpack(self.folder / str(platform), target)
        for pattern in UNUSED:
            for path in sorted(target.glob(pattern)):
                _remove(path)


def unpack(source: Path, target: Path) -> None:
    """Write the files that ``files.json`` in ``source`` lists to ``target``. Raises Unsafe."""
    for file in json.loads((source / "files.json").read_text())["files"]:
        _within(file["name"])
        path = target / file["name"]
        path.parent.mkdir(parents=True, exist_ok=True)
        if file["perm"] & GO_DIRECTORY:
            path.mkdir(exist_ok=True)
        elif file["perm"] & GO_LINK:
            _within(os.path.normpath(Path(file["name"]).parent / file["symlink"]))
            path.symlink_to(file["symlink"])
        else:
            path.write_bytes(_content(source, file["name"], file["size"], compressed=file.get("compressed", False)))
            path.chmod(file["perm"] & 0o777)


def _content(source: Path, name: str, size: int, *, compressed: bool) -> bytes:
    read: Callable[[bytes], bytes] = gzip.decompress if compressed else bytes
    content = read((source / (f"{name}.gz" if compressed else name)).read_bytes())
    if len(content) != size:
        raise Unsafe(
            f"{name} has {len(content)} bytes, not {size}: remove it from Go's module cache (go clean -modcache)"
        )
    return content


def _within(name: str) -> None:
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise Unsafe(f"{name} is outside the folder it belongs to")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
