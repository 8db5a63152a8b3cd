"""Work that depends on no other test: begun with the run, waited for by its test.

The tests in between mostly wait for other programs. What needs nothing but processors holds none of them up: it runs
when nobody else wants to. A test that has such work says so by the marker ``early``, and ``tests/conftest.py`` begins
it.
"""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAST, AS_EVERYBODY = 19, 0
"""Nicenesses."""


class Early:
    """One Python module with its arguments, run at most once; ``nice`` to whoever else wants a processor."""

    def __init__(self, module: str, *arguments: str, nice: bool = True) -> None:
        self._command, self._nice = [sys.executable, "-m", module, *arguments], nice

    def begin(self) -> None:
        """Have it run, if it does not yet."""
        self._be(LAST)

    def result(self) -> tuple[int, str]:
        """Its exit code and all it wrote, once it has ended; begun now, where it was not."""
        self._be(AS_EVERYBODY)
        code = self._process.wait()
        return code, self._log.read_text()

    def end(self) -> None:
        """Have it no longer run, and forget what it wrote."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait()
        self._log.unlink()

    @cached_property
    def _log(self) -> Path:
        descriptor, name = tempfile.mkstemp(prefix="early-")
        os.close(descriptor)
        return Path(name)

    @cached_property
    def _process(self) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as log:
            return subprocess.Popen(
                self._command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def _be(self, niceness: int) -> None:
        """So nice, if at all; less nice than before only root's processes can become."""
        pid = self._process.pid
        if self._nice:
            with suppress(OSError):
                os.setpriority(os.PRIO_PGRP, pid, niceness)
            with suppress(OSError):  # where sessions share the processors each has a niceness of its own (sched(7))
                Path(f"/proc/{pid}/autogroup").write_text(str(niceness))
