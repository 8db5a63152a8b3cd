"""Things that a sandbox must not leave behind: processes, mounts, sockets, files."""

import stat
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from tests.waiting import awake, stretched

PATIENCE = 20.0


def processes(cache: Path) -> list[str]:
    """The command lines of processes that were started from, or on, something below ``cache``."""
    commands = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        if any(str(cache) in word for word in command) and process.pid != psutil.Process().pid:
            commands.append(" ".join(command)[:200])
    return commands


def mounts(cache: Path) -> list[str]:
    """This process's mounts that have to do with ``cache``."""
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(cache) in line]


def sockets(cache: Path) -> list[Path]:
    """Unix sockets below ``cache``."""
    return [path for path in cache.rglob("*") if stat.S_ISSOCK(path.lstat().st_mode)]


def eventually(condition: Callable[[], object], patience: float = PATIENCE) -> bool:
    """Whether ``condition`` came true in time."""
    deadline = awake() + patience
    while not condition():
        if awake() > deadline:
            return False
        time.sleep(0.05)
    return True


def assert_nothing_left(cache: Path) -> None:
    """No process, mount or socket of a sandbox below ``cache`` is there, or soon will not be."""
    eventually(lambda: not processes(cache), stretched(PATIENCE))
    assert processes(cache) == []
    assert mounts(cache) == []
    assert sockets(cache) == []
