"""What the demo stands on: a sandbox, topomend's processes under their own accounts, a console, and patience.

What is told is ``demo``'s.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml
from rich.console import Console

from topomend.kube.client import Client, connect
from topomend.sandbox import NodeSpec, Sandbox

PATIENCE = 60.0
POLL = 0.05

_Found = TypeVar("_Found")


class DidNotHappen(Exception):
    """What the story tells next was not seen in the API in time."""


@dataclass(frozen=True, slots=True)
class Account:
    """A service account that the manifests install."""

    namespace: str
    name: str


class Stage:
    """The sandbox, the processes of topomend on it, and the console: a context manager that ends them all."""

    def __init__(self, console: Console, nodes: Sequence[NodeSpec]) -> None:
        self._console = console
        self._nodes = nodes
        self._began = time.monotonic()
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Stage":
        self.title(f"A control plane and {len(self._nodes)} NUMA machines")
        self.sandbox = Sandbox.up(self._nodes, on_progress=self.say)
        self.client: Client = connect(str(self.sandbox.kubeconfig))
        return self

    def __exit__(self, *failure: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.client.close()
        self.sandbox.down()
        self.say("everything is taken down again")

    def title(self, text: str) -> None:
        """Open a chapter."""
        self._console.print(f"\n[bold cyan]{text}[/]  [dim]{time.monotonic() - self._began:.1f} s[/]")

    def say(self, text: str) -> None:
        """Tell one thing."""
        self._console.print(f"  {text}", markup=False)

    def run(self, command: list[str], last: int | None = None) -> None:
        """Show a kubectl command and what it prints; no more than the ``last`` lines of it, if that is given."""
        self._console.print(f"  [green]$[/] [bold]{' '.join(command)}[/]")
        done = self._numa(command[2:]) if command[1] == "numa" else self._kubectl(command[1:])
        lines = done.stdout.splitlines()
        for line in [*lines[len(lines) - last if last is not None else 0 :], *done.stderr.splitlines()]:
            self._console.print(f"    {line}", markup=False)
        if done.returncode:
            raise DidNotHappen(f"{' '.join(command)} ended with {done.returncode}")

    def start(self, arguments: list[str], account: Account, pod: str, node: str = "") -> None:
        """Start a part of topomend under its account and its pod's token, within the machine of ``node`` if named."""
        name = f"topomend-{arguments[0]}{f'-{node}' if node else ''}"
        prefix = self.sandbox.exec_prefix(node) if node else []
        environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig_of(account, pod, name))}
        with (self.sandbox.folder / "logs" / f"{name}.log").open("wb") as log:
            command = [*prefix, sys.executable, "-m", "topomend.cli", *arguments]
            self._processes.append(
                subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def _kubectl(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.sandbox.kubectl_prefix(), *arguments], capture_output=True, text=True, check=False)

    def _numa(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        """The plugin, as kubectl would run it: found by name where it is installed, here by its entry."""
        entry = [sys.executable, "-c", "from topomend.cli.kubectl_numa import main; main()"]
        environment = {**os.environ, "KUBECONFIG": str(self.sandbox.kubeconfig)}
        return subprocess.run([*entry, *arguments], env=environment, capture_output=True, text=True, check=False)

    def _kubeconfig_of(self, account: Account, pod: str, name: str) -> Path:
        """A kubeconfig with the token that the account has in its pod: it carries the node that the pod runs on."""
        bound = ["--namespace", account.namespace, "--bound-object-kind", "Pod", "--bound-object-name", pod]
        done = self._kubectl(["create", "token", account.name, *bound])
        if done.returncode:
            raise DidNotHappen(f"no token for {account.name}: {done.stderr.strip()}")
        kubeconfig = yaml.safe_load(self.sandbox.kubeconfig.read_text())
        kubeconfig["users"][0]["user"] = {"token": done.stdout.strip()}
        path = self.sandbox.folder / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(kubeconfig))
        return path

    def wait(self, what: str, look: Callable[[], _Found | None], patience: float = PATIENCE) -> _Found:
        """Look until something is found. Raises DidNotHappen."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            found = look()
            if found:
                return found
            for process in self._processes:
                if process.poll() is not None:
                    raise DidNotHappen(f"{what}: a process of topomend ended with {process.returncode}")
            time.sleep(POLL)
        raise DidNotHappen(f"{what}, within {patience:.0f} s")
