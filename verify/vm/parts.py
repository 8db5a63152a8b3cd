"""The Debian packages that the virtual machine is made of, downloaded once with apt into the user's cache folder.

Owns the list of packages and their download. apt verifies them; nothing is installed.
"""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.commands import Unavailable, run

from topomend.sandbox.layout import cache_folder

PROGRAMS = ("apt-cache", "apt-get", "dpkg-deb", "ldd", "mkfs.ext4")

KERNEL_METAPACKAGE = "linux-image-cloud-amd64"
_SOURCES = "run apt-get update, with Debian's sources"

RUNTIME = {
    "containerd": ("usr/bin/containerd", "usr/bin/containerd-shim-runc-v2", "usr/bin/ctr"),
    "runc": ("usr/sbin/runc",),
    "containernetworking-plugins": ("usr/lib/cni/bridge", "usr/lib/cni/host-local", "usr/lib/cni/loopback"),
    "libseccomp2": ("usr/lib/x86_64-linux-gnu/libseccomp.so.2",),
}
"""The files of the container runtime, by package. runc needs the library."""


@dataclass(frozen=True)
class Parts:
    """A kernel, its modules by name, a static shell, and a container runtime.

    ``runtime`` gives each file's path within the virtual machine and the file here.
    """

    kernel: Path
    modules: Mapping[str, Path]
    busybox: Path
    runtime: Mapping[Path, Path]


def fetch_parts() -> Parts:
    """Fetch the packages that the cache lacks. Raises Unavailable."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise Unavailable(f"{', '.join(missing)} missing: the disk is made with Debian's apt, dpkg and e2fsprogs")
    depends = run("apt-cache", "depends", KERNEL_METAPACKAGE)
    kernel = re.search(r"Depends: (linux-image-\d\S+)", depends)
    if kernel is None:
        raise Unavailable(f"apt knows no kernel by {KERNEL_METAPACKAGE}: {_SOURCES}")
    folder = _fetch(kernel[1])
    modules = {path.stem.replace("-", "_"): path for path in folder.glob("lib/modules/**/*.ko")}
    runtime = {
        Path("/", name): (folder / name).resolve()
        for folder, names in ((_fetch(package), names) for package, names in RUNTIME.items())
        for name in names
    }
    return Parts(next(folder.glob("boot/vmlinuz-*")), modules, _fetch("busybox-static") / "bin/busybox", runtime)


def _fetch(package: str) -> Path:
    """The unpacked files of a Debian package."""
    candidate = re.search(r"Candidate: (\S+)", run("apt-cache", "policy", package))
    if candidate is None or candidate[1] == "(none)":
        raise Unavailable(f"apt knows no package {package}: {_SOURCES}")
    version = re.sub(r"[^A-Za-z0-9.+~-]", "_", candidate[1])
    folder = cache_folder() / "vm" / f"{package}_{version}"
    if folder.is_dir():
        return folder
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    run("apt-get", "--quiet", "--quiet", "download", package, folder=partial)
    (archive,) = partial.glob("*.deb")
    run("dpkg-deb", "--extract", str(archive), str(partial))
    archive.unlink()
    partial.rename(folder)
    return folder
