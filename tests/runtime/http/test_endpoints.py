import http.client
import socket
import threading
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge
from tests.waiting import eventually

from topomend.runtime.http import endpoints, server
from topomend.runtime.http.endpoints import MAX_CONNECTIONS, Endpoints, check_page
from topomend.runtime.http.process_metrics import metrics_page
from topomend.runtime.http.server import MAX_HEAD_BYTES


def get(host: str, port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.fixture
def serving() -> Iterator[Endpoints]:
    made = Endpoints("127.0.0.1:0", {"/healthz": check_page(lambda: "")})
    yield made
    made.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[::1]", "0.0.0.0", "::", ""])  # noqa: S104  of this test
def test_both_address_families_are_served(host: str) -> None:
    if ":" in host and not socket.has_ipv6:
        pytest.fail("this machine's Python has no IPv6")
    made = Endpoints(f"{host}:0", {"/healthz": check_page(lambda: "")})
    try:
        assert get("::1" if ":" in host else "127.0.0.1", made.port, "/healthz") == (200, "ok\n")
    finally:
        made.close()


def test_a_problem_is_a_500_with_its_text() -> None:
    made = Endpoints(":0", {"/healthz": check_page(lambda: "no list for 300 s")})
    try:
        assert get("127.0.0.1", made.port, "/healthz") == (500, "no list for 300 s\n")
    finally:
        made.close()


def test_metrics_are_in_prometheus_text_format() -> None:
    registry = CollectorRegistry()
    Gauge("answer", "An answer.", registry=registry).set(42)
    made = Endpoints(":0", {"/metrics": metrics_page(registry)})
    try:
        assert "answer 42.0" in get("127.0.0.1", made.port, "/metrics?name=x")[1]
    finally:
        made.close()


@pytest.mark.parametrize(("kibibytes", "status"), [(15, b"200"), (16, b"431")])
def test_headers_are_read_up_to_their_limit(serving: Endpoints, kibibytes: int, status: bytes) -> None:
    header = b"X: " + b"y" * 1_019 + b"\r\n"
    with socket.create_connection(("127.0.0.1", serving.port), timeout=60) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\n" + kibibytes * header + b"\r\n")
        assert client.recv(12) == b"HTTP/1.0 " + status


def test_a_line_without_end_is_not_read_to_its_end(serving: Endpoints) -> None:
    with socket.create_connection(("127.0.0.1", serving.port), timeout=60) as client:
        client.sendall(b"x" * (MAX_HEAD_BYTES + 1))
        assert client.recv(1) == b""
    assert get("127.0.0.1", serving.port, "/healthz") == (200, "ok\n")


def test_an_unknown_path_names_the_known_ones(serving: Endpoints) -> None:
    assert get("127.0.0.1", serving.port, "/") == (404, "/healthz are here\n")


def test_nothing_is_looked_up_in_reverse(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: object) -> str:
        raise AssertionError("a name service was asked")

    for name in ("getfqdn", "gethostbyaddr", "getnameinfo"):
        monkeypatch.setattr(socket, name, look_up)
    made = Endpoints("127.0.0.1:0", {"/healthz": check_page(lambda: "")})
    try:
        assert get("127.0.0.1", made.port, "/healthz") == (200, "ok\n")
    finally:
        made.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoints]:
    """Endpoints whose connections never end by themselves: whoever holds up a probe does so for good.

    Nor is a probe turned away because the thread of the connection in its place takes long to end, as on a busy
    machine.
    """
    monkeypatch.setattr(endpoints, "CONNECTION_SECONDS", 3600.0)
    monkeypatch.setattr(server, "EVICTION_SECONDS", 60.0)
    made = Endpoints("127.0.0.1:0", {"/healthz": check_page(lambda: "")})
    yield made
    made.close()


def test_a_thousand_idle_connections_take_few_threads_and_hold_up_no_probe(patient: Endpoints) -> None:
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", patient.port)) for _ in range(1000)]
    try:
        assert get("127.0.0.1", patient.port, "/healthz") == (200, "ok\n")
        eventually("few threads to be left", lambda: threading.active_count() - before <= MAX_CONNECTIONS)
    finally:
        for connection in idle:
            connection.close()


def test_connections_that_send_a_byte_now_and_then_hold_up_no_probe(patient: Endpoints) -> None:
    slow = [socket.create_connection(("127.0.0.1", patient.port)) for _ in range(MAX_CONNECTIONS)]
    try:
        for byte in b"GET /":
            for connection in slow:
                connection.send(bytes([byte]))
        assert get("127.0.0.1", patient.port, "/healthz") == (200, "ok\n")
    finally:
        for connection in slow:
            connection.close()


def test_a_connection_that_stays_silent_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "CONNECTION_SECONDS", 0.2)
    made = Endpoints("127.0.0.1:0", {"/healthz": check_page(lambda: "")})
    try:
        with socket.create_connection(("127.0.0.1", made.port), timeout=60) as silent:
            assert silent.recv(1) == b""
    finally:
        made.close()


@pytest.mark.parametrize("address", ["", "8081", "host:", "host:70000", "host:8x", "host:٣"])
def test_an_address_that_is_none_is_refused_by_name(address: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        Endpoints(address, {})
