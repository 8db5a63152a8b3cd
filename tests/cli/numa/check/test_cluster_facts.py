"""A server that is broken, or that is no API server: each check is not done and says why, and nothing ends in a trace.

What is read of a real API server: tests/check/test_seeded_faults.py.
"""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from tests.check.cluster import facts_of
from tests.deploy.base.test_renamed import PREFIX, renamed

from topomend.check.catalogue import CHECKS
from topomend.check.installed_objects import read_deployment
from topomend.check.shipped import Shipped
from topomend.cli.kubectl_numa import numa
from topomend.cli.numa.check import check
from topomend.cli.numa.check.cluster_facts import manifests, names_of

WRONG = {"metadata": 7, "spec": 7, "status": 7, "data": 7, "webhooks": 7, "resources": [7]}
NAMED = {"name": "x", "namespace": "y", "resourceVersion": "1", "labels": {"app.kubernetes.io/component": 7}}

ANSWERS: dict[str, tuple[int, bytes]] = {
    "a failure": (500, json.dumps({"kind": "Status", "reason": "InternalError", "message": "etcd is ill"}).encode()),
    "nothing": (404, b'{"kind": "Status", "reason": "NotFound", "message": "there is none"}'),
    "a page of a proxy": (200, b"<html>Please log in</html>"),
    "objects of wrong fields": (200, json.dumps({**WRONG, "metadata": NAMED, "items": []}).encode()),
    "no objects": (200, json.dumps({**WRONG, "items": [7], "components": {"schemas": {"a.Brake": 7}}}).encode()),
    "lists of wrong objects": (
        200,
        json.dumps({"metadata": {}, "items": [{**WRONG, "metadata": NAMED}], "components": 7}).encode(),
    ),
}


class Broken(ThreadingHTTPServer):
    """Says its version, and to everything else the same."""

    daemon_threads = True

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.body = status, body


class _Handler(BaseHTTPRequestHandler):
    server: Broken

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        is_version = self.path.startswith("/version")
        body = b'{"gitVersion": "v1.37.2"}' if is_version else self.server.body
        self.send_response(200 if is_version else self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def kubeconfig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    server = Broken(*ANSWERS[request.param])
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    cluster = {"server": f"http://127.0.0.1:{server.server_address[1]}"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    yield tmp_path / "config"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("kubeconfig", ANSWERS, indirect=True)
def test_a_broken_server_is_no_healthy_cluster(kubeconfig: Path) -> None:
    result = CliRunner().invoke(numa, ["check", "-o", "json", "--kubeconfig", str(kubeconfig)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code in (1, 3)
    if result.stdout:
        document = json.loads(result.stdout)
        assert document["ok"] is False
        assert document["done"] + len(document["notDone"]) in (1, len(CHECKS))
        assert document["problems"] or len(document["notDone"]) > 40


@pytest.mark.parametrize("kubeconfig", ["a failure"], indirect=True)
def test_each_reason_is_said_once_with_the_codes_that_wait_for_it(kubeconfig: Path) -> None:
    result = CliRunner().invoke(numa, ["check", "--kubeconfig", str(kubeconfig)])
    lines = [line for line in result.stdout.splitlines() if line.startswith("NOT DONE ")]
    assert "NOT DONE TM117: the webhook's certificate: 500 InternalError: etcd is ill" in lines
    assert len(lines) == len(set(lines)) > 10
    assert result.stdout.splitlines()[-1].startswith("Nothing wrong was found: 2 checks, ")


@pytest.mark.parametrize("kubeconfig", ["nothing"], indirect=True)
def test_wait_says_once_what_it_waits_for_until_its_time_is_over(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = count()
    monkeypatch.setattr(check, "time", SimpleNamespace(monotonic=lambda: next(passed), sleep=lambda _: None))
    result = CliRunner().invoke(numa, ["check", "--wait", "30", "--kubeconfig", str(kubeconfig)])
    assert result.exit_code == 1
    assert next(passed) > 30
    (line,) = result.stderr.splitlines()
    assert line.startswith("waiting: TM101 CustomResourceDefinition brakes.topomend.io: ")
    assert line.endswith(", and 3 more")
    assert result.stdout.startswith("ERROR    TM101  4 CustomResourceDefinitions (")


def test_the_policies_of_an_operator_that_observes_are_looked_for_under_their_prefix(tmp_path: Path) -> None:
    items = renamed(tmp_path, "observe")
    (deployment,) = [item for item in items if item["kind"] == "Deployment"]
    facts = facts_of(operators=(read_deployment(deployment),))
    assert facts.observes
    bindings = [item["spec"] for item in items if item["kind"] == "ValidatingAdmissionPolicyBinding"]
    installed = {spec["policyName"]: spec["paramRef"]["name"] for spec in bindings}
    assert Shipped(manifests()).policies(names_of(facts), observes=True) == installed
    assert all(name.startswith(PREFIX) for name in installed)
