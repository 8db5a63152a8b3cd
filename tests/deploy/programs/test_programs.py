"""The two programs themselves, under the accounts that the manifests give them: their rights are enough."""

import base64
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.deploy.api import API
from tests.waiting import eventually

from topomend.sandbox import Sandbox
from topomend.sandbox.processes.host import free_ports
from topomend.wire.published.node_topology import read_node_topology

pytestmark = pytest.mark.cluster  # the programs talk to a real API server

TOPOMEND = [sys.executable, "-m", "topomend.cli"]


def environment(api: API, folder: Path) -> dict[str, str]:
    """With a kubeconfig for the account of ``api``."""
    cluster = {"server": api.server, "certificate-authority-data": base64.b64encode(api.authority.encode()).decode()}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandbox", "cluster": cluster}],
        "users": [{"name": "sandbox", "user": {"token": api.token}}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
        "current-context": "sandbox",
    }
    path = folder / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(kubeconfig))
    return os.environ | {"KUBECONFIG": str(path)}


def test_the_agent_gets_by_with_its_rights(
    admin: API, agent_on: Callable[[str], API], cluster: Sandbox, tmp_path: Path
) -> None:
    node = cluster.nodes[0].name
    path = f"/apis/topomend.io/v1alpha1/nodetopologies/{node}"
    admin.delete(path)
    run = subprocess.run(
        [*TOPOMEND, "agent", "--node-name", node, "--once"],
        env=environment(agent_on(node), tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr
    written = admin.get(path).content
    admin.delete(path)
    assert written["metadata"]["ownerReferences"][0]["name"] == node
    assert read_node_topology(written).machine.cpus


def test_the_operator_gets_by_with_its_rights(operator: API, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    log = tmp_path / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*TOPOMEND, "operator", f"--health-address={address}"],
            env=environment(operator, tmp_path),
            stderr=stderr,
        )
        try:
            eventually("the operator's health", lambda: healthy(address))
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text()
    # Not every refusal tells of a missing right: the namespaces of other tests may be ending.
    assert not [line for line in log.read_text().splitlines() if "in API group" in line or "denied request" in line]


def healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=30) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
