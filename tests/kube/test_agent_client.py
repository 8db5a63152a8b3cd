import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from topomend.kube.agent_client import AgentClient
from topomend.kube.connection.kubeconfig import NotConfigured
from topomend.kube.errors import Conflict, Forbidden, NotFound, Refused, ServerFailed, TooManyRequests, Unanswered

ClientOf = Callable[[int], AgentClient]

SECRET = "very-secret-token"  # noqa: S105 - no secret, but it must not be seen in an error


class Answers(BaseHTTPRequestHandler):
    """Answers every request alike, and keeps what was asked."""

    status, body, headers_sent = 200, b"{}", {"Content-Type": "application/json"}
    asked: list[tuple[str, str, str, bytes]] = []  # noqa: RUF012 - a handler is made anew for each request

    def do_GET(self) -> None:
        self._do()

    def do_PATCH(self) -> None:
        self._do()

    def _do(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        content_type = self.headers.get("Content-Type", "")
        self.asked.append((self.command, self.path, content_type, self.rfile.read(length)))
        self.send_response(self.status)
        for name, value in self.headers_sent.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name there
        del format, arguments


@contextmanager
def answering(
    status: int = 200, body: bytes = b"{}", headers: dict[str, str] | None = None
) -> Iterator[tuple[int, list[tuple[str, str, str, bytes]]]]:
    asked: list[tuple[str, str, str, bytes]] = []
    fields = {"status": status, "body": body, "headers_sent": headers or {}, "asked": asked}
    server = HTTPServer(("127.0.0.1", 0), type("Handler", (Answers,), fields))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def client_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClientOf]:
    clients: list[AgentClient] = []

    def make(port: int) -> AgentClient:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {"token": SECRET}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        clients.append(AgentClient())
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def test_requests_go_where_the_objects_are(client_of: ClientOf) -> None:
    with answering(body=b'{"kind": "Node"}') as (port, asked):
        client = client_of(port)
        assert client.node("n1") == {"kind": "Node"}
        client.node_topology("n1")
        client.apply_node_topology("n1", {"metadata": {}}, "me")
        client.apply_node_topology_status("n1", {"status": {"a": 1}}, "me")
        client.replace_in_node_topology("n1", "status", {"a": 1}, "me")
        client.replace_in_node_topology("n1", "metadata/ownerReferences", [], "me")
    assert [(method, path) for method, path, _, _ in asked] == [
        ("GET", "/api/v1/nodes/n1"),
        ("GET", "/apis/topomend.io/v1alpha1/nodetopologies/n1"),
        ("PATCH", "/apis/topomend.io/v1alpha1/nodetopologies/n1?fieldManager=me&force=true"),
        ("PATCH", "/apis/topomend.io/v1alpha1/nodetopologies/n1/status?fieldManager=me&force=true"),
        ("PATCH", "/apis/topomend.io/v1alpha1/nodetopologies/n1/status?fieldManager=me"),
        ("PATCH", "/apis/topomend.io/v1alpha1/nodetopologies/n1?fieldManager=me"),
    ]
    assert asked[3][2] == "application/apply-patch+yaml"
    assert json.loads(asked[3][3]) == {"status": {"a": 1}}
    assert asked[4][2] == "application/json-patch+json"
    assert json.loads(asked[4][3]) == [{"op": "add", "path": "/status", "value": {"a": 1}}]
    assert json.loads(asked[5][3]) == [{"op": "add", "path": "/metadata/ownerReferences", "value": []}]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, Forbidden),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (418, Refused),
        (429, TooManyRequests),
        (500, ServerFailed),
        (503, ServerFailed),
    ],
)
@pytest.mark.parametrize("body", [b'{"kind": "Status", "reason": "Why", "message": "because"}', b"<html>", b""])
def test_a_refusal_is_the_error_of_its_status(
    client_of: ClientOf, status: int, error: type[Refused], body: bytes
) -> None:
    with answering(status, body, {"Retry-After": "7"}) as (port, _), pytest.raises(error) as caught:
        client_of(port).node("n1")
    assert caught.value.status == status
    assert caught.value.retry_after == 7.0
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("body", [b"", b"not json", b"[1]", b"\xff\xfe"])
def test_a_success_that_is_no_object_is_no_answer(client_of: ClientOf, body: bytes) -> None:
    with answering(body=body) as (port, _), pytest.raises(Unanswered):
        client_of(port).node("n1")


def test_a_port_that_refuses_is_no_answer(client_of: ClientOf) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]  # which nobody else gets meanwhile
        with pytest.raises(Unanswered, match=r"GET /api/v1/nodes/n1: .*refused") as raised:
            client_of(port).node("n1")
    assert raised.value.why.startswith("no answer from "), "people know of no request"


@pytest.mark.parametrize("content", [None, "", "{", "a: [", "clusters: 3", "kind: Config\ncurrent-context: gone\n"])
def test_a_kubeconfig_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(NotConfigured, match=f"^{path}"):
        AgentClient()


def test_without_a_kubeconfig_and_outside_a_cluster_nothing_is_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NotConfigured, match=r"no cluster is configured: .*; set KUBECONFIG"):
        AgentClient()


def test_a_connection_is_reused_and_opened_again_when_the_server_has_ended_it(client_of: ClientOf) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = client_of(listening.getsockname()[1])
        served: list[int] = []

        def serve() -> None:
            # Two requests on the first connection, which then ends without a word, and one on the next.
            for requests in (2, 1):
                connection, _ = listening.accept()
                with connection, connection.makefile("rb") as stream:
                    for _ in range(requests):
                        while stream.readline().strip():
                            pass
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                    served.append(requests)

        thread = threading.Thread(target=serve)
        thread.start()
        for _ in range(3):
            assert client.node("n1") == {}
        thread.join()
    assert served == [2, 1]


def test_an_answer_that_is_too_long_is_no_answer(client_of: ClientOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topomend.kube.agent_client.MAX_ANSWER_BYTES", 10)
    with answering(body=b'{"a": "too long"}') as (port, _), pytest.raises(Unanswered, match="longer than 10 bytes"):
        client_of(port).node("n1")


def test_a_server_that_does_not_answer_in_time_is_no_answer(
    client_of: ClientOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topomend.kube.agent_client.TIMEOUT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Unanswered, match="timed out"):
        client_of(silent.getsockname()[1]).node("n1")
