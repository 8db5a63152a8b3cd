"""What a machine must have to run topomend as it is installed, and what to do where something is missing.

Owns the list of programs and of what the kernel must allow. It changes nothing but for one trial cgroup.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

from tests.e2e.cgroups import CgroupsUnavailable, GroupTree

PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "ip": "iproute2",
    "mount": "mount",
    "nsenter": "util-linux",
    "openssl": "openssl",
    "runc": "runc",
    "unshare": "util-linux",
}
"""Program -> the Debian package that has it."""

CNI_FOLDERS = ("/usr/lib/cni", "/opt/cni/bin")
CNI_PACKAGE = "containernetworking-plugins"
CNI_PLUGINS = ("bridge", "host-local", "loopback")

ENGINES = ("docker", "podman")
BUILDER = BUILDER_PACKAGE = "buildah"
BASE_PACKAGE = "mmdebstrap"


class Unavailable(Exception):
    """This machine cannot run the containers; the text says why, and what to do."""


class MissingPrograms(Unavailable):
    """Programs are missing; the text names the Debian packages to install."""


def check() -> None:
    """Raise Unavailable with everything that is missing at once, so that one installation is enough."""
    if sys.platform != "linux":
        raise Unavailable("this needs Linux: kubelets and containers run in namespaces of its own")
    if os.geteuid() != 0:
        raise Unavailable("this needs root, for containers, cgroups and namespaces: sudo make e2e")
    if packages := sorted(set(_missing_packages())):
        raise MissingPrograms(f"programs are missing: apt-get install --no-install-recommends {' '.join(packages)}")
    _check_namespaces()
    try:
        GroupTree.trial()
    except CgroupsUnavailable as error:
        raise Unavailable(str(error)) from error


def engine() -> str | None:
    """The first of docker and podman that answers; a command alone may have no daemon."""
    for name in ENGINES:
        if shutil.which(name) is None:
            continue
        done = subprocess.run([name, "info"], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60)
        if done.returncode == 0:
            return name
    return None


def cni_folder() -> str:
    """The folder that holds the network plugins. Raises Unavailable."""
    for folder in CNI_FOLDERS:
        if all(shutil.which(plugin, path=folder) for plugin in CNI_PLUGINS):
            return folder
    raise MissingPrograms(f"network plugins are missing: apt-get install --no-install-recommends {CNI_PACKAGE}")


def _missing_packages() -> Iterator[str]:
    for program, package in PACKAGES.items():
        if shutil.which(program) is None:
            yield package
    if engine() is None and shutil.which(BUILDER) is None:
        yield BUILDER_PACKAGE
    try:
        cni_folder()
    except Unavailable:
        yield CNI_PACKAGE


def _check_namespaces() -> None:
    trial = ["unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--mount-proc", "--", "mount"]
    done = subprocess.run(
        [*trial, "-t", "tmpfs", "tmpfs", "/mnt"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Unavailable(f"this needs namespaces and mounts of its own, which are denied here: {done.stderr.strip()}")
