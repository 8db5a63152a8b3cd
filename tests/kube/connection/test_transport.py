"""One connection at a time: kept, made anew where the server ended it, bounded in time and size, verified by name."""

import functools
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from tests.kube.certificates import Authority, serving

from topomend.kube.connection.tls import trusting, trusting_anybody
from topomend.kube.connection.transport import FAILURES, Server, Transport

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
SECONDS, BYTES = 120.0, 1000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


@contextmanager
def answering(*connections: tuple[bytes, ...]) -> Iterator[tuple[Server, list[bytes]]]:
    """A server that accepts that many connections, and on each sends these answers and then hangs up."""
    requests: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        for answers in connections:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as stream:
                for answer in answers:
                    requests.append(_request(stream))
                    connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(SECONDS)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield Server("127.0.0.1", listener.getsockname()[1], None), requests
        thread.join()


def _request(stream: IO[bytes]) -> bytes:
    """The request line, and the body where there is one."""
    first, length = stream.readline().strip(), 0
    while line := stream.readline().strip():
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return first + stream.read(length)


def transport(server: Server, *, timeout: float = SECONDS) -> Transport:
    return Transport(server, timeout=timeout, max_bytes=BYTES)


def test_requests_share_a_connection() -> None:
    with answering((OK, OK, OK)) as (server, requests), transport(server) as client:
        for _ in range(3):
            assert client.request("GET", "/a?b=c").body == b"{}"
    assert requests == [b"GET /a?b=c HTTP/1.1"] * 3


def test_a_request_is_repeated_once_where_the_server_has_ended_the_connection() -> None:
    with answering((OK,), (OK,)) as (server, requests), transport(server) as client:
        client.request("GET", "/1")
        assert client.request("GET", "/2").status == 200
    assert requests == [b"GET /1 HTTP/1.1", b"GET /2 HTTP/1.1"]


def test_a_server_that_ends_a_new_connection_is_not_asked_again() -> None:
    with answering((b"",)) as (server, requests), transport(server) as client, pytest.raises(ConnectionError):
        client.request("GET", "/")
    assert len(requests) == 1


def test_a_connection_that_the_server_is_about_to_end_is_not_used_again() -> None:
    last = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    with answering((last,), (OK,)) as (server, _), transport(server) as client:
        assert client.request("GET", "/").body == b""
        assert client._connection is None
        assert client.request("GET", "/").body == b"{}"


def test_the_answer_is_bounded_whether_its_length_is_reported_or_not() -> None:
    long = b"x" * (BYTES + 1)
    declared = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(long), long)
    undeclared = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + long
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(long), long)
    for answer in (declared, undeclared, chunked):
        with answering((answer,), (OK,)) as (server, _), transport(server) as client:
            with pytest.raises(ValueError, match=f"longer than {BYTES} bytes"):
                client.request("GET", "/")
            assert client.request("GET", "/").status == 200, "the rest of the long answer is not taken for the next"


def test_an_answer_of_just_the_bound_is_accepted() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (BYTES, b"x" * BYTES)
    with answering((answer,)) as (server, _), transport(server) as client:
        assert len(client.request("GET", "/").body) == BYTES


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"], ids=["nothing", "a part"])
def test_a_server_that_falls_silent_is_given_up(sent: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server("127.0.0.1", listener.getsockname()[1], None)
        accepted = threading.Thread(target=lambda: connections.append(_accepted(listener, sent)))
        connections: list[socket.socket] = []
        accepted.start()
        with transport(server, timeout=0.3) as client, pytest.raises(TimeoutError):
            client.request("GET", "/")
        accepted.join()
        connections[0].close()


def _accepted(listener: socket.socket, sent: bytes) -> socket.socket:
    connection, _ = listener.accept()
    connection.sendall(sent)
    return connection


def test_a_server_that_never_shakes_hands_is_given_up(authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        tls = functools.partial(trusting, authority.certificate)
        server = Server("127.0.0.1", listener.getsockname()[1], tls)
        with transport(server, timeout=0.3) as client, pytest.raises(TimeoutError):
            client.connect()


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200])
def test_what_is_no_http_is_a_failure(answer: bytes) -> None:
    with answering((answer,)) as (server, _), transport(server) as client, pytest.raises(FAILURES):
        client.request("GET", "/")


def test_status_and_retry_after_are_reported() -> None:
    answer = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
    with answering((answer, OK)) as (server, requests), transport(server) as client:
        refused = client.request("POST", "/", b"{}", {"Content-Type": "application/json"})
        assert (refused.status, refused.retry_after) == (429, "7")
        assert client.request("GET", "/").retry_after is None
    assert requests == [b"POST / HTTP/1.1{}", b"GET / HTTP/1.1"]


def test_the_certificate_must_carry_the_certified_name(authority: Authority) -> None:
    with serving(authority.issue("n1", "DNS:n1")) as kubelet:
        tls = functools.partial(trusting, authority.certificate)
        with transport(Server("127.0.0.1", kubelet.port, tls, "n1")) as client:
            assert client.request("GET", "/").status == 200
        for name in ("", "n2"):
            client = transport(Server("127.0.0.1", kubelet.port, tls, name))
            with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
                client.connect()


def test_only_who_trusts_anybody_takes_a_certificate_of_a_stranger(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority.make(tmp_path)
    with serving(stranger.issue("n1", "DNS:n1")) as kubelet:
        trusted = functools.partial(trusting, authority.certificate)
        client = transport(Server("127.0.0.1", kubelet.port, trusted, "n1"))
        with pytest.raises(ssl.SSLCertVerificationError, match="verify failed"):
            client.request("GET", "/")
        with transport(Server("127.0.0.1", kubelet.port, trusting_anybody, "n1")) as client:
            assert client.request("GET", "/").status == 200
    assert len(kubelet.asked) == 1


def test_a_replaced_authority_counts_for_the_next_connection(authority: Authority, tmp_path: Path) -> None:
    in_force = tmp_path / "in-force.crt"
    with serving(authority.issue("n1", "DNS:n1")) as kubelet:
        client = transport(Server("127.0.0.1", kubelet.port, lambda: trusting(in_force), "n1"))
        in_force.write_bytes(authority.certificate.read_bytes())
        assert client.request("GET", "/").status == 200
        in_force.write_bytes(Authority.make(tmp_path).certificate.read_bytes())
        with pytest.raises(ssl.SSLCertVerificationError):
            client.request("GET", "/")
