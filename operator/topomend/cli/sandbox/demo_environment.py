"""The demo's cluster: a sandbox, the demo's lines on the terminal, and waiting with a deadline.

The story itself is left to ``demo``.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from topomend.cli.output.console import echo, echo_styled
from topomend.kube.client import Client, connect
from topomend.sandbox import NodeSpec, ProgramFailed, Sandbox

PATIENCE = 60.0
POLL = 0.05

_Result = TypeVar("_Result")


class StepFailed(Exception):
    """The API did not show the next step of the story in time."""


class DemoCluster:
    """A sandbox as a context manager, which takes it down at the end."""

    def __init__(self, nodes: Sequence[NodeSpec]) -> None:
        self._nodes = nodes
        self._began = time.monotonic()

    def __enter__(self) -> "DemoCluster":
        self.echo_heading(f"A control plane and {len(self._nodes)} NUMA machines")
        self.sandbox = Sandbox.up(self._nodes, on_progress=self.echo)
        self.client: Client = connect(str(self.sandbox.kubeconfig))
        return self

    def __exit__(self, *failure: object) -> None:
        self.client.close()
        self.sandbox.down()
        self.echo("The sandbox is taken down.")

    def echo_heading(self, text: str) -> None:
        """Print the heading of a chapter, with the time since the start."""
        elapsed = f"  {time.monotonic() - self._began:.1f} s"
        echo()
        echo_styled((text, {"fg": "cyan", "bold": True}), (elapsed, {"dim": True}))

    def echo(self, text: str) -> None:
        """Print one line of the story."""
        echo(f"  {text}")

    def run(self, command: list[str], last: int | None = None) -> None:
        """Run a kubectl command and print it with its output; only the ``last`` lines if that is given.

        Raises StepFailed if the command fails.
        """
        echo_styled(("  $ ", {"fg": "green"}), (" ".join(command), {"bold": True}))
        done = self._numa(command[2:]) if command[1] == "numa" else self._kubectl(command[1:])
        lines = done.stdout.splitlines()
        for line in [*lines[len(lines) - last if last is not None else 0 :], *done.stderr.splitlines()]:
            echo(f"    {line}")
        if done.returncode:
            raise StepFailed(f"{' '.join(command)} ended with {done.returncode}")

    def _kubectl(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.sandbox.kubectl_prefix(), *arguments], capture_output=True, text=True, check=False)

    def _numa(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        """Run the plugin by its entry point: kubectl would find it by name only if it were installed."""
        entry = [sys.executable, "-c", "from topomend.cli.kubectl_numa import main; main()"]
        environment = {**os.environ, "KUBECONFIG": str(self.sandbox.kubeconfig)}
        return subprocess.run([*entry, *arguments], env=environment, capture_output=True, text=True, check=False)

    def wait(self, goal: str, look: Callable[[], _Result | None], patience: float = PATIENCE) -> _Result:
        """Call ``look`` until its result is true, and return that. Raises StepFailed after ``patience`` seconds."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            result = look()
            if result:
                return result
            try:
                self.sandbox.check_programs()
            except ProgramFailed as failure:
                raise StepFailed(f"{goal}: {failure}") from failure
            time.sleep(POLL)
        raise StepFailed(f"{goal}, within {patience:.0f} s")
