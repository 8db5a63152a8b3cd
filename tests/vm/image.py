"""What the virtual machine boots: Debian's kernel, and this Python with the agent in an initramfs.

Owns where both come from. Packages are fetched once through apt into the user's cache folder, checked by apt itself;
nothing is installed. Programs lie in the initramfs at the paths that they have here, so none must be told where it is.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import topomend
from topomend.sandbox.layout import cache_folder

KERNEL_METAPACKAGE = "linux-image-cloud-amd64"
_SOURCES = "run apt-get update, with Debian's sources"

MODULES = ("virtio_pci", "virtio_net")
"""The kernel modules of the network card. All else is built into the kernel, or needs no driver."""

COMMANDS = ("topomend.cli.main", "topomend.cli.agent", "topomend.cli.discover", "prometheus_client")
"""What is imported within the machine."""

BUSYBOX_COMMANDS = ("cp", "grep", "insmod", "ip", "mkdir", "mount", "sh", "sleep", "tail")

LIBRARIES = ("libudev.so.1",)
"""Libraries that are looked for by name when the agent runs."""

UNWANTED = shutil.ignore_patterns(
    "test", "tests", "site-packages", "ensurepip", "idlelib", "tkinter", "turtledemo", "config-3*", "lib2to3", "*.a"
)


class Unavailable(Exception):
    """This machine lacks what the virtual machine is made with; the text says what to install."""


@dataclass(frozen=True)
class Parts:
    """What comes from Debian: a kernel and its modules by name, a shell without libraries, udev's unpacked package."""

    kernel: Path
    modules: Mapping[str, Path]
    busybox: Path
    udev: Path


def fetch_parts() -> Parts:
    """Fetch what is not there yet. Raises Unavailable."""
    depends = _run("apt-cache", "depends", KERNEL_METAPACKAGE)
    found = re.search(r"Depends: (linux-image-\d\S+)", depends)
    if found is None:
        raise Unavailable(f"apt knows no kernel by {KERNEL_METAPACKAGE}: {_SOURCES}")
    folder = _fetch(found[1])
    modules = {path.stem.replace("-", "_"): path for path in folder.glob("lib/modules/**/*.ko")}
    return Parts(next(folder.glob("boot/vmlinuz-*")), modules, _fetch("busybox-static") / "bin/busybox", _fetch("udev"))


def write_initramfs(place: Path, staging: Path, parts: Parts, files: Mapping[str, str | Path]) -> None:
    """Write the initramfs: Python, the agent, and ``files`` (contents, or paths of what to copy).

    ``staging`` is an empty folder that may hold all of it.
    """
    _stage_python(staging)
    _stage_modules(staging / "modules", parts.modules)
    _stage_hardware_database(staging, parts.udev)
    _copy_as(staging, Path("/guest.py"), Path(__file__).with_name("guest.py"))
    _copy_as(staging, Path("/bin/busybox"), parts.busybox)
    for name in BUSYBOX_COMMANDS:
        (staging / "bin" / name).symlink_to("busybox")
    for name, content in files.items():
        if isinstance(content, Path):
            _copy_as(staging, Path(name), content)
        else:
            _write(staging, Path(name), content)
    _write(staging, Path("/init"), f"#!/bin/sh\nexec {sys.executable} -I /guest.py\n").chmod(0o755)
    with place.open("wb") as archive:
        _write_cpio(archive, staging)


def _stage_python(staging: Path) -> None:
    """This interpreter with its libraries, what the commands import, and the agent."""
    interpreter, standard = Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))
    package = Path(topomend.__file__).parent
    ldconfig = Path(shutil.which("ldconfig", path="/sbin:/usr/sbin") or "/sbin/ldconfig")
    for source in (interpreter, standard, package, ldconfig, *_third_party(package.parent)):
        _copy_as(staging, source, source)
    if Path(sys.executable).is_symlink():  # that of a virtual environment, which a file beside it describes
        _copy_as(staging, Path(sys.prefix, "pyvenv.cfg"), Path(sys.prefix, "pyvenv.cfg"))
        link = _inside(staging, Path(sys.executable))
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(interpreter)
    libraries = _needed([interpreter, *staging.rglob("*.so")])
    libraries.update(_found_by_name(str(ldconfig), name) for name in LIBRARIES)
    for library in libraries:
        _copy_as(staging, library, library.resolve())
    # Within the machine, compiling would take minutes.
    folders = [str(_inside(staging, folder)) for folder in (standard, package, Path(sysconfig.get_path("purelib")))]
    _run(sys.executable, "-m", "compileall", "-q", "-s", str(staging), *folders)


def _third_party(sources: Path) -> Iterator[Path]:
    """What lies in site-packages of all that the commands import; ``sources`` is the folder of our package."""
    packages = Path(sysconfig.get_path("purelib"))
    code = f"""import sys
sys.path.insert(0, sys.argv[1])
import {", ".join(COMMANDS)}
print(*sorted({{name.partition('.')[0] for name in sys.modules}} - {{"topomend"}}))"""
    for name in _run(sys.executable, "-c", code, str(sources)).split():
        module = packages / name
        yield from (module,) if module.is_dir() else packages.glob(f"{name}.*")


def _needed(binaries: Iterable[Path]) -> set[Path]:
    """The shared libraries of ``binaries``, by the paths at which the loader looks them up here."""
    text = "".join(_run("ldd", str(binary)) for binary in binaries)
    return {Path(name) for name in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", text, re.MULTILINE)}


def _found_by_name(ldconfig: str, library: str) -> Path:
    line = re.search(rf"^\s*{re.escape(library)} .*x86-64.* => (\S+)$", _run(ldconfig, "-p"), re.MULTILINE)
    if line is None:
        raise Unavailable(f"{library} is missing: install the Debian package of that library")
    return Path(line[1])


def _stage_hardware_database(staging: Path, udev: Path) -> None:
    """The names of PCI devices, compiled as udev's package does it where it is installed."""
    folder = staging / "etc" / "udev" / "hwdb.d"
    folder.mkdir(parents=True)
    for source in udev.glob("lib/udev/hwdb.d/20-pci-*.hwdb"):
        shutil.copy2(source, folder)
    _run(str(udev / "bin" / "systemd-hwdb"), f"--root={staging}", "update")


def _stage_modules(folder: Path, modules: Mapping[str, Path]) -> None:
    """The modules and what they depend on, and the order in which they can be loaded."""
    folder.mkdir()
    order: list[str] = []

    def add(name: str) -> None:
        module = modules[name]
        depends = re.search(rb"\0depends=([^\0]*)\0", module.read_bytes())
        for needed in depends[1].decode().split(",") if depends and depends[1] else ():
            add(needed)
        if name not in order:
            order.append(name)
            shutil.copy2(module, folder / name)

    for name in MODULES:
        add(name)
    (folder / "order").write_text(" ".join(order))


def _copy_as(staging: Path, name: Path, source: Path) -> None:
    """Have the machine hold a file or folder of this one as ``name``."""
    target = _inside(staging, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=UNWANTED, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


def _write(staging: Path, name: Path, text: str) -> Path:
    target = _inside(staging, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return target


def _inside(staging: Path, path: Path) -> Path:
    return staging / path.relative_to(path.anchor)


# Packages


def _fetch(package: str) -> Path:
    """The unpacked files of a Debian package."""
    candidate = re.search(r"Candidate: (\S+)", _run("apt-cache", "policy", package))
    if candidate is None or candidate[1] == "(none)":
        raise Unavailable(f"apt knows no package {package}: {_SOURCES}")
    version = re.sub(r"[^A-Za-z0-9.+~-]", "_", candidate[1])
    folder = cache_folder() / "vm" / f"{package}_{version}"
    if folder.is_dir():
        return folder
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _run("apt-get", "--quiet", "--quiet", "download", package, folder=partial)
    (archive,) = partial.glob("*.deb")
    _run("dpkg-deb", "--extract", str(archive), str(partial))
    archive.unlink()
    partial.rename(folder)
    return folder


def _run(*argv: str, folder: Path | None = None) -> str:
    if shutil.which(argv[0]) is None:
        raise Unavailable(f"{argv[0]} is missing: this needs Debian's apt and dpkg")
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(argv)} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


# The archive


def _write_cpio(archive: BinaryIO, root: Path) -> None:
    """All of ``root`` as the kernel unpacks it (Documentation/driver-api/early-userspace/buffer-format.rst: newc)."""
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        _write_entry(archive, str(path.relative_to(root)), _content(path), status.st_mode, int(status.st_mtime))
    _write_entry(archive, "TRAILER!!!", b"")


def _content(path: Path) -> bytes:
    if path.is_symlink():
        return str(path.readlink()).encode()
    return path.read_bytes() if path.is_file() else b""


def _write_entry(archive: BinaryIO, name: str, content: bytes, mode: int = 0, mtime: int = 0) -> None:
    encoded = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, mtime, len(content), 0, 0, 0, 0, len(encoded), 0)
    archive.write(b"070701" + b"".join(b"%08X" % field for field in fields) + encoded)
    archive.write(b"\0" * (-(110 + len(encoded)) % 4))
    archive.write(content + b"\0" * (-len(content) % 4))
