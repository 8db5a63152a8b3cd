"""What a machine needs to run topomend as it is installed, and how to install what is missing.

Owns the list of programs and of kernel features. It changes nothing but one trial cgroup.
"""

import os
import shutil
import sys
from collections.abc import Iterator

from deploy.image.build import find_engine
from tools.commands import Unavailable, run
from verify.e2e.containers.cgroups import CgroupsUnavailable, GroupTree

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
"""The Debian package of each program."""

CNI_FOLDERS = ("/usr/lib/cni", "/opt/cni/bin")
CNI_PACKAGE = "containernetworking-plugins"
CNI_PLUGINS = ("bridge", "host-local", "loopback")

BUILDER_PACKAGE = "buildah"
BASE_PACKAGE = "mmdebstrap"


class MissingPrograms(Unavailable):
    """Programs are missing; the text names the Debian packages to install."""


def check() -> None:
    """Raise Unavailable, or MissingPrograms with all missing packages at once."""
    if sys.platform != "linux":
        raise Unavailable("this needs Linux: kubelets and containers run in their own namespaces")
    if os.geteuid() != 0:
        raise Unavailable("this needs root for containers, cgroups and namespaces: sudo make e2e")
    if packages := sorted(set(_missing_packages())):
        raise MissingPrograms(f"programs are missing: apt-get install --no-install-recommends {' '.join(packages)}")
    _check_namespaces()
    try:
        GroupTree.trial()
    except CgroupsUnavailable as error:
        raise Unavailable(str(error)) from error


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
    if find_engine() is None:
        yield BUILDER_PACKAGE
    try:
        cni_folder()
    except Unavailable:
        yield CNI_PACKAGE


def _check_namespaces() -> None:
    trial = ["unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--mount-proc", "--", "mount"]
    try:
        run(*trial, "-t", "tmpfs", "tmpfs", "/mnt")
    except Unavailable as error:
        raise Unavailable(f"this needs its own namespaces and mounts, which this machine denies: {error}") from error
