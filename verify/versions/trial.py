"""What is tried on one release in a sandbox, on machines with several NUMA nodes, and what was seen there."""

import os
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path

from verify.versions.cluster import nodes, say
from verify.versions.new_pods import create_namespaces, time_new_pods, time_webhook, try_steering
from verify.versions.relaunches import try_end, try_kill
from verify.versions.upgrade import try_upgrade
from verify.versions.webhook_time import WebhookTime

from topomend.kube.client import connect
from topomend.sandbox import Sandbox

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Row:
    """What was seen on one release: seconds, pods in all, and how the random pods compared."""

    release: str
    after_kill: float
    ended_free: str
    steered: str
    new_pods: str
    webhook: WebhookTime
    random_pods: str
    upgraded: str

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        return tuple(_cell(getattr(self, field.name)) for field in fields(self))


def _cell(value: object) -> str:
    match value:
        case float():
            return f"{value:.1f} s"
        case WebhookTime():
            return value.text()
        case _:
            return str(value)


def try_release(release: str, pods: int, older: str, following: str) -> Row:
    """Bring up a cluster of the release and try everything on it. Raises SandboxError, TimedOut.

    Random pods are tried a second time where half of the kubelets are ``older``, unless that is empty. The control
    plane is upgraded to ``following``, unless that is empty.
    """
    with Sandbox.up(nodes(release), version=release, topomend=True, on_progress=say) as sandbox:
        client = connect(str(sandbox.kubeconfig))
        try:
            after_kill = try_kill(client, sandbox.name)
            create_namespaces(client)
            ended = try_end(client, release)
            steered = try_steering(client)
            webhook = time_webhook(client, sandbox)
            new_pods = time_new_pods(client)
        finally:
            client.close()
    compared = _compare(release, pods, release)
    if older:
        compared += f"; kubelets of {older} as well: {_compare(release, pods, f'{release},{older}')}"
    upgraded = try_upgrade(release, following) if following else "-"
    return Row(release, after_kill, ended, steered, new_pods, webhook, compared, upgraded)


def _compare(release: str, pods: int, kubelets: str) -> str:
    """The verdict of the live tests with so many random pods on kubelets of these releases, separated by commas."""
    command = [sys.executable, "-m", "pytest", "-q", "--timeout", "3600", "tests/live/test_agreement.py"]
    environment = {**os.environ, "TOPOMEND_LIVE_PODS": str(pods), "TOPOMEND_KUBERNETES": release}
    environment["TOPOMEND_KUBELETS"] = kubelets
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout[-6000:], file=sys.stderr)
    return f"{pods}: {'agree' if done.returncode == 0 else 'DISAGREE'}"
