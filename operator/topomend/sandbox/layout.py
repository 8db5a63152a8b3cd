"""Where a sandbox keeps its files: in the user's cache folder and, as a node sees them, at the kubelet's own paths."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from topomend.sandbox.failures import SandboxError

PLAN_FILE = "plan.json"
STATUS_FILE = "status.json"
SANDBOX_FILE = "sandbox.json"
KUBECONFIG_FILE = "kubeconfig"

PROCESS_PREFIX = "process-"
"""How the names of sandboxes begin that are one process's own."""

KUBELET_ROOT = Path("/var/lib/kubelet")
"""Within a node's mount namespace, the kubelet's folder, as on any machine."""

KUBELET_CONFIG = KUBELET_ROOT / "config.yaml"
POD_RESOURCES = KUBELET_ROOT / "pod-resources" / "kubelet.sock"

UDEV_DATA = Path("/run/udev/data")
"""Where udev keeps what it knows of devices."""


def cache_folder() -> Path:
    """The user's cache folder for this program: ``${XDG_CACHE_HOME:-~/.cache}/topomend``."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".cache") / "topomend"


def state_folder(name: str) -> Path:
    """The folder of the sandbox called ``name``."""
    return cache_folder() / "sandboxes" / name


def lock_file(name: str) -> Path:
    """The file that the supervisor of the sandbox called ``name`` keeps locked while it lives."""
    return cache_folder() / "sandboxes" / f"{name}.lock"


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    partial.replace(path)


def from_here(path: Path) -> Path:
    """The path as a user would write it in the working folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def remove_tree(folder: Path) -> None:
    """Remove ``folder`` and all in it, unless anything is mounted there as this process sees it.

    A recursive removal goes through bind mounts into what is mounted: then it removes nothing and raises SandboxError.
    """
    if not folder.exists():
        return
    own = folder.resolve()
    for place in mount_points():
        if place == own or own in place.parents:
            raise SandboxError(f"{folder} is not removed: something is mounted at {place}; unmount it first")
    shutil.rmtree(folder)


def mount_points() -> Sequence[Path]:
    """Where anything is mounted, as this process sees it and can reach it, in the order of proc(5)'s mountinfo."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    places = (re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), line.split()[4]) for line in lines)
    return [Path(place) for place in dict.fromkeys(places)]
