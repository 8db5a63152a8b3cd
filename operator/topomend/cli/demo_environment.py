"""What the demo stands on: a sandbox, and patience.

What is told is ``demo``'s.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from topomend.kube.client import Client, connect
from topomend.sandbox import NodeSpec, ProgramFailed, Sandbox

PATIENCE = 60.0
POLL = 0.05

_Found = TypeVar("_Found")


class DidNotHappen(Exception):
    """What the story tells next was not seen in the API in time."""


class Stage:
    """The sandbox: a context manager that ends it."""

    def __init__(self, nodes: Sequence[NodeSpec]) -> None:
        self._nodes = nodes
        self._began = time.monotonic()

    def __enter__(self) -> "Stage":
        self.title(f"A control plane and {len(self._nodes)} NUMA machines")
        self.sandbox = Sandbox.up(self._nodes, on_progress=self.say)
        self.client: Client = connect(str(self.sandbox.kubeconfig))
        return self

    def __exit__(self, *failure: object) -> None:
        self.client.close()
        self.sandbox.down()
        self.say("everything is taken down again")

    def title(self, text: str) -> None:
        """Open a chapter."""
        elapsed = click.style(f"{time.monotonic() - self._began:.1f} s", dim=True)
        click.echo(f"\n{click.style(text, fg='cyan', bold=True)}  {elapsed}")

    def say(self, text: str) -> None:
        """Tell one thing."""
        click.echo(f"  {text}")

    def run(self, command: list[str], last: int | None = None) -> None:
        """Show a kubectl command and what it prints; no more than the ``last`` lines of it, if that is given."""
        click.echo(f"  {click.style('$', fg='green')} {click.style(' '.join(command), bold=True)}")
        done = self._numa(command[2:]) if command[1] == "numa" else self._kubectl(command[1:])
        lines = done.stdout.splitlines()
        for line in [*lines[len(lines) - last if last is not None else 0 :], *done.stderr.splitlines()]:
            click.echo(f"    {line}")
        if done.returncode:
            raise DidNotHappen(f"{' '.join(command)} ended with {done.returncode}")

    def _kubectl(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.sandbox.kubectl_prefix(), *arguments], capture_output=True, text=True, check=False)

    def _numa(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        """The plugin, as kubectl would run it: found by name where it is installed, here by its entry."""
        entry = [sys.executable, "-c", "from topomend.cli.kubectl_numa import main; main()"]
        environment = {**os.environ, "KUBECONFIG": str(self.sandbox.kubeconfig)}
        return subprocess.run([*entry, *arguments], env=environment, capture_output=True, text=True, check=False)

    def wait(self, what: str, look: Callable[[], _Found | None], patience: float = PATIENCE) -> _Found:
        """Look until something is found. Raises DidNotHappen."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            found = look()
            if found:
                return found
            try:
                self.sandbox.check_programs()
            except ProgramFailed as failure:
                raise DidNotHappen(f"{what}: {failure}") from failure
            time.sleep(POLL)
        raise DidNotHappen(f"{what}, within {patience:.0f} s")
