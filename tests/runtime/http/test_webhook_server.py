"""Answers to POST requests over TLS: kept connections, bounded bodies, clients that are slow or many."""

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.waiting import eventually

from topomend.gating.certificates import renewed
from topomend.gating.key_pairs import KeyPairs
from topomend.runtime.http import server as http_server
from topomend.runtime.http import webhook_server
from topomend.runtime.http.server import MAX_HEAD_BYTES, Page
from topomend.runtime.http.webhook_server import MAX_BODY, MAX_CONNECTIONS, SMALL_BODY, Answers


@pytest.fixture(scope="module")
def pairs() -> KeyPairs:
    made = renewed(None, ["127.0.0.1"], datetime.now(UTC))
    assert made is not None
    return made


@pytest.fixture
def tls(pairs: KeyPairs, tmp_path: Path) -> ssl.SSLContext:
    pair = tmp_path / "pair.pem"
    pair.write_bytes(pairs.key + pairs.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    return context


@pytest.fixture
def server(tls: ssl.SSLContext) -> Iterator[Answers]:
    """Answers with the length of the body."""
    length = {"/length": lambda body: Page(200, "text/plain", str(len(body)).encode())}
    made = Answers("127.0.0.1:0", length, tls, lambda _: None)
    yield made
    made.close()


def connection(server: Answers, pairs: KeyPairs) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cadata=pairs.authority.decode())
    return http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=60)


def ask(client: http.client.HTTPSConnection, body: bytes, path: str = "/length") -> tuple[int, bytes]:
    client.request("POST", path, body)
    answer = client.getresponse()
    return answer.status, answer.read()


def test_one_connection_carries_many_requests(server: Answers, pairs: KeyPairs) -> None:
    client = connection(server, pairs)
    client.connect()
    sock = client.sock
    for length in (0, 1, SMALL_BODY, SMALL_BODY + 1, MAX_BODY):
        assert ask(client, b"x" * length) == (200, str(length).encode())
    assert ask(client, b"x", "/elsewhere")[0] == 404
    assert client.sock is sock
    client.close()


def test_each_request_of_a_connection_may_have_as_long_headers_as_the_first(server: Answers, pairs: KeyPairs) -> None:
    client = connection(server, pairs)
    for _ in range(3):
        client.request("POST", "/length", b"x", {"X": "y" * (MAX_HEAD_BYTES - 1_000)})
        assert client.getresponse().read() == b"1"
    client.close()


def test_each_answer_is_timed_and_arrives_in_one_piece(pairs: KeyPairs, tls: ssl.SSLContext) -> None:
    took: list[float] = []

    def late(_: bytes) -> Page:
        time.sleep(0.05)
        return Page(200, "text/plain", b"late")

    server = Answers("127.0.0.1:0", {"/late": late}, tls, took.append)
    client = connection(server, pairs)
    client.connect()
    began = time.perf_counter()
    client.sock.sendall(b"POST /late HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    answer = client.sock.recv(1 << 16)  # a record of TLS
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\nlate")
    client.close()
    eventually("it to be timed", lambda: took)
    server.close()
    (seconds,) = took
    assert 0.05 <= seconds < time.perf_counter() - began


@pytest.mark.parametrize("length", [str(MAX_BODY + 1), "9" * 5000, "-1", "0x10", ""])
def test_a_body_that_is_too_long_or_of_no_length_is_not_read(server: Answers, pairs: KeyPairs, length: str) -> None:
    client = connection(server, pairs)
    client.putrequest("POST", "/length")
    client.putheader("Content-Length", length)
    client.endheaders()
    assert client.getresponse().status == 413
    client.close()


def test_a_long_body_that_does_not_arrive_holds_up_others_for_a_second(
    server: Answers, pairs: KeyPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, small = connection(server, pairs), connection(server, pairs)
    with monkeypatch.context() as patch:
        patch.setattr(webhook_server, "BODY_SECONDS", 0.3)
        slow.putrequest("POST", "/length")
        slow.putheader("Content-Length", str(MAX_BODY))
        slow.endheaders()
        time.sleep(0.1)
        assert ask(small, b"x") == (200, b"1")
        assert _status_of_a_long_body(server, pairs) in (200, 503)
        slow.sock.recv(1)  # its end; or that it is busy, where the other body came first
    eventually("room for another long body", lambda: _status_of_a_long_body(server, pairs) == 200)
    for client in (slow, small):
        client.close()


def _status_of_a_long_body(server: Answers, pairs: KeyPairs) -> int:
    """The answer to one; also 503 where the server closes before it has read the body, which loses its answer."""
    with closing(connection(server, pairs)) as client:
        try:
            return ask(client, b"x" * MAX_BODY)[0]
        except (ConnectionError, ssl.SSLError):
            return 503


def test_strangers_who_hold_connections_and_shake_no_hands_keep_nobody_out(
    server: Answers, pairs: KeyPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "EVICTION_SECONDS", 60.0)  # the stranger's thread may be slow to end
    strangers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(MAX_CONNECTIONS + 20)]
    client = connection(server, pairs)
    assert ask(client, b"xy") == (200, b"2")
    client.close()
    for stranger in strangers:
        stranger.close()


def test_many_clients_are_answered_at_the_same_time(server: Answers, pairs: KeyPairs) -> None:
    given: list[tuple[int, bytes]] = []

    def several() -> None:
        client = connection(server, pairs)
        given.extend(ask(client, json.dumps({"n": number}).encode()) for number in range(20))
        client.close()

    threads = [threading.Thread(target=several) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(given) == 200
    assert {status for status, _ in given} == {200}


def test_a_closing_server_has_its_clients_connect_elsewhere_before_it_ends(
    server: Answers, pairs: KeyPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()  # it lingers until then, however slow the machine is
    monkeypatch.setattr(http_server, "time", SimpleNamespace(sleep=lambda _: asked.wait()))
    client = connection(server, pairs)
    assert ask(client, b"x") == (200, b"1")
    closing = threading.Thread(target=server.close, args=(0.5,), daemon=True)
    closing.start()
    try:
        eventually("the server to linger", lambda: _says_close(server, pairs))
        client.request("POST", "/length", b"xy")
        answer = client.getresponse()
        assert (answer.read(), answer.getheader("Connection")) == (b"2", "close")
    finally:
        asked.set()
    closing.join()
    with pytest.raises(ConnectionRefusedError):
        ask(client, b"x")
    client.close()


def test_a_closing_server_ends_idle_connections_and_finishes_answers(
    pairs: KeyPairs, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "FINISH_SECONDS", 60.0)  # the answer takes as long as the test does
    asked, go_on = threading.Event(), threading.Event()

    def slowly(_: bytes) -> Page:
        asked.set()
        go_on.wait()
        return Page(200, "text/plain", b"in the end")

    server = Answers("127.0.0.1:0", {"/slowly": slowly}, tls, lambda _: None)
    idle, busy = connection(server, pairs), connection(server, pairs)
    assert ask(idle, b"")[0] == 404
    busy.request("POST", "/slowly", b"x")
    asked.wait()
    closing = threading.Thread(target=server.close)
    closing.start()
    assert idle.sock.recv(1) == b""
    assert closing.is_alive()
    go_on.set()
    assert busy.getresponse().read() == b"in the end"
    closing.join(60)
    assert not closing.is_alive()
    idle.close()
    busy.close()


def test_no_request_is_lost_while_its_server_closes(
    server: Answers, pairs: KeyPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost request is a pod that no webhook saw. Connections are kept as an API server keeps them."""
    answered, lost, ends = [0] * 8, [], threading.Event()
    moved = threading.Event()  # it lingers until then, so that every client is told to connect elsewhere
    monkeypatch.setattr(http_server, "time", SimpleNamespace(sleep=lambda _: moved.wait()))

    def ask_on(number: int) -> None:
        client = connection(server, pairs)
        while not ends.is_set():
            try:
                answered[number] += ask(client, b"x" * 100) == (200, b"100")
            except ConnectionRefusedError:
                return  # its Service would name another server by now
            except OSError as error:
                lost.append(error)
                return
        client.close()

    askers = [threading.Thread(target=ask_on, args=(number,)) for number in range(len(answered))]
    for asker in askers:
        asker.start()
    eventually("all to be answered", lambda: lost or all(count > 5 for count in answered))
    closing = threading.Thread(target=server.close)
    closing.start()
    eventually("the server to linger", lambda: _says_close(server, pairs))
    before = answered.copy()
    eventually("all to be answered while it lingers", lambda: lost or _have_grown(answered, before, by=5))
    ends.set()
    for asker in askers:
        asker.join()
    moved.set()
    closing.join()
    assert lost == []


def _have_grown(counts: list[int], before: list[int], *, by: int) -> bool:
    return all(count >= then + by for count, then in zip(counts, before, strict=True))


def _says_close(server: Answers, pairs: KeyPairs) -> bool:
    client = connection(server, pairs)
    client.request("POST", "/length", b"")
    answer = client.getresponse()
    answer.read()
    client.close()
    return answer.getheader("Connection") == "close"
