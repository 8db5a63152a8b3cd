"""Strangers beside the programs: connections that they hold, and requests with which they keep the API server busy."""

import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
from tests.clusters import NODE_A, Cluster
from tests.deploy.api import API
from tests.deploy.conftest import admin, token_of
from tests.operator_process import Operator, OperatorProcess
from tests.processes import end
from tests.waiting import awake, eventually

from topomend.runtime.http.endpoints import CONNECTION_SECONDS, MAX_CONNECTIONS
from topomend.sandbox.processes.host import free_ports

__all__ = ["admin"]  # the fixture

pytestmark = pytest.mark.cluster

CONNECTIONS = 1500
SCHEMAS = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"


def free_address() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"


def status(address: str, path: str) -> int:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
        return int(answer.status)


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


@contextmanager
def idle_connections(address: str) -> Iterator[None]:
    host, _, port = address.rpartition(":")
    with ExitStack() as opened:
        for _ in range(CONNECTIONS):
            opened.enter_context(socket.create_connection((host, int(port))))
        yield


def answered_after(address: str) -> float:
    """The longer of both probes' answers, in seconds.

    One that is turned away, because the thread of a connection in whose place it comes is slow to end, asks again.
    """
    took = []
    for path in ("/healthz", "/readyz"):
        asked = awake()
        eventually(f"an answer to {path}", lambda: _is_answered(address, path))  # noqa: B023
        took.append(awake() - asked)
    return max(took)


def check_beside_idle_connections(pid: int, address: str) -> None:
    process = psutil.Process(pid)
    before, quiet, memory = threads(pid), answered_after(address), process.memory_info().rss
    with idle_connections(address):
        beside = answered_after(address)
        print(
            f"\nprobes answered after {beside:.3f} s, with {process.memory_info().rss >> 20} MiB, "
            f"beside {CONNECTIONS} idle connections; after {quiet:.3f} s, with {memory >> 20} MiB, beside none"
        )
        assert beside < CONNECTION_SECONDS / 2, "long before the idle ones are closed"
        eventually(
            "few threads to be left", lambda: threads(pid) <= before + MAX_CONNECTIONS + 1, CONNECTION_SECONDS / 2
        )


def test_idle_connections_neither_add_threads_to_the_operator_nor_hold_up_its_probes(
    start_operator: Callable[..., Operator],
) -> None:
    address = free_address()
    operator = start_operator(f"--health-address={address}")
    operator.wait_until_it_watches()
    eventually("the operator to be ready", lambda: _is_answered(address, "/readyz"))
    assert isinstance(operator.process, OperatorProcess)
    pid = operator.process._process.pid
    assert pid
    check_beside_idle_connections(pid, address)


def test_idle_connections_neither_add_threads_to_an_agent_nor_hold_up_its_probes(two_nodes: Cluster) -> None:
    address = free_address()
    command = [sys.executable, "-m", "topomend.cli", "agent", f"--node-name={NODE_A}", f"--health-address={address}"]
    agent = subprocess.Popen(command, env={"KUBECONFIG": str(two_nodes.sandbox.kubeconfig), "PATH": "/usr/bin:/bin"})
    try:
        eventually("the agent to be ready", lambda: _is_answered(address, "/readyz"))
        check_beside_idle_connections(agent.pid, address)
    finally:
        end(agent)
        two_nodes.publish(two_nodes.states[NODE_A])


def _is_answered(address: str, path: str) -> bool:
    try:
        return status(address, path) == 200
    except OSError:
        return False


@pytest.mark.parametrize(
    ("namespace", "account", "path", "schema"),
    [
        ("topomend-system", "topomend-operator", "/api/v1/pods?limit=1", "topomend-operator"),
        (
            "topomend-system",
            "topomend-operator",
            "/apis/coordination.k8s.io/v1/namespaces/topomend-system/leases/topomend-operator",
            "topomend-operator-lease",
        ),
        ("topomend-agent", "topomend-agent", "/apis/topomend.io/v1alpha1/nodetopologies/a", "topomend-agent"),
        ("default", "default", "/api/v1/pods?limit=1", "service-accounts"),
    ],
)
def test_requests_of_topomend_do_not_wait_behind_those_of_other_accounts(
    admin: API, namespace: str, account: str, path: str, schema: str
) -> None:
    """The API server names the FlowSchema of each request in its answer."""
    token = token_of(admin, namespace, account)
    expected = admin.get(f"{SCHEMAS}/{schema}").content["metadata"]["uid"]
    eventually(f"requests of {account} to be of {schema}", lambda: _schema_of(admin.as_token(token), path) == expected)


def _schema_of(api: API, path: str) -> str:
    request = urllib.request.Request(api.server + path, headers={"Authorization": f"Bearer {api.token}"})  # noqa: S310
    context = ssl.create_default_context(cadata=api.authority)
    try:
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:  # noqa: S310
            return str(answer.headers["X-Kubernetes-Pf-Flowschema-Uid"])
    except urllib.error.HTTPError as error:
        with error:
            return str(error.headers["X-Kubernetes-Pf-Flowschema-Uid"])
