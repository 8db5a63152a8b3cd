"""One QEMU process: started, spoken to from outside (QMP) and inside (its second serial line), and ended by its id."""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.waiting import stretched
from tools.commands import Unavailable

PROGRAM = "qemu-system-x86_64"

_QUIET = ("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot")

BOOT_SECONDS = 600.0
"""Software emulation on a busy machine takes minutes."""

ANSWER_SECONDS = 600.0


PROBE_SECONDS = 15.0
"""How long a kernel may run from start to end on real KVM: ten times what it needs."""


class GuestFailed(AssertionError):
    """A request to the machine failed; the text ends with the kernel's last messages."""


def accelerator(folder: Path, kernel: Path, flags: Sequence[str]) -> list[str]:
    """QEMU's flags for running the machine by the processors' own means (KVM) where these truly work, else in software.

    That /dev/kvm can be opened proves nothing: a cloud's virtual machine may have one that runs no ordinary kernel. So
    ``kernel`` is started, with nothing to run: it panics, and the process ends.
    """
    log, software = folder / "probe.log", ["-accel", "tcg,thread=multi"]
    kvm = ["-accel", "kvm"]
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        print("KVM: there is no /dev/kvm that this user may use; QEMU emulates the processors")
        return software
    argv = [VirtualMachine.program(), *_QUIET, *kvm, *flags]
    argv += ["-serial", f"file:{log}", "-kernel", str(kernel), "-append", "console=ttyS0 panic=-1"]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=stretched(PROBE_SECONDS),
            check=False,
        )
    except subprocess.TimeoutExpired:
        print("KVM: a kernel does not run in time; QEMU emulates the processors")
        return software
    if "Kernel panic" not in log.read_text(errors="replace"):
        why = " ".join(done.stderr.split()[-24:])
        print(f"KVM: a kernel does not run ({why}); QEMU emulates the processors")
        return software
    return kvm


class VirtualMachine:
    """A running machine; a context manager that ends it. Its sockets and its console are in ``folder``."""

    def __init__(self, folder: Path, flags: Sequence[str]) -> None:
        self.console = folder / "console.log"
        self._errors = folder / "qemu.log"
        line, monitor = folder / "line", folder / "monitor"
        argv = [self.program(), *_QUIET, *flags]
        argv += ["-serial", f"file:{self.console}", "-serial", f"unix:{line},server=on,wait=off"]
        argv += ["-qmp", f"unix:{monitor},server=on,wait=off"]
        with self._errors.open("wb") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._open = ExitStack()
        try:
            self._line = self._connect(line)
            self._monitor = self._connect(monitor)
        except BaseException:
            self.end()
            raise

    @staticmethod
    def program() -> str:
        """The path of QEMU. Raises Unavailable."""
        program = shutil.which(PROGRAM)
        if program is None:
            raise Unavailable(f"{PROGRAM} is missing: apt-get install --no-install-recommends qemu-system-x86")
        return program

    def wait_for_boot(self) -> None:
        """Wait until the machine and the monitor accept requests."""
        self._read(self._line, stretched(BOOT_SECONDS))
        self._read(self._monitor, ANSWER_SECONDS)
        self.monitor("qmp_capabilities")

    def run(self, *argv: str) -> str:
        """Run a command in the machine and return its output. Raises GuestFailed."""
        answer = self._ask(self._line, {"run": argv})
        if answer["status"]:
            raise GuestFailed(f"{' '.join(argv)} ended with {answer['status']}: {answer['errors']}{answer['output']}")
        return str(answer["output"])

    def read(self, pattern: str) -> dict[str, str]:
        """The contents of the machine's files whose path matches ``pattern`` (pathlib's glob)."""
        return dict(self._ask(self._line, {"read": pattern})["files"])

    def write(self, path: str, text: str) -> None:
        """Write to a file of the machine, such as one of sysfs."""
        self.run("sh", "-c", 'printf %s "$1" > "$2"', "sh", text, path)

    def start(self, argv: Sequence[str], log: str) -> None:
        """Start a program in the machine; it runs until the machine ends."""
        self._ask(self._line, {"start": argv, "log": log})

    def monitor(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Run a command of QEMU's monitor, such as ``device_add``."""
        answer = self._ask(self._monitor, {"execute": command, **({"arguments": arguments} if arguments else {})})
        while "return" not in answer and "error" not in answer:  # events come in between
            answer = self._read(self._monitor, ANSWER_SECONDS)
        if "error" in answer:
            raise GuestFailed(f"QEMU refuses {command}: {answer['error']['desc']}")
        return answer["return"]

    def end(self) -> None:
        """End the process, and wait until it has ended."""
        self._process.terminate()
        self._process.wait()
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _connect(self, path: Path) -> tuple[socket.socket, Any]:
        deadline = time.monotonic() + 30
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(path))
            except OSError as error:
                connection.close()
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise GuestFailed(f"{PROGRAM} did not start: {self._errors.read_text()}") from error
                time.sleep(0.1)
            else:
                self._open.enter_context(connection)
                return connection, self._open.enter_context(connection.makefile("rb"))

    def _ask(self, to: tuple[socket.socket, Any], request: Mapping[str, Any]) -> dict[str, Any]:
        to[0].sendall(json.dumps(request).encode() + b"\n")
        return self._read(to, stretched(ANSWER_SECONDS))

    def _read(self, source: tuple[socket.socket, Any], seconds: float) -> dict[str, Any]:
        source[0].settimeout(seconds)
        try:
            text = source[1].readline()
        except TimeoutError:
            text = b""
        if not text:
            end = self.console.read_text(errors="replace")[-6000:] if self.console.exists() else ""
            raise GuestFailed(f"no answer from the machine. {self._errors.read_text()}\nIts console ends:\n{end}")
        answer: dict[str, Any] = json.loads(text)
        return answer
