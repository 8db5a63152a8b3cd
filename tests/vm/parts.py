"""What the virtual machine is made of: Debian packages, fetched once through apt into the user's cache folder.

Owns where they come from and nothing else. apt checks them; nothing is installed.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from topomend.sandbox.layout import cache_folder

KERNEL_METAPACKAGE = "linux-image-cloud-amd64"
_SOURCES = "run apt-get update, with Debian's sources"

RUNTIME = {
    "containerd": ("usr/bin/containerd", "usr/bin/containerd-shim-runc-v2", "usr/bin/ctr"),
    "runc": ("usr/sbin/runc",),
    "containernetworking-plugins": ("usr/lib/cni/bridge", "usr/lib/cni/host-local", "usr/lib/cni/loopback"),
    "libseccomp2": ("usr/lib/x86_64-linux-gnu/libseccomp.so.2",),
}
"""The files that run containers, by package. The library is runc's."""


class Unavailable(Exception):
    """This machine lacks what the virtual machine is made with; the text says what to install."""


@dataclass(frozen=True)
class Parts:
    """What comes from Debian: a kernel and its modules by name, a shell without libraries, and a container runtime.

    ``runtime`` gives each file's path within the virtual machine and the file here.
    """

    kernel: Path
    modules: Mapping[str, Path]
    busybox: Path
    runtime: Mapping[Path, Path]


def fetch_parts() -> Parts:
    """Fetch what is not there yet. Raises Unavailable."""
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


def run(*argv: str, folder: Path | None = None) -> str:
    """What a program printed. Raises Unavailable where it is missing or fails."""
    if shutil.which(argv[0]) is None:
        raise Unavailable(f"{argv[0]} is missing: this needs a Debian machine, with apt, dpkg and e2fsprogs")
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(argv)} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


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
