"""The paths of a sandbox's files: in the user's cache folder, and as a node sees them at the kubelet's usual paths."""

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
CONTROL_PLANE_LINK = "control-plane"
"""Leads to the binary of the control plane's release, so that an upgrade changes no program's command line."""

PROCESS_PREFIX = "process-"
"""The prefix of the names of sandboxes that were brought up without a name."""

KUBELET_ROOT = Path("/var/lib/kubelet")
"""The kubelet's root directory in a node's mount namespace, as on any machine."""

KUBELET_CONFIG = KUBELET_ROOT / "config.yaml"
POD_RESOURCES = KUBELET_ROOT / "pod-resources" / "kubelet.sock"

UDEV_DATA = Path("/run/udev/data")
"""The folder of udev's device records."""


def cache_folder() -> Path:
    """The user's cache folder for this program: ``${XDG_CACHE_HOME:-~/.cache}/topomend``."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".cache") / "topomend"


def state_folder(name: str) -> Path:
    """The folder of the sandbox ``name``."""
    return cache_folder() / "sandboxes" / name


def lock_file(name: str) -> Path:
    """The file that the supervisor of the sandbox ``name`` keeps locked while it runs."""
    return cache_folder() / "sandboxes" / f"{name}.lock"


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, readable for its owner only."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    partial.replace(path)


def link(folder: Path, binary: Path) -> None:
    """Have the control plane's link in a sandbox's ``folder`` lead to ``binary``."""
    partial = folder / f".{CONTROL_PLANE_LINK}.{os.getpid()}"
    partial.symlink_to(binary)
    partial.replace(folder / CONTROL_PLANE_LINK)


def from_here(path: Path) -> Path:
    """The path relative to the working folder if it is below that."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def remove_tree(folder: Path) -> None:
    """Remove ``folder`` with its content. Raises SandboxError, and removes nothing, if anything is mounted there.

    A recursive removal would follow bind mounts and delete the mounted files.
    """
    if not folder.exists():
        return
    own = folder.resolve()
    for place in mount_points():
        if place == own or own in place.parents:
            raise SandboxError(f"{folder} is not removed: something is mounted at {place}; unmount it first")
    shutil.rmtree(folder)


def mount_points() -> Sequence[Path]:
    """The mount points in this process's mount namespace and root, in the order of proc(5)'s mountinfo."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    places = (re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), line.split()[4]) for line in lines)
    return [Path(place) for place in dict.fromkeys(places)]
