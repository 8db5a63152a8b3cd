"""Programs within a cluster's namespaces: how a command gets there, and how one that goes on is watched and ended."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import psutil
from tests.patience import stretched

T = TypeVar("T")

POLL = 0.1
"""Seconds between two looks at something that is about to change."""

COMMAND_SECONDS = 120.0


class Failed(AssertionError):
    """A part of the cluster did not do what it must; the text ends with its last words."""


def wait_for(what: str, seconds: float, condition: Callable[[], T | None]) -> T:
    """The first answer of ``condition`` that is true. Raises Failed after ``seconds``, more on a busy machine."""
    deadline = time.monotonic() + stretched(seconds)
    while True:
        if answer := condition():
            return answer
        if time.monotonic() > deadline:
            raise Failed(f"waited {stretched(seconds):.0f} s for {what}")
        time.sleep(POLL)


class Space:
    """The namespaces of a process: its network, its mounts, its processes. ``pid`` is as this machine numbers it."""

    def __init__(self, pid: int, environment: Mapping[str, str]) -> None:
        self.pid = pid
        self._environment = dict(environment)

    @property
    def root(self) -> Path:
        """Its root folder, as it is reached from outside."""
        return Path(f"/proc/{self.pid}/root")

    def run(self, *argv: str, stdin: str | None = None, seconds: float = COMMAND_SECONDS) -> str:
        """Run a command in it; what it printed. Raises Failed where it fails."""
        done = self.attempt(*argv, stdin=stdin, seconds=seconds)
        if done.returncode:
            raise Failed(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def attempt(
        self, *argv: str, stdin: str | None = None, seconds: float = COMMAND_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in it that may fail."""
        return subprocess.run(
            self._inside(argv),
            input=stdin or "",
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )

    def feed(self, file: Path, *argv: str, seconds: float = COMMAND_SECONDS) -> None:
        """Run a command in it that reads ``file``. Raises Failed where it fails."""
        with file.open("rb") as stdin:
            done = subprocess.run(
                self._inside(argv),
                stdin=stdin,
                env=self._environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds,
            )
        if done.returncode:
            raise Failed(f"{' '.join(argv)} < {file} ended with {done.returncode}: {done.stderr.strip()}")

    def start(self, name: str, argv: Sequence[str], log: Path) -> "Program":
        """Start a program in it that goes on."""
        return Program(name, self._inside(argv), log, self._environment)

    def _inside(self, argv: Sequence[str]) -> list[str]:
        return ["nsenter", f"--target={self.pid}", "--net", "--mount", "--pid", "--ipc", "--uts", "--", *argv]


class Program:
    """A program that runs in the namespaces; they end it in any case."""

    def __init__(self, name: str, argv: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name, self.log = name, log
        with log.open("ab") as output:
            self._enters = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd="/"
            )

    @property
    def pid(self) -> int:
        """Its process, as this machine numbers it."""
        children = wait_for(f"{self.name} to start", 10, self._children)
        return int(children[0].pid)

    def check(self) -> None:
        """Raise Failed where it has ended although nobody ended it."""
        if (code := self._enters.poll()) is not None:
            raise Failed(f"{self.name} ended with {code}: {last_words(self.log)}")

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def wait(self, seconds: float) -> None:
        """Wait for its end."""
        self._enters.wait(seconds)

    def _children(self) -> list[psutil.Process]:
        self.check()
        return list(psutil.Process(self._enters.pid).children())


def last_words(log: Path, lines: int = 15) -> str:
    """How a log ends."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
