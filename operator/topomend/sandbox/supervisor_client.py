"""Starting a supervisor process and talking to it; and what a program's log says of its end."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from topomend.sandbox.failures import ProgramFailed, SandboxUnavailable
from topomend.sandbox.host import python_path
from topomend.sandbox.layout import STATUS_FILE


class SupervisorProcess:
    """The supervisor process, spoken to over its standard input and output."""

    def __init__(self, folder: Path, namespace_flags: Sequence[str], lock: int) -> None:
        environment = {**os.environ, "PYTHONPATH": python_path()}
        command = ["unshare", *namespace_flags, "--", sys.executable, "-m", "topomend.sandbox.supervisor", str(folder)]
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
        """Start programs of the plan; those that run already go on."""
        self._ask({"do": "start", "programs": list(programs)})

    def stop(self, programs: Sequence[str]) -> None:
        """End programs, and wait until they have ended."""
        self._ask({"do": "stop", "programs": list(programs)})

    def detach(self) -> None:
        """Have it go on when its standard input ends."""
        self._ask({"do": "detach"})

    def end(self) -> None:
        """Close its standard input, which ends it and all it started, and wait for that."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, request: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it was asked for at its start
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise ProgramFailed("the sandbox is down") from None
        self._read_answer()

    def _read_answer(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it was asked for at its start
        line = self._process.stdout.readline()
        if not line:
            raise ProgramFailed(f"the sandbox's supervisor ended: {last_words(self._log)} (log: {self._log})")
        if error := json.loads(line).get("error"):
            raise SandboxUnavailable(f"the sandbox could not be set up: {error}")


def read_status(folder: Path) -> Mapping[str, Any]:
    """What the supervisor last wrote of its programs; empty where it wrote nothing."""
    try:
        status = json.loads((folder / STATUS_FILE).read_text())
    except FileNotFoundError:
        return {}
    return status if isinstance(status, dict) else {}


def raise_if_one_ended(status: Mapping[str, Any], most_restarts: int | None = None) -> None:
    """Raise ProgramFailed for a program that ended although nobody stopped it.

    One that is restarted when it ends counts where that happened more than ``most_restarts`` times; None is never.
    """
    for name, program in status.get("programs", {}).items():
        log = Path(program["log"])
        if not program["restart"] and program["exit"] is not None:
            raise ProgramFailed(f"{name} ended with {program['exit']}: {last_words(log)} (log: {log})")
        ends = program["restarts"] + (program["exit"] is not None)
        if most_restarts is not None and ends > most_restarts:
            raise ProgramFailed(f"{name} ended {ends} times: {last_words(log)} (log: {log})")


def last_words(log: Path) -> str:
    """The last line of a log that says what went wrong; the last line of all where none does."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return "it wrote no log"
    telling = re.compile(r"^(F\d{4} |E\d{4} |Error:|error:|panic:|fatal|\{\"level\":\"(error|fatal))|unshare:|Error")
    recent = lines[-200:]
    return next(
        (line for line in reversed(recent) if telling.search(line)), recent[-1] if recent else "it wrote nothing"
    )[:400]
