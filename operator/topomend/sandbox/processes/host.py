"""The sandbox's needs of the host: mount namespaces, free ports, and this package for other Python processes."""

import os
import random
import shutil
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import topomend
from topomend.sandbox.control_plane import HOST
from topomend.sandbox.failures import SandboxUnavailable

PORTS = range(20000, 32000)
"""The range of free ports: below the ones that Linux uses for outgoing connections (ip_local_port_range)."""

MAX_CLAIMS = 512
"""How many ports a process keeps from others. On the first ones somebody listens by then."""

ATTEMPTS = 20

_claims: deque[int] = deque()
"""File descriptors, which end with the process."""


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
    """``count`` ports on loopback without a listener. Raises SandboxUnavailable if there are too few.

    No other process gets one of them here as long as this one lives: seconds pass until a program listens on it.
    """
    ports: list[int] = []
    candidates = random.SystemRandom().sample(PORTS, k=len(PORTS))
    for port in candidates:
        if not _claim(port):
            continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise SandboxUnavailable(f"no {count} free ports on {HOST} in {PORTS.start}-{PORTS.stop - 1}")


def _claim(port: int) -> bool:
    """Whether nobody listens on the port, and nobody else has claimed it: it is this process's then.

    A claim is a socket of an abstract name (unix(7)), which the kernel takes back with the process.
    """
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0topomend-port-{port}")
    except OSError:
        claim.close()
        return False
    if not _is_free(HOST, port):
        claim.close()
        return False
    if len(_claims) == MAX_CLAIMS:
        os.close(_claims.popleft())
    _claims.append(claim.detach())
    return True


def free_addresses(count: int, ports: Sequence[int]) -> list[str]:
    """``count`` addresses on loopback on which none of ``ports`` has a listener. Raises SandboxUnavailable.

    All of 127.0.0.0/8 is loopback on Linux, so a program can have the ports of its pod on an address of its own.
    """
    source = random.SystemRandom()
    for _ in range(ATTEMPTS):
        network = f"127.{source.randrange(64, 255)}.{source.randrange(256)}"
        addresses = [f"{network}.{number}" for number in range(1, count + 1)]
        if all(_is_free(address, port) for address in addresses for port in ports):
            return addresses
    raise SandboxUnavailable(f"no {count} addresses of 127.0.0.0/8 without a listener on a port of {ports}")


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def python_path() -> str:
    """A PYTHONPATH for other Python processes: the folder of this package, then this process's PYTHONPATH."""
    own = str(Path(topomend.__file__).parents[1])
    return os.pathsep.join([own, *filter(None, [os.environ.get("PYTHONPATH")])])
