"""The HTTP endpoints of agent and operator: pages for kubelets and Prometheus, answers for the API server.

Owns the server: its address family, TLS, its limits, and that it asks no name service. Pages and answers are their
owners' business.
Anybody in the cluster may connect, so connections are bounded in number and time, and a new one takes the place of the
oldest: however many a stranger holds, kubelet's probe is answered.
The standard library's server looks its own address up in reverse as it starts (``HTTPServer.server_bind``), which takes
many seconds where no name service answers; this one never does.
"""

import logging
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from topomend.model.address import host_and_port

LOOPBACK = "127.0.0.1"
HEALTH, READINESS, METRICS = "/healthz", "/readyz", "/metrics"

MAX_CONNECTIONS, MAX_KEPT_CONNECTIONS = 32, 128
"""Connections served at once, a thread each; a further one closes the oldest. Kubelet and Prometheus need two. An API
server keeps 25 (k8s.io/client-go transport/cache.go:idleConnsPerHost)."""

EVICTION_SECONDS = 1.0
"""How long the thread of a closed connection may take to end."""

FINISH_SECONDS = 2.0
"""How long the answers under way may take once the server closes: as long as an API server waits for a webhook."""

MAX_BACKLOG = 128
"""Connections that wait to be accepted."""

CONNECTION_SECONDS = 10.0
"""How long a connection may stay silent."""

MAX_BODY = 4 << 20
"""The longest body that is read, in bytes: a review of an update has an object of the API server's twice."""

SMALL_BODY = 64 << 10
"""Longer bodies take turns, for a decoded one has ten times its length."""

BODY_SECONDS = 1.0
"""How long a body that is not small may take to have its turn, and again to arrive."""

IDLE_SECONDS = 120.0
"""How long a kept connection may stay silent: longer than an API server keeps one (net/http Transport.IdleConnTimeout,
90 s), which so never sends a request to an end."""

_PLAIN = "text/plain; charset=utf-8"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Page:
    """One answer: HTTP status, content type and body."""

    status: int
    content_type: str
    body: bytes


def check_page(problem: Callable[[], str]) -> Callable[[], Page]:
    """A probe's page: 200 ``ok``, or 500 and what ``problem`` says is wrong; it is empty where nothing is."""

    def page() -> Page:
        text = problem()
        return Page(500 if text else 200, _PLAIN, f"{text or 'ok'}\n".encode())

    return page


class Endpoints:
    """Serves ``pages`` (path to page) on ``address`` from a thread of its own until it is closed.

    ``address`` is HOST:PORT, IPv4 or IPv6; without a host it listens on loopback. Raises ValueError where it is
    something else, OSError where nothing can listen there.
    """

    def __init__(self, address: str, pages: Mapping[str, Callable[[], Page]]) -> None:
        self._serve(address, _handler_of(pages), None)

    def _serve(self, address: str, handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None) -> None:
        host, port = host_and_port(address)
        self._server = _Server(host or LOOPBACK, port, handler, tls)
        self._thread = threading.Thread(target=self._server.serve_forever, name=f"endpoints-{self.port}", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def close(self, linger: float = 0.0) -> None:
        """Answer for ``linger`` seconds more, each connection once; then finish the answers under way, and no more."""
        self._server.lingers = True
        time.sleep(linger)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server.finish()


class Answers(Endpoints):
    """Answers POST requests over TLS: each path's answer is made from the request's body. Connections are kept.

    The context's certificate may be replaced meanwhile. Raises as Endpoints does.
    """

    def __init__(self, address: str, answers: Mapping[str, Callable[[bytes], Page]], tls: ssl.SSLContext) -> None:
        tls.options |= ssl.OP_IGNORE_UNEXPECTED_EOF  # a connection that ends is no alert; a body says its own length
        own = {"answers": answers, "turn": threading.BoundedSemaphore()}
        self._serve(address, type("Answerer", (_Answerer,), own), tls)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_BACKLOG

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._free = threading.BoundedSemaphore(MAX_KEPT_CONNECTIONS if tls else MAX_CONNECTIONS)
        self._open: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        self._all_ended = threading.Condition(self._lock)
        self.lingers = False
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.address_family = family
        super().__init__((str(address[0]), int(address[1])), handler)

    def server_bind(self) -> None:
        """Bind without the reverse look-up of ``HTTPServer``."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def get_request(self) -> tuple[Any, Any]:
        """The next connection. Its thread shakes hands with the client, which may take its time."""
        connection, address = super().get_request()
        if self._tls is None:
            return connection, address
        return self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve the connection in a thread, in place of the oldest one where too many are open."""
        if not self._free.acquire(blocking=False):
            self._close_oldest()
            if not self._free.acquire(timeout=EVICTION_SECONDS):
                self.shutdown_request(request)
                return
        with self._lock:
            self._open[id(request)] = request
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection, then make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def finish(self) -> None:
        """Close the connections that wait for a request, and wait for the answers under way.

        Only reading ends, and below TLS: a request that has arrived is still read and answered. A connection that
        ended with the process would take its request along, and the API server would admit the pod without an answer.
        """
        with self._lock:
            for connection in self._open.values():
                with suppress(OSError):  # it has just ended by itself
                    socket.socket.shutdown(connection, socket.SHUT_RD)
            self._all_ended.wait_for(lambda: not self._open, timeout=FINISH_SECONDS)

    def _close_oldest(self) -> None:
        """Have the thread of the oldest connection read its end."""
        with self._lock:
            if not self._open:
                return
            oldest = self._open.pop(next(iter(self._open)))
            with suppress(OSError):  # it has just ended by itself
                oldest.shutdown(socket.SHUT_RDWR)

    def _forget(self, request: socket.socket) -> None:
        with self._lock:
            self._open.pop(id(request), None)
            self._all_ended.notify_all()
        self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Log a client that disconnects at debug level only: it is not an error of this program."""
        del request, client_address
        _log.debug("a connection to the endpoints broke off", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def send_page(self, page: Page) -> None:
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        if self.server.lingers:
            self.send_header("Connection", "close")  # the next request goes to a server that stays
        self.end_headers()
        self.wfile.write(page.body)

    def log_message(self, *_: object) -> None:
        """Requests are not logged."""


def _handler_of(pages: Mapping[str, Callable[[], Page]]) -> type[BaseHTTPRequestHandler]:
    unknown = Page(404, _PLAIN, f"{', '.join(pages)} are here\n".encode())

    class Handler(_Handler):
        timeout = CONNECTION_SECONDS

        def do_GET(self) -> None:
            make_page = pages.get(self.path.partition("?")[0])
            self.send_page(make_page() if make_page else unknown)

    return Handler


class _Answerer(_Handler):
    """Answers POST requests; ``answers`` and ``turn`` belong to the server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = IDLE_SECONDS
    answers: ClassVar[Mapping[str, Callable[[bytes], Page]]]
    turn: ClassVar[threading.BoundedSemaphore]

    def do_POST(self) -> None:
        length = self._length()
        if length is None:
            self._decline(Page(413, _PLAIN, b"a body has a length, of four MiB at most\n"))
        elif length <= SMALL_BODY:
            self._answer(length)
        elif self.turn.acquire(timeout=BODY_SECONDS):
            ending = threading.Timer(BODY_SECONDS, self._end)
            ending.start()
            try:
                self._answer(length)
            finally:
                ending.cancel()
                self.turn.release()
        else:
            self._decline(Page(503, _PLAIN, b"busy\n"))

    def _length(self) -> int | None:
        text = self.headers.get("Content-Length", "")
        is_number = text.isascii() and text.isdecimal() and len(text) < 10
        return int(text) if is_number and int(text) <= MAX_BODY else None

    def _answer(self, length: int) -> None:
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return
        make = self.answers.get(self.path.partition("?")[0])
        self.send_page(make(body) if make else Page(404, _PLAIN, b"unknown\n"))

    def _decline(self, page: Page) -> None:
        self.close_connection = True
        self.send_page(page)

    def _end(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
