"""The sandbox's needs of the host: mount namespaces, free ports, and this package for other Python processes."""

import os
import random
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import topomend
from topomend.sandbox.control_plane import HOST
from topomend.sandbox.failures import SandboxUnavailable

PORTS = range(20000, 32000)
"""The range of free ports: below the ones that Linux uses for outgoing connections (ip_local_port_range)."""


def how_to_enter_namespaces() -> list[str]:
    """The flags of unshare(1) that let this user mount: as root, or as root of a user namespace.

    Raises SandboxUnavailable, which says what to do, if neither works.
    """
    if sys.platform != "linux":
        raise SandboxUnavailable("the sandbox needs Linux: its kubelets run in mount namespaces")
    for tool in ("unshare", "nsenter"):
        if shutil.which(tool) is None:
            raise SandboxUnavailable(f"the sandbox needs {tool}(1): install the package util-linux")
    mounts = ["--mount", "--propagation", "private"]
    ways = [["--user", "--map-root-user", *mounts]]
    if os.geteuid() == 0:
        ways.insert(0, mounts)
    words = ""
    for flags in ways:
        trial = ["unshare", *flags, "--", "mount", "-t", "tmpfs", "tmpfs", "/sys"]
        done = subprocess.run(trial, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return flags
        words = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    raise SandboxUnavailable(
        f"the sandbox needs mounts of its own, and this user may not make any ({words}): run as root, or allow user "
        "namespaces (sysctl user.max_user_namespaces above 0, kernel.apparmor_restrict_unprivileged_userns=0)"
    )


def free_ports(count: int) -> list[int]:
    """``count`` ports on loopback without a listener. Raises SandboxUnavailable if there are too few."""
    ports: list[int] = []
    candidates = random.SystemRandom().sample(PORTS, k=len(PORTS))
    for port in candidates:
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise SandboxUnavailable(f"no {count} free ports on {HOST} in {PORTS.start}-{PORTS.stop - 1}")


def python_path() -> str:
    """A PYTHONPATH for other Python processes: the folder of this package, then this process's PYTHONPATH."""
    own = str(Path(topomend.__file__).parents[1])
    return os.pathsep.join([own, *filter(None, [os.environ.get("PYTHONPATH")])])
