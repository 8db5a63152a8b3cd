"""Lives of the operator that begin in milliseconds: each is forked from a server that has its modules loaded.

What runs is the command itself (``topomend operator``) in a process of its own, to be killed like any other; only the
second that Python takes to load the modules is spent once, not once a life.
"""

import os
import subprocess
import threading
from collections.abc import Iterable
from multiprocessing import connection, get_context
from pathlib import Path

from kubernetes.config import kube_config

from topomend.cli.main import main as topomend

_MODULES = [__name__, "topomend.cli.operator", "topomend.controller.operator", "topomend.controller.watch_streams"]

_server = get_context("forkserver")
_server.set_forkserver_preload(_MODULES)


_lock = threading.Lock()
"""The start of a process looks at the ends of all others, and an end can be read once."""


class Life:
    """One operator process, from its start on; what can be done to it is named as in ``subprocess.Popen``."""

    def __init__(self, kubeconfig: Path, log: Path, flags: Iterable[str]) -> None:
        self._process = _server.Process(target=_live, args=(kubeconfig, log, tuple(flags)), daemon=True)
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


def _live(kubeconfig: Path, log: Path, flags: tuple[str, ...]) -> None:
    os.environ["KUBECONFIG"] = kube_config.KUBE_CONFIG_DEFAULT_LOCATION = str(kubeconfig)  # read when it was loaded
    written = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(written, 1)
    os.dup2(written, 2)
    topomend(["operator", *flags])
