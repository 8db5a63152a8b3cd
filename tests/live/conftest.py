"""Real kubelets with the real agents beside them, each in its kubelet's own mount namespace."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from tests.processes import end
from tests.waiting import eventually

from topomend.cli.kubectl_numa import numa
from topomend.kube.client import Client, connect
from topomend.kube.errors import AlreadyExists, NotFound
from topomend.kube.resources import NODE_TOPOLOGIES, Resource
from topomend.sandbox import Sandbox
from topomend.wire.group import API_VERSION

ROOT = Path(__file__).parents[2]
CRDS = Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)


def install_kinds(client: Client) -> None:
    """Install the CustomResourceDefinitions, where they are not yet, and wait until they are served."""
    for path in sorted((ROOT / "crds").glob("topomend.io_*.yaml")):
        content = yaml.safe_load(path.read_text())
        with suppress(AlreadyExists):
            client.create(CRDS, content)
        plural = content["spec"]["names"]["plural"]
        eventually(f"{plural} to be served", partial(_is_listed, client, Resource(API_VERSION, plural)))


def _is_listed(client: Client, resource: Resource) -> bool:
    try:
        client.list(resource)
    except NotFound:
        return False
    return True


def start_agent(sandbox: Sandbox, name: str, log: Path, kubelet_config: Path | None = None) -> subprocess.Popen[bytes]:
    """The agent of a node, as a process that sees the node's machine. ``kubelet_config`` replaces the kubelet's own."""
    node = sandbox.node(name)
    flags = [
        "--node-name",
        name,
        "--kubelet-config",
        kubelet_config or node.kubelet_config,
        "--pod-resources",
        node.pod_resources,
    ]
    flags += ["--kubelet-state", node.kubelet_state]
    with log.open("wb") as stream:
        return subprocess.Popen(
            [*sandbox.exec_prefix(name), sys.executable, "-m", "topomend.cli", "agent", *map(str, flags)],
            env={
                **os.environ,
                "KUBECONFIG": str(sandbox.kubeconfig),
                "PYTHONPATH": str(ROOT / "operator"),
                "PYTHONFAULTHANDLER": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )


@pytest.fixture
def with_agents(tmp_path: Path) -> Iterator["Agents"]:
    """Starts agents on sandboxes; they end with the test."""
    with ExitStack() as stack:
        yield Agents(stack, tmp_path)


@pytest.fixture(scope="module")
def published(cluster: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The shared cluster with its agents, which run as long as the module's tests; every node is published."""
    with ExitStack() as stack:
        client = Agents(stack, tmp_path_factory.mktemp("agents")).start(cluster)
        wait_until_published(cluster)
        yield client


def wait_until_published(sandbox: Sandbox) -> None:
    """Wait until each node's agent has published, on a cluster without an operator."""
    arguments = ["check", "--skip", "TM1", "--kubeconfig", str(sandbox.kubeconfig)]
    eventually("every node to be published", lambda: CliRunner().invoke(numa, arguments).exit_code == 0, 60)


class Agents:
    """Starts an agent for every node of a sandbox and connects to it."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack, self._folder = stack, folder

    def start(self, sandbox: Sandbox) -> Client:
        """What other agents have published is gone: they may have ended before they saw the last pods end."""
        client = connect(str(sandbox.kubeconfig))
        self._stack.callback(client.close)
        install_kinds(client)
        for topology in client.list(NODE_TOPOLOGIES).items:
            metadata = topology["metadata"]
            client.delete(NODE_TOPOLOGIES, metadata["name"], uid=metadata["uid"])
        for node in sandbox.nodes:
            process = start_agent(sandbox, node.name, self._folder / f"agent-{node.name}.log")
            self._stack.callback(end, process)
        return client
