"""A client of the oracle: a process that answers one case at a time, restarted after a case that did not end."""

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

Case: TypeAlias = dict[str, Any]
"""A case as ``kubelet/case.go`` describes it."""

Answer: TypeAlias = dict[str, Any]
"""The oracle's answer to a case, as ``kubelet/case.go`` describes it."""


class OracleFailed(RuntimeError):
    """The oracle ended without an answer; the text is the end of its output."""


class KubeletOracle:
    """The kubelet's own managers behind a pipe. Use it as a context manager."""

    def __init__(self, binary: Path) -> None:
        self._binary = binary
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "KubeletOracle":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def send(self, case: Case) -> None:
        """Send a case; call ``receive`` before the next."""
        if self._process is None:
            self._process = subprocess.Popen(
                [self._binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()

    def receive(self) -> Answer:
        """The answer to the last case that was sent. Raises OracleFailed."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise OracleFailed(self._last_words())
        answer: Answer = json.loads(line)
        if answer.get("timeout"):
            self._stop()
        return answer

    def ask(self, case: Case) -> Answer:
        """Send a case and wait for its answer. Raises OracleFailed."""
        self.send(case)
        return self.receive()

    def _last_words(self) -> str:
        assert self._process is not None
        assert self._process.stderr is not None
        words = self._process.stderr.read()[-2000:]
        self._stop()
        return words or "the oracle ended without a message"

    def _stop(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.kill()
        process.wait()
