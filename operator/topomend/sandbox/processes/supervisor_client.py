"""Start a supervisor process, send it requests, and read the status and errors of its programs."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from topomend.sandbox.failures import ProgramFailed, SandboxUnavailable
from topomend.sandbox.layout import STATUS_FILE
from topomend.sandbox.processes.host import python_path


class SupervisorProcess:
    """A supervisor process, reached through its standard input and output.

    The constructor starts it; ``lock`` is the descriptor of the sandbox's lock, which it inherits. Raises ProgramFailed
    if it does not start, SandboxUnavailable if it cannot make the mounts.
    """

    def __init__(self, folder: Path, namespace_flags: Sequence[str], lock: int) -> None:
        environment = {**os.environ, "PYTHONPATH": python_path()}
        command = [
            "unshare",
            *namespace_flags,
            "--",
            sys.executable,
            "-m",
            "topomend.sandbox.processes.supervisor",
            str(folder),
        ]
        self._log = folder / "logs" / "supervisor.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=(lock,),
                start_new_session=True,
                cwd=folder,
            )
        try:
            self._read_answer()
        except BaseException:
            self.end()
            raise

    def start(self, programs: Sequence[str]) -> None:
        """Start programs of the plan; running ones are left alone. Raises ProgramFailed, SandboxUnavailable."""
        self._ask({"do": "start", "programs": list(programs)})

    def stop(self, programs: Sequence[str]) -> None:
        """Stop programs and wait until they have ended. Raises ProgramFailed if the supervisor is gone."""
        self._ask({"do": "stop", "programs": list(programs)})

    def detach(self) -> None:
        """Keep the supervisor running after this process closes its standard input."""
        self._ask({"do": "detach"})

    def end(self) -> None:
        """End the supervisor and all its programs by closing its standard input, and wait for it."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, request: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None  # noqa: S101 - Popen was given a pipe
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise ProgramFailed("the sandbox is down") from None
        self._read_answer()

    def _read_answer(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - Popen was given a pipe
        line = self._process.stdout.readline()
        if not line:
            raise ProgramFailed(f"the sandbox's supervisor ended: {last_words(self._log)} (log: {self._log})")
        if error := json.loads(line).get("error"):
            raise SandboxUnavailable(f"the sandbox could not be set up: {error}")


def read_status(folder: Path) -> Mapping[str, Any]:
    """The last status that the supervisor wrote; empty if it wrote none."""
    try:
        status = json.loads((folder / STATUS_FILE).read_text())
    except FileNotFoundError:
        return {}
    return status if isinstance(status, dict) else {}


def raise_if_one_ended(status: Mapping[str, Any], most_restarts: int | None = None) -> None:
    """Raise ProgramFailed if a program ended on its own.

    A program that is restarted counts only after more than ``most_restarts`` ends; with None it never counts.
    """
    for name, program in status.get("programs", {}).items():
        log = Path(program["log"])
        if not program["restart"] and program["exit"] is not None:
            raise ProgramFailed(f"{name} ended with {program['exit']}: {last_words(log)} (log: {log})")
        ends = program["restarts"] + (program["exit"] is not None)
        if most_restarts is not None and ends > most_restarts:
            raise ProgramFailed(f"{name} ended {ends} times: {last_words(log)} (log: {log})")


def last_words(log: Path) -> str:
    """The last line of a log that reports an error, else its last line; at most 400 characters."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return "it wrote no log"
    telling = re.compile(r"^(F\d{4} |E\d{4} |Error:|error:|panic:|fatal|\{\"level\":\"(error|fatal))|unshare:|Error")
    recent = lines[-200:]
    return next(
        (line for line in reversed(recent) if telling.search(line)), recent[-1] if recent else "it wrote nothing"
    )[:400]
