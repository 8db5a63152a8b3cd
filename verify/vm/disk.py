"""The disk of the virtual machine: a small Linux that runs a kubelet and containers, and this Python as its init.

Owns what lies on it and where. Programs of this machine lie at the paths that they have here, so none must be told
where it is; the agent comes in its container image and is nowhere else.
"""

import re
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools.commands import run
from verify.vm.parts import Parts

SIZE = "6G"
"""The size of the file system. The file is sparse."""

BUSYBOX_COMMANDS = ("cat", "cp", "grep", "ip", "kill", "mkdir", "mount", "sh", "sleep", "tail", "umount")

FIRST_PROCESS = f"{sys.executable} -I /guest.py"

UNWANTED = shutil.ignore_patterns(
    "test", "tests", "site-packages", "ensurepip", "idlelib", "tkinter", "turtledemo", "config-3*", "lib2to3", "*.a"
)


def write_disk(place: Path, staging: Path, parts: Parts, files: Mapping[str, str | Path]) -> None:
    """Write the disk's ext4 file system with ``files`` (contents, or paths of what to copy) on it.

    ``staging`` is an empty folder that may hold all of it.
    """
    _stage_python(staging)
    here = Path(__file__)
    for name in ("guest.py", "relay.py"):
        _copy_as(staging, Path("/", name), here.with_name(name))
    _copy_as(staging, Path("/bin/busybox"), parts.busybox)
    for name in BUSYBOX_COMMANDS:
        (staging / "bin" / name).symlink_to("busybox")
    for path, source in parts.runtime.items():
        _copy_as(staging, path, source)
    for name, content in files.items():
        if isinstance(content, Path):
            _copy_as(staging, Path(name), content)
        else:
            _write(staging, Path(name), content)
    for folder in ("proc", "sys", "dev", "run", "tmp", "root", "var/log"):
        (staging / folder).mkdir(parents=True, exist_ok=True)
    options = ["-F", "-q", "-O", "^has_journal", "-E", "root_owner=0:0,lazy_itable_init=1"]
    run("mkfs.ext4", *options, "-d", str(staging), str(place), SIZE)


def _stage_python(staging: Path) -> None:
    """Copy this Python interpreter with its shared libraries and its standard library."""
    interpreter, standard = Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))
    ldconfig = Path(shutil.which("ldconfig", path="/sbin:/usr/sbin") or "/sbin/ldconfig")
    for source in (interpreter, standard, ldconfig):
        _copy_as(staging, source, source)
    if Path(sys.executable).is_symlink():  # that of a virtual environment, which a file beside it describes
        _copy_as(staging, Path(sys.prefix, "pyvenv.cfg"), Path(sys.prefix, "pyvenv.cfg"))
        link = _inside(staging, Path(sys.executable))
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(interpreter)
    for library in _needed([interpreter, *staging.rglob("*.so")]):
        _copy_as(staging, library, library.resolve())


def _needed(binaries: Iterable[Path]) -> set[Path]:
    """The shared libraries of ``binaries``, by the paths at which the loader looks them up here."""
    text = "".join(run("ldd", str(binary)) for binary in binaries)
    return {Path(name) for name in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", text, re.MULTILINE)}


def _copy_as(staging: Path, name: Path, source: Path) -> None:
    """Copy a file or folder of this machine to ``name`` on the disk."""
    target = _inside(staging, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=UNWANTED, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


def _write(staging: Path, name: Path, text: str) -> None:
    target = _inside(staging, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def _inside(staging: Path, path: Path) -> Path:
    return staging / path.relative_to(path.anchor)
