"""What mode relaunch has left is ended however long that takes, and nobody is told to do what the operator does."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.builders import gated_pod, pod_manifest, snapshot_of
from tests.clock import Clock
from tests.reconcile.emitted import Emitted

from topomend.cache import changes
from topomend.drain.pods import AT_ONCE
from topomend.gating.definitions import Installation
from topomend.kube.client import Client, connect
from topomend.kube.resources import LEASES, PODS, RELAUNCHES
from topomend.model.relaunch_record import Relaunch, Step
from topomend.reconcile.observe.hand_back import RETRY_SECONDS, HandBack
from topomend.reconcile.store import Store
from topomend.runtime import leader_election
from topomend.runtime.leader_election import DURATION_SECONDS, RENEW_DEADLINE_SECONDS, LeaderElection
from topomend.wire.group import FIT_GATE
from topomend.wire.relaunch_record import read_relaunch, record_name, relaunch_object

SYSTEM = "system"
LEASE = LEASES.path(SYSTEM, leader_election.NAME)
RECORDS, HELD = 4, 12
MOST_SECONDS = 30.0

Object = dict[str, Any]


@dataclass
class APIServer:
    """Objects by their paths. ``wrote`` is called at each write but those to the Lease, which ``renewed`` counts."""

    clock: Clock = field(default_factory=Clock)
    objects: dict[str, Object] = field(default_factory=dict)
    wrote: Callable[[], None] = lambda: None
    writes: int = 0
    version: int = 0
    renewed: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)
    one_write: threading.Lock = field(default_factory=threading.Lock)

    def put(self, path: str, content: Object) -> Object:
        self.version += 1
        content = {**content, "metadata": {**content["metadata"], "resourceVersion": str(self.version)}}
        self.objects[path] = content
        return content

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Object]:
        if method != "GET" and not path.startswith(LEASES.path(SYSTEM)):
            with self.one_write:
                self.writes += 1
                self.wrote()
        with self.changed:
            self.renewed += path == LEASE and method == "PATCH"
            self.changed.notify_all()
            return self._answer(method, path.removesuffix("/status"), body)

    def _answer(self, method: str, path: str, body: Any) -> tuple[int, Object]:
        plural = path.rpartition("/")[2]
        if method == "GET" and plural in ("pods", "relaunches"):
            items = [content for name, content in self.objects.items() if f"/{plural}/" in name]
            return 200, {"items": items, "metadata": {"resourceVersion": str(self.version)}}
        if method == "POST":
            return 201, self.put(f"{path}/{body['metadata']['name']}", body)
        there = self.objects.get(path)
        if there is None:
            return 404, {"kind": "Status", "reason": "NotFound", "code": 404, "message": f"{path} not found"}
        if method == "PATCH":
            expected = body.get("metadata", {}).get("resourceVersion")
            if expected not in (None, there["metadata"]["resourceVersion"]):
                return 409, {"kind": "Status", "reason": "Conflict", "code": 409, "message": "changed"}
            return 200, self.put(path, merged(there, body))
        if method == "DELETE":
            del self.objects[path]
        return 200, there

    @property
    def holder(self) -> str:
        return str(self.objects[LEASE]["spec"]["holderIdentity"])

    def take_lease(self, holder: str) -> None:
        with self.changed:
            self.put(LEASE, merged(self.objects[LEASE], {"spec": {"holderIdentity": holder}}))


def merged(content: Object, patch: Object) -> Object:
    """RFC 7386."""
    result = dict(content)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name) or {}, value) if isinstance(value, dict) else value
    return result


def handler_of(server: APIServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def _do(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            status, content = server.answer(self.command, urlsplit(self.path).path, body)
            answer = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_PATCH = do_DELETE = _do  # noqa: N815 - the names that the standard library calls

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name there
            del format, arguments

    return Handler


@pytest.fixture
def server() -> APIServer:
    return APIServer()


@pytest.fixture
def client(server: APIServer, tmp_path: Path) -> Iterator[Client]:
    listener = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(server))
    thread = threading.Thread(target=listener.serve_forever)
    thread.start()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{listener.server_port}"}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    client = connect(str(kubeconfig))
    yield client
    client.close()
    listener.shutdown()
    listener.server_close()
    thread.join()


@dataclass
class Left:
    """What an operator of mode relaunch has left, in the snapshot and on the API server, and who hands it back."""

    server: APIServer
    client: Client
    emitted: Emitted = field(default_factory=Emitted)
    store: Store = field(default_factory=Store)

    def __post_init__(self) -> None:
        pods = [gated_pod(f"held-{number}") for number in range(HELD)]
        records = [record(number) for number in range(RECORDS)]
        for pod in pods:
            manifest = pod_manifest(pod.name, gates=(FIT_GATE,), namespace=pod.namespace, uid=pod.uid)
            self.server.put(PODS.path(pod.namespace, pod.name), manifest)
        for each in records:
            self.server.put(RELAUNCHES.path(each.namespace, each.name), relaunch_object(each))
        self.store.snapshot = snapshot_of(pods=pods)
        for each in records:
            self.store.apply(changes.RelaunchUpdated(each))

    def hand_back(self) -> HandBack:
        clock = self.server.clock
        election = LeaderElection(self.client, SYSTEM, "observer", lambda _: None, clock)
        installation = Installation(SYSTEM, "topomend-operator", "topomend-gating")
        return HandBack(self.client, self.store, self.emitted.announcer, installation, election=election, clock=clock)

    def held(self) -> int:
        """How many pods are gated."""
        return sum("schedulingGates" in content.get("spec", {}) for content in self.server.objects.values())

    def open_records(self) -> int:
        """How many relaunches have not ended."""
        records = [content for path, content in self.server.objects.items() if "/relaunches/" in path]
        return sum(read_relaunch(content).is_open for content in records)

    def are_gone(self) -> None:
        """The operator hears that nothing is left."""
        self.store.snapshot = snapshot_of()


def record(number: int) -> Relaunch:
    """One of which it was only recorded that a refused pod is to be replaced. The pod has been deleted since."""
    name, uid = f"refused-{number}", f"uid-{number}"
    return Relaunch(
        "default", record_name(name, uid), name, uid, "a", "TopologyAffinityError", "no", 1, step=Step.RECORDED
    )


def test_the_lease_is_renewed_as_long_as_there_is_something_to_end(
    server: APIServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_election, "RENEW_SECONDS", 0.01)

    def take_long() -> None:
        before, server.clock.now = server.renewed, server.clock.now + RENEW_DEADLINE_SECONDS / 4
        with server.changed:
            server.changed.wait_for(lambda: server.renewed > before, MOST_SECONDS)

    left, server.wrote = Left(server, client), take_long
    hand_back, began = left.hand_back(), server.clock.now
    hand_back.ensure()
    assert server.clock.now > began + DURATION_SECONDS
    assert (left.held(), left.open_records(), left.emitted.events) == (0, 0, [])
    left.are_gone()
    hand_back.ensure()
    assert server.holder == ""


@pytest.mark.parametrize("write", [1, RECORDS + 1], ids=["a record", "a pod"])
def test_where_another_operator_leads_meanwhile_the_rest_waits_and_no_pod_is_told_to_be_drained(
    server: APIServer, client: Client, write: int, caplog: pytest.LogCaptureFixture
) -> None:
    def take_over() -> None:
        if server.writes == write:
            server.take_lease("another")
            server.clock.now += RENEW_DEADLINE_SECONDS

    left, server.wrote = Left(server, client), take_over
    hand_back = left.hand_back()
    hand_back.ensure()
    assert server.writes < write + AT_ONCE, "what had been sent, and nothing after it"
    assert left.held()
    assert (left.emitted.events, caplog.messages) == ([], [])

    server.clock.now += RETRY_SECONDS
    server.take_lease("another")
    hand_back.ensure()
    assert left.held()
    server.take_lease("")
    server.clock.now += RETRY_SECONDS
    hand_back.ensure()
    assert (left.held(), left.open_records(), left.emitted.events) == (0, 0, [])
