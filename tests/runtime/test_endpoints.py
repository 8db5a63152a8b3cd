import http.client
import socket
import threading
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge
from tests.waiting import consistently, eventually

from topomend.runtime import endpoints
from topomend.runtime.endpoints import MAX_CONNECTIONS, Endpoints, check_page, metrics_page


def get(host: str, port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=10)
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


def test_idle_connections_take_neither_threads_without_bound_nor_the_endpoint_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoints, "CONNECTION_SECONDS", 0.5)
    made = Endpoints("127.0.0.1:0", {"/healthz": check_page(lambda: "")})
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", made.port)) for _ in range(4 * MAX_CONNECTIONS)]
    try:
        consistently("the number of threads", lambda: threading.active_count() - before <= MAX_CONNECTIONS, 0.2)
        assert eventually("an answer beside idle connections", lambda: _answer(made.port)) == (200, "ok\n")
    finally:
        for connection in idle:
            connection.close()
        made.close()


def _answer(port: int) -> tuple[int, str] | None:
    try:
        return get("127.0.0.1", port, "/healthz")
    except (OSError, http.client.HTTPException):
        return None


@pytest.mark.parametrize("address", ["", "8081", "host:", "host:70000", "host:8x", "host:٣"])
def test_an_address_that_is_none_is_refused_by_name(address: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        Endpoints(address, {})
