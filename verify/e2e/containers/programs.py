"""Runs commands and long-running programs in a cluster's namespaces."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
from tests.waiting import eventually

COMMAND_SECONDS = 120.0


class Failed(AssertionError):
    """A part of the cluster failed; the text ends with the end of its log."""


class Space:
    """The namespaces of the process ``pid`` of this machine: network, mounts, processes."""

    def __init__(self, pid: int, environment: Mapping[str, str]) -> None:
        self.pid = pid
        self._environment = dict(environment)

    @property
    def root(self) -> Path:
        """The path of its root folder on this machine."""
        return Path(f"/proc/{self.pid}/root")

    def run(self, *argv: str, stdin: str | None = None, seconds: float = COMMAND_SECONDS) -> str:
        """Run a command in it; return its output. Raises Failed."""
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
        """Run a command in it with ``file`` as its input. Raises Failed."""
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
        """Start a long-running program in it."""
        return Program(name, self._inside(argv), log, self._environment)

    def _inside(self, argv: Sequence[str]) -> list[str]:
        return ["nsenter", f"--target={self.pid}", "--net", "--mount", "--pid", "--ipc", "--uts", "--", *argv]


class Program:
    """A running program in the namespaces. The kernel ends it with them."""

    def __init__(self, name: str, argv: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name, self.log = name, log
        with log.open("ab") as output:
            self._enters = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd="/"
            )

    @property
    def pid(self) -> int:
        """Its process id on this machine."""
        children = eventually(f"{self.name} to start", self._children, 10)
        return int(children[0].pid)

    def check(self) -> None:
        """Raise Failed if it has ended on its own."""
        if (code := self._enters.poll()) is not None:
            raise Failed(f"{self.name} ended with {code}: {log_tail(self.log)}")

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def wait(self, seconds: float) -> None:
        """Wait for its end."""
        self._enters.wait(seconds)

    def _children(self) -> list[psutil.Process]:
        self.check()
        return list(psutil.Process(self._enters.pid).children())


def log_tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
