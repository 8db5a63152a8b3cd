"""The first process of the virtual machine: sets it up, then does what it is asked over the second serial line.

Owns nothing that the tests decide: a request is one line of JSON that names a command or files, its answer one line
with what the command wrote or the files hold. Runs on the standard library alone.
"""

import contextlib
import json
import os
import subprocess
import sys
import termios
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MOUNTS = (
    ("proc", "proc", "/proc"),
    ("sysfs", "sysfs", "/sys"),
    ("devtmpfs", "devtmpfs", "/dev"),
    ("tmpfs", "tmpfs", "/run"),
    ("cgroup2", "cgroup2", "/sys/fs/cgroup"),
)
LINE = "/dev/ttyS1"


def main() -> None:
    """Set the machine up, report that, and answer requests until the machine ends."""
    os.environ.update(PATH="/bin:/sbin:/usr/bin:/usr/sbin", HOME="/root", LC_ALL="C.UTF-8")
    for kind, source, place in MOUNTS:
        Path(place).mkdir(parents=True, exist_ok=True)
        _command("mount", "-t", kind, source, place)
    _command("mount", "--make-rshared", "/")  # as systemd leaves it: pods get the mounts of the host
    for script in json.loads(Path("/setup.json").read_text()):
        _command("sh", "-e", "-c", script)
    with open(LINE, "r+b", buffering=0) as line:  # noqa: PTH123 - no buffer, which Path.open cannot say for text
        tty.setraw(line.fileno(), termios.TCSANOW)
        _say(line, {"ready": True})
        rest = b""
        while True:
            rest += os.read(line.fileno(), 4096)
            *requests, rest = rest.split(b"\n")
            for request in requests:
                _say(line, _answer(json.loads(request)))


def _command(*argv: str) -> None:
    """Run a step of the set-up. If it fails, the console says so and the machine stops."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"guest: {' '.join(argv)}: {done.stderr or done.stdout}")


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    if "start" in request:
        with Path(request["log"]).open("wb") as log:
            return {"pid": subprocess.Popen(request["start"], stdin=subprocess.DEVNULL, stdout=log, stderr=log).pid}
    if "read" in request:
        return {"files": dict(_files(request["read"]))}
    done = subprocess.run(request["run"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return {"status": done.returncode, "output": done.stdout, "errors": done.stderr}


def _files(pattern: str) -> Iterator[tuple[str, str]]:
    """Paths and contents; those of processes and cgroups may end meanwhile."""
    with contextlib.suppress(OSError):
        for path in Path("/").glob(pattern.lstrip("/")):
            with contextlib.suppress(OSError):
                yield str(path), path.read_text()


def _say(line: Any, answer: dict[str, Any]) -> None:
    text = json.dumps(answer).encode() + b"\n"
    while text:
        text = text[line.write(text) :]


main()
