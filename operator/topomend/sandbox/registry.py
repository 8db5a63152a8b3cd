"""Find, enter and take down running sandboxes by name, also those that other processes of this user started.

Bringing one up is left to ``cluster``.
"""

import contextlib
import fcntl
import json
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from topomend.sandbox import layout
from topomend.sandbox.api import API, is_ready
from topomend.sandbox.control_plane import Files
from topomend.sandbox.failures import SandboxBusy, SandboxError
from topomend.sandbox.processes.supervisor_client import read_status

LOOK = 0.2
"""Seconds for which another process may hold a lock that it only tests."""

REMOVAL = 30.0
"""Seconds for which another process may hold the lock of a sandbox that is down: it removes the files as abandoned."""

POLL = 0.05
"""Seconds between two polls of a supervisor that is ending."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True)
class SandboxNode:
    """One node as it was requested, ``memory`` in bytes, the release of its kubelet, and whether it is ready."""

    name: str
    numa_nodes: int
    cpus: int
    memory: int
    policy: str
    scope: str
    version: str
    ready: bool


@dataclass(frozen=True)
class ProgramStatus:
    """One program: its process id and resident memory in bytes, None if it does not run, and its log.

    A program of topomend that has no pod does not run, which is no failure: it has no ``exit``.

    ``exit`` is its exit code if it ended on its own, ``restarts`` the number of its restarts since the sandbox came up,
    ``metrics`` the URL of its metrics, empty if it has none.
    """

    name: str
    pid: int | None
    memory: int | None
    log: Path
    exit: int | None
    restarts: int
    metrics: str


@dataclass(frozen=True)
class Status:
    """A sandbox that is up, and the release of its control plane."""

    kubeconfig: Path
    version: str
    nodes: tuple[SandboxNode, ...]
    programs: tuple[ProgramStatus, ...]


def check_name(name: str) -> None:
    """Raise SandboxError for an invalid sandbox name: it becomes part of paths."""
    if not _NAME.fullmatch(name):
        raise SandboxError(f"sandbox name {name!r:.60} is not up to 40 lower-case letters, digits and dashes")


@contextlib.contextmanager
def lock(name: str, patience: float = LOOK) -> Iterator[int]:
    """Lock the sandbox ``name``. A process that inherits the descriptor keeps the lock after this context ends.

    Raises SandboxBusy if another process has the lock for more than ``patience`` seconds.
    """
    path = layout.lock_file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + patience
    while (descriptor := _try_lock(path)) is None:
        if time.monotonic() > deadline:
            raise SandboxBusy(f"sandbox {name} is up already, or starting")
        time.sleep(LOOK / 10)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _try_lock(path: Path) -> int | None:
    """The descriptor of the locked file; None if another process has the lock, or removed the file meanwhile."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.stat(path).st_ino == os.fstat(descriptor).st_ino:  # noqa: PTH116 - beside its fstat
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def is_up(name: str) -> bool:
    """Whether a supervisor has the lock of the sandbox ``name``."""
    path = layout.lock_file(name)
    if not path.exists():
        return False
    descriptor = _try_lock(path)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def names_up() -> tuple[str, ...]:
    """The names of this user's sandboxes that are up, in alphabetical order."""
    locks = sorted(layout.lock_file("x").parent.glob("*.lock"))
    return tuple(path.stem for path in locks if is_up(path.stem))


def kubectl_prefix(name: str, binary: Path) -> list[str]:
    """The command line of kubectl for the sandbox ``name``, up to its arguments."""
    return [str(binary), "kubectl", "--kubeconfig", str(kubeconfig(name))]


def kubeconfig(name: str) -> Path:
    """The administrator's kubeconfig of the sandbox ``name``."""
    return layout.state_folder(name) / layout.KUBECONFIG_FILE


def exec_prefix(name: str, node_name: str) -> list[str]:
    """The arguments before a command that run it in the mount namespace of a node's kubelet.

    Raises SandboxError if the sandbox is not up or has no such node.
    """
    folder = layout.state_folder(name)
    status = read_status(folder)
    if node_name not in status.get("namespaces", {}) or not is_up(name):
        raise SandboxError(f"sandbox {name} is not up, or has no node {node_name}")
    supervisor, descriptor = status["supervisor"], status["namespaces"][node_name]
    user = (
        [f"--user=/proc/{supervisor}/ns/user", "--preserve-credentials"] if description(name)["user_namespace"] else []
    )
    # Without the variable libudev accepts only devices of a real sysfs (sd-device.c).
    return [
        "nsenter",
        *user,
        f"--mount=/proc/{supervisor}/fd/{descriptor}",
        "--",
        "env",
        f"--chdir={Path.cwd()}",
        "SYSTEMD_DEVICE_VERIFY_SYSFS=0",
    ]


def description(name: str) -> Mapping[str, Any]:
    """The facts that the sandbox ``name`` was started with. Raises SandboxError if it is not up."""
    try:
        document = json.loads((layout.state_folder(name) / layout.SANDBOX_FILE).read_text())
    except FileNotFoundError:
        raise SandboxError(f"sandbox {name} is not up; start it with: sandbox up --name {name}") from None
    return document if isinstance(document, dict) else {}


def status(name: str) -> Status:
    """The nodes and programs of the sandbox ``name``. Raises SandboxError if it is not up."""
    check_name(name)
    facts = description(name)
    if not is_up(name):
        raise SandboxError(f"sandbox {name} is no longer up; start it again, or remove its files with sandbox down")
    folder = layout.state_folder(name)
    programs = {
        program: ProgramStatus(
            program,
            entry["pid"],
            _resident_memory(entry["pid"]),
            Path(entry["log"]),
            exit=entry["exit"],
            restarts=entry["restarts"],
            metrics=facts["metrics"].get(program, ""),
        )
        for program, entry in read_status(folder).get("programs", {}).items()
        if entry["pid"] is not None or entry["exit"] is not None or entry["held"] or program.startswith("k")
    }
    host, _, port = facts["server"].removeprefix("https://").partition(":")
    api = API(host, int(port), Files(folder).certificate, facts["token"])
    nodes = [SandboxNode(**node, ready=_ready(api, node["name"])) for node in facts["nodes"]]
    return Status(kubeconfig(name), facts["version"], tuple(nodes), tuple(programs.values()))


def _resident_memory(pid: int | None) -> int | None:
    try:
        return None if pid is None else int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None


def _ready(api: API, node_name: str) -> bool:
    node = api.get(f"/api/v1/nodes/{node_name}")
    return node is not None and is_ready(node, {})


def take_down(name: str) -> bool:
    """Take down the sandbox ``name``. False if neither a process nor a file of it existed. Raises SandboxError."""
    check_name(name)
    folder = layout.state_folder(name)
    was_up = is_up(name)
    if was_up:
        _end_supervisor(name, read_status(folder))
    existed = folder.exists()
    remove_files(name)
    return was_up or existed


def remove_files(name: str, patience: float = LOOK) -> None:
    """Remove the files of a sandbox that is down. Raises SandboxBusy if it is up after ``patience`` seconds."""
    with lock(name, patience):
        layout.remove_tree(layout.state_folder(name))
        layout.lock_file(name).unlink(missing_ok=True)


def remove_abandoned() -> None:
    """Remove the files of unnamed sandboxes whose process was killed, or that failed to come up."""
    for path in layout.lock_file("x").parent.glob(f"{layout.PROCESS_PREFIX}*.lock"):
        with contextlib.suppress(SandboxBusy):
            remove_files(path.stem)


def _end_supervisor(name: str, status: Mapping[str, Any]) -> None:
    """Tell the supervisor to end its programs; kill it if it does not."""
    if "supervisor" not in status:
        raise SandboxBusy(f"sandbox {name} is starting: stop the command that starts it, or try again in a moment")
    process = supervisor_process(status["supervisor"], layout.state_folder(name))
    for number, patience in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process is not None:
                process.send_signal(number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if not is_up(name):
                return
            time.sleep(POLL)
    raise SandboxError(f"sandbox {name}: its supervisor, process {status['supervisor']}, does not end")


def supervisor_process(pid: int, folder: Path) -> psutil.Process | None:
    """The process of this number, if it is the supervisor of the sandbox in ``folder``: a file may name an old one.

    psutil sends a signal to that very process alone, not to one that got its number since.
    """
    try:
        process = psutil.Process(pid)
        return process if str(folder) in process.cmdline() else None
    except psutil.Error:
        return None
