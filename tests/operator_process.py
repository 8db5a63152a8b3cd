"""The operator as a process that starts in milliseconds: it is forked from a server that has its modules loaded.

What runs is the command itself (``topomend operator``) in a process of its own, to be killed like any other; only the
second that Python takes to load the modules is spent once, not once a process.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from multiprocessing import connection, get_context
from pathlib import Path

from tests.waiting import eventually, stretched

from topomend.cli.main import main as topomend
from topomend.sandbox.processes.host import free_ports

ROOT = Path(__file__).parents[1]

_MODULES = [__name__, "topomend.cli.operator", "topomend.controller.operator", "topomend.controller.own_objects"]

_server = get_context("forkserver")
_server.set_forkserver_preload(_MODULES)


_lock = threading.Lock()
"""The start of a process looks at the ends of all others, and an end can be read once."""


class OperatorProcess:
    """One operator process, from its start on. Its methods are named as in ``subprocess.Popen``."""

    def __init__(
        self, kubeconfig: Path, log: Path, flags: Iterable[str], constants: Mapping[str, object] | None = None
    ) -> None:
        arguments = (kubeconfig, log, tuple(flags), dict(constants or {}))
        self._process = _server.Process(target=_run, args=arguments, daemon=True)
        with _lock:
            self._process.start()

    def send_signal(self, number: int) -> None:
        """Send it this signal; one that has ended gets none."""
        if self.poll() is None and self._process.pid:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """End it with SIGKILL; one that has ended stays so."""
        self._process.kill()

    def poll(self) -> int | None:
        """Its exit code, or the negative number of the signal that ended it; None while it lives."""
        with _lock:
            return self._process.exitcode

    def wait(self, seconds: float) -> int:
        """The same, once it has ended. Raises subprocess.TimeoutExpired."""
        connection.wait([self._process.sentinel], seconds)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("topomend operator", seconds)
        return code


def _run(kubeconfig: Path, log: Path, flags: tuple[str, ...], constants: Mapping[str, object]) -> None:
    os.environ["KUBECONFIG"] = str(kubeconfig)
    written = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(written, 1)
    os.dup2(written, 2)
    for path, value in constants.items():
        _replace(path, value)
    topomend(["operator", *flags])


def _replace(path: str, value: object) -> None:
    """Give a constant another value. Raises AttributeError where its module has none of that name."""
    module, _, name = path.rpartition(".")
    found = import_module(f"topomend.{module}")
    getattr(found, name)
    setattr(found, name, value)


def metrics_flag() -> str:
    """The flag of an operator that serves its metrics, as ``Operator.has_done`` needs them."""
    return f"--metrics-address=127.0.0.1:{free_ports(1)[0]}"


class Operator:
    """The real operator process, or one started by ``module``. Its log is kept for the test to read.

    ``constants`` are those of topomend's modules that have another value there, by their paths without the first part,
    such as ``{"reconcile.refused.brake.QUIET_SECONDS": 2.0}``: nobody waits for the product's own minutes.
    """

    def __init__(
        self, kubeconfig: Path, log: Path, *flags: str, module: str = "", constants: Mapping[str, object] | None = None
    ) -> None:
        self.log = log
        self._metrics = next((flag.partition("=")[2] for flag in flags if flag.startswith("--metrics-address=")), "")
        log.touch()
        self.process: subprocess.Popen[bytes] | OperatorProcess
        if module:
            self.process = _of_module(module, kubeconfig, log, flags)
        else:
            self.process = OperatorProcess(kubeconfig, log, flags, constants)

    def text(self) -> str:
        return self.log.read_text()

    def wait_until_it_watches(self) -> None:
        """From then on what happens is seen as it happens, not by the next relist."""
        eventually("the operator to list", lambda: "the cluster is listed" in self.text())
        eventually("the operator to watch", lambda: "every kind is watched" in self.text())

    def has_done(self, duty: str, times: int = 1) -> None:
        """Wait until a duty was done so often, from its begin to its end: whatever it does, it has done by then.

        The operator leads, and has a ``metrics_flag``.
        """
        for _ in range(times + 1):  # the first one that ends may have begun before
            before = self._last_done(duty)
            eventually(f"{duty} to be done", lambda: self._last_done(duty) > before)  # noqa: B023

    def _last_done(self, duty: str) -> float:
        """When the duty was last done without a failure; 0 where nobody says."""
        try:
            with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=30) as answer:
                text = answer.read().decode()
        except OSError:  # it has just been started
            return 0.0
        found = re.search(rf'_duty_last_success_timestamp_seconds{{duty="{duty}"}} (\S+)', text)
        return float(found[1]) if found else 0.0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(stretched(60))

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(stretched(60))


def _of_module(module: str, kubeconfig: Path, log: Path, flags: Sequence[str]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT / "operator")}
    with log.open("ab") as written:
        return subprocess.Popen(
            [sys.executable, "-m", module, "operator", *flags],
            cwd=ROOT,
            env=environment,
            stdout=written,
            stderr=subprocess.STDOUT,
        )
