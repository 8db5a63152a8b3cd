"""The HTTP endpoints of agent and operator: health, readiness and metrics, for kubelets and Prometheus.

Owns the server: its address family, its limits, and that it asks no name service. The pages are their owners' business.
Anybody in the cluster may connect, so connections are bounded in number and time, and a new one takes the place of the
oldest: however many a stranger holds, kubelet's probe is answered.
The standard library's server looks its own address up in reverse as it starts (``HTTPServer.server_bind``), which takes
many seconds where no name service answers; this one never does.
"""

import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from topomend.model.address import host_and_port

LOOPBACK = "127.0.0.1"
HEALTH, READINESS, METRICS = "/healthz", "/readyz", "/metrics"

MAX_CONNECTIONS = 32
"""Connections served at once, a thread each; a further one closes the oldest. Kubelet and Prometheus need two."""

EVICTION_SECONDS = 1.0
"""How long the thread of a closed connection may take to end."""

MAX_BACKLOG = 128
"""Connections that wait to be accepted."""

CONNECTION_SECONDS = 10.0
"""How long a connection may stay silent."""

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
        host, port = host_and_port(address)
        self._server = _Server(host or LOOPBACK, port, _handler_of(pages))
        self._thread = threading.Thread(target=self._server.serve_forever, name=f"endpoints-{self.port}", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_BACKLOG

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._open: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.address_family = family
        super().__init__((str(address[0]), int(address[1])), handler)

    def server_bind(self) -> None:
        """Bind without the reverse look-up of ``HTTPServer``."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

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
        self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Log a client that disconnects at debug level only: it is not an error of this program."""
        del request, client_address
        _log.debug("a connection to the endpoints broke off", exc_info=True)


def _handler_of(pages: Mapping[str, Callable[[], Page]]) -> type[BaseHTTPRequestHandler]:
    unknown = Page(404, _PLAIN, f"{', '.join(pages)} are here\n".encode())

    class Handler(BaseHTTPRequestHandler):
        timeout = CONNECTION_SECONDS

        def do_GET(self) -> None:
            make_page = pages.get(self.path.partition("?")[0])
            page = make_page() if make_page else unknown
            self.send_response(page.status)
            self.send_header("Content-Type", page.content_type)
            self.send_header("Content-Length", str(len(page.body)))
            self.end_headers()
            self.wfile.write(page.body)

        def log_message(self, *_: object) -> None:
            """Probes and scrapes are not logged."""

    return Handler
