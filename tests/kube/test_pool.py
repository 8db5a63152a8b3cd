"""Connections of operator and commands: kept, ended with their certificate, each request once, headers as they came.

The servers are real ones. What the agent says of those that do not answer is what the operator is to say.
"""

import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from tests.kube.certificates import Authority, serving
from tests.kube.fronts import connect_proxy

from topomend.kube.agent_client import AgentClient
from topomend.kube.client import Client
from topomend.kube.connection.access import find_access
from topomend.kube.connection.proxies import Proxy
from topomend.kube.connection.tls import trusting, trusting_anybody
from topomend.kube.connection.transport import Server
from topomend.kube.errors import Unanswered, Untrusted
from topomend.kube.official import Official
from topomend.kube.pool import Connections, Pool
from topomend.kube.resources import NODES

SECONDS = 120.0
Kind = type[Pool] | type[Official]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@dataclass
class Recorder:
    """A server over plain HTTP that answers with ``answer``, and hangs up unless that is a whole one.

    ``asked`` has the port, the line and the headers of each request.
    """

    port: int = 0
    answer: bytes = OK
    asked: list[tuple[int, str, list[tuple[str, str]]]] = field(default_factory=list)


@contextmanager
def recording(answer: bytes = OK) -> Iterator[Recorder]:
    recorder = Recorder(answer=answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            recorder.asked.append((self.client_address[1], self.requestline, self.headers.items()))
            self.wfile.write(recorder.answer)
            self.close_connection = not recorder.answer.endswith(b"{}")

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name there
            del format, arguments

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    recorder.port = server.server_port
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield recorder
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(params=[Pool, Official])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Of the commands, and of the operator."""
    made: Kind = request.param
    return made


def ask(pool: Connections, *headers: tuple[str, str]) -> tuple[int, bytes]:
    with pool.sent("GET", "/a?b=c", None, headers, SECONDS) as answer:
        response = answer()
        return response.status, response.read()


def test_requests_share_a_connection_until_the_certificate_is_replaced_or_the_client_is_closed(
    kind: Kind,
) -> None:
    stamp = "first"
    with recording() as server:
        pool = kind(Server("127.0.0.1", server.port, None, stamp=lambda: stamp), SECONDS)
        with closing(pool):
            for _ in range(2):
                assert ask(pool) == (200, b"{}")
            stamp = "second"
            for _ in range(2):
                ask(pool)
            pool.close()
            ask(pool)
    ports = [port for port, _, _ in server.asked]
    assert ports[0] == ports[1]
    assert ports[2] == ports[3]
    assert len({ports[0], ports[2], ports[4]}) == 3


def test_a_server_may_take_longer_for_its_handshake_than_for_accepting_the_connection(authority: Authority) -> None:
    """A busy API server: the system has accepted the connection for it."""
    connect_seconds = 0.2

    def serve(listener: socket.socket) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.issue("127.0.0.1", "IP:127.0.0.1"))
        accepted, _ = listener.accept()
        threading.Event().wait(2 * connect_seconds)
        with context.wrap_socket(accepted, server_side=True) as connection:
            connection.recv(1 << 16)
            connection.sendall(OK)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        server = Server("127.0.0.1", listener.getsockname()[1], partial(trusting, authority.certificate))
        with closing(Pool(server, connect_seconds)) as pool:
            assert ask(pool) == (200, b"{}")
        thread.join()


def test_idle_connections_end_with_a_client_that_nobody_closed(kind: Kind) -> None:
    with recording() as server, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        holder: list[object] = [kind(Server("127.0.0.1", server.port, None), SECONDS)]
        holder.append(holder)  # as an object that refers to itself
        assert isinstance(holder[0], Pool | Official)
        assert ask(holder[0]) == (200, b"{}")
        del holder
        gc.collect()
    assert [each for each in caught if each.category is ResourceWarning] == []


def test_a_request_under_way_is_finished_when_the_connections_are_closed(kind: Kind) -> None:
    with recording() as server, closing(kind(Server("127.0.0.1", server.port, None), SECONDS)) as pool:
        with pool.sent("GET", "/", None, (), SECONDS) as answer:
            response = answer()
            pool.close()
            assert response.read() == b"{}"
        ask(pool)
    first, second = (port for port, _, _ in server.asked)
    assert first != second


def test_a_body_that_is_left_unread_is_not_taken_for_the_next_answer(kind: Kind) -> None:
    with recording() as server, closing(kind(Server("127.0.0.1", server.port, None), SECONDS)) as pool:
        with pool.sent("GET", "/", None, (), SECONDS) as answer:
            answer()
        assert ask(pool) == (200, b"{}")


def test_an_answer_that_is_cut_short_is_a_failure_and_the_next_request_has_a_new_connection(kind: Kind) -> None:
    with recording(OK[:-1]) as server, closing(kind(Server("127.0.0.1", server.port, None), SECONDS)) as pool:
        with pytest.raises(kind.FAILURES, match="IncompleteRead"):
            ask(pool)
        server.answer = OK
        assert ask(pool) == (200, b"{}")


@pytest.mark.parametrize("read", ["read", "read1"])
def test_an_answer_that_is_cut_short_is_a_failure_read_in_parts_too(read: str, kind: Kind) -> None:
    with recording(OK[:-1]) as server, closing(kind(Server("127.0.0.1", server.port, None), SECONDS)) as pool:
        with pool.sent("GET", "/", None, (), SECONDS) as answer, pytest.raises(kind.FAILURES, match="Incomplete"):
            list(iter(partial(getattr(answer(), read), 1), b""))
        server.answer = OK
        assert ask(pool) == (200, b"{}")


def test_a_connection_that_the_server_has_ended_meanwhile_is_not_used_again(kind: Kind) -> None:
    """It is no failure, and the request is sent once: it would be lost on the old connection."""
    ended, asked = threading.Event(), list[bytes]()

    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(1 << 16).split(b"\r\n")[0])
                connection.sendall(OK)
            ended.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        with closing(kind(Server("127.0.0.1", listener.getsockname()[1], None), SECONDS)) as pool:
            assert ask(pool) == (200, b"{}")
            assert ended.wait(SECONDS)
            assert ask(pool) == (200, b"{}")
        thread.join()
    assert asked == [b"GET /a?b=c HTTP/1.1"] * 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 503 Unavailable\r\nRetry-After: 0\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 429 Too Many\r\nRetry-After: 0\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 2\r\n\r\n{}",
    ],
    ids=["503", "429", "302"],
)
def test_a_request_is_sent_once_whatever_the_answer(answer: bytes, kind: Kind) -> None:
    with recording(answer) as server, closing(kind(Server("127.0.0.1", server.port, None), SECONDS)) as pool:
        assert ask(pool) == (int(answer.split()[1]), b"{}")
    assert len(server.asked) == 1


def test_headers_that_are_repeated_arrive_as_they_are_also_through_a_proxy_that_reads_them(kind: Kind) -> None:
    groups = (("Impersonate-Group", "one, two"), ("Impersonate-Group", "three"))
    with recording() as server:
        there = Proxy("127.0.0.1", server.port, "Basic secret")
        for way in (Server("127.0.0.1", server.port, None), Server("api.internal", 8080, None, proxy=there)):
            with closing(kind(way, SECONDS)) as pool:
                assert ask(pool, *groups)[0] == 200
    for _, _, headers in server.asked:
        assert [header for header in headers if header[0] == "Impersonate-Group"] == list(groups)
    _, line, headers = server.asked[1]
    assert line == "GET http://api.internal:8080/a?b=c HTTP/1.1"
    assert ("Host", "api.internal:8080") in headers
    assert ("Proxy-Authorization", "Basic secret") in headers


def test_a_proxy_of_the_environment_counts_only_where_the_server_has_it(
    monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with recording() as server, closing(kind(Server("127.0.0.1", server.port, None), SECONDS)) as pool:
        assert ask(pool) == (200, b"{}")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


def test_the_certificate_must_carry_the_certified_name_and_be_of_the_authority_of_now(
    authority: Authority, tmp_path: Path, kind: Kind
) -> None:
    in_force = tmp_path / "in-force.crt"
    with serving(authority.issue("n1", "DNS:n1")) as server:
        pool = kind(Server("127.0.0.1", server.port, lambda: trusting(in_force), "n1"), SECONDS)
        in_force.write_bytes(authority.certificate.read_bytes())
        assert ask(pool)[0] == 200
        in_force.write_bytes(Authority.make(tmp_path).certificate.read_bytes())
        with pytest.raises(kind.FAILURES):  # the server ended the first connection
            ask(pool)
        other = kind(Server("127.0.0.1", server.port, partial(trusting, authority.certificate), "n2"), SECONDS)
        with pytest.raises(kind.FAILURES):
            ask(other)
        with warnings.catch_warnings(action="error"):
            urged = kind(Server("127.0.0.1", server.port, trusting_anybody, "n2"), SECONDS)
            assert ask(urged)[0] == 200
        for each in (pool, other, urged):
            each.close()


# The words of failures

Fields = dict[str, object]


@contextmanager
def nobody(_: Authority) -> Iterator[Fields]:
    yield {"server": "http://127.0.0.1:1"}


@contextmanager
def no_tls(_: Authority) -> Iterator[Fields]:
    with recording() as server:
        yield {"server": f"https://127.0.0.1:{server.port}"}


@contextmanager
def a_stranger(authority: Authority) -> Iterator[Fields]:
    with serving(authority.issue("stranger", "IP:127.0.0.1")) as server:
        yield {"server": f"https://127.0.0.1:{server.port}"}


@contextmanager
def another_name(authority: Authority) -> Iterator[Fields]:
    with serving(authority.issue("n1", "DNS:n1")) as server:
        trusted = {"certificate-authority": str(authority.certificate), "tls-server-name": "n2"}
        yield {"server": f"https://127.0.0.1:{server.port}", **trusted}


@contextmanager
def a_proxy_that_refuses(_: Authority) -> Iterator[Fields]:
    with connect_proxy("Basic wanted") as proxy:
        yield {"server": "https://api.internal:6443", "proxy-url": f"http://127.0.0.1:{proxy.port}"}


@contextmanager
def no_proxy(_: Authority) -> Iterator[Fields]:
    yield {"server": "https://api.internal:6443", "proxy-url": "http://127.0.0.1:1"}


@contextmanager
def no_answer(_: Authority) -> Iterator[Fields]:
    with recording(b"") as server:
        yield {"server": f"http://127.0.0.1:{server.port}"}


@pytest.mark.parametrize(
    ("broken", "failed", "words"),
    [
        (nobody, Unanswered, "connection refused"),
        (no_tls, Unanswered, "it does not speak TLS"),
        (a_stranger, Untrusted, "its certificate is not trusted"),
        (another_name, Untrusted, "its certificate is not for n2; set tls-server-name"),
        (a_proxy_that_refuses, Unanswered, "answers 407 Proxy Authentication Required"),
        (no_proxy, Unanswered, "connection refused at the proxy"),
        (no_answer, Unanswered, "Remote end closed connection without response"),
    ],
    ids=lambda given: given.__name__ if callable(given) else "",
)
def test_all_say_the_same_of_a_server_that_does_not_answer(  # noqa: PLR0917  a row, and where
    broken: Callable[[Authority], AbstractContextManager[Fields]],
    failed: type[Unanswered],
    words: str,
    kind: Kind,
    authority: Authority,
    tmp_path: Path,
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    with broken(authority) as fields:
        named = {"clusters": [{"name": "c", "cluster": fields}], "users": [{"name": "u", "user": {"token": "secret"}}]}
        context = {"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]}
        kubeconfig.write_text(yaml.safe_dump(named | context))
        access = find_access(str(kubeconfig))
        with closing(Client(access, transport=kind)) as client, pytest.raises(Unanswered) as ours:
            client.get(NODES, "n")
        with closing(AgentClient(access)) as agent, pytest.raises(Unanswered) as agents:
            agent.node("n")
    assert type(ours.value) is failed
    assert words in str(ours.value)
    assert str(ours.value) == str(agents.value)
    assert "secret" not in str(ours.value)
