"""The HTTP server of ``endpoints`` and ``webhook_server``.

Owns its address family, TLS, its limits, and that it asks no name service. Leaves the requests to those two, and how
many connections they need.
Anybody in the cluster may connect, so connections are bounded in number and time, and a new one takes the place of the
oldest: however many a stranger holds, kubelet's probe is answered. What a request may send before its body is bounded
too.
The standard library's server looks its own address up in reverse as it starts (``HTTPServer.server_bind``), which takes
many seconds where no name service answers; this one never does.
"""

import logging
import socket
import socketserver
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader
from typing import Any, cast

from topomend.kube.connection.address import host_and_port

LOOPBACK = "127.0.0.1"
PLAIN = "text/plain; charset=utf-8"

EVICTION_SECONDS = 1.0
"""How long the thread of a closed connection may take to end."""

FINISH_SECONDS = 2.0
"""How long the answers under way may take once the server closes: as long as an API server waits for a webhook."""

MAX_BACKLOG = 128
"""Connections that wait to be accepted."""

MAX_HEAD_BYTES = 16 << 10
"""How long a request's line and its headers may be together. The standard library allows 6.5 MB of each connection
(http.client._MAXHEADERS lines of _MAXLINE bytes), and parses them into several times that."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Page:
    """One answer: HTTP status, content type and body."""

    status: int
    content_type: str
    body: bytes


class Listener:
    """Serves ``address`` with ``handler`` from a thread of its own until it is closed.

    ``address`` is HOST:PORT, IPv4 or IPv6; without a host it listens on loopback. At most ``most_connections`` are
    served at once, a thread each; a further one closes the oldest. Raises ValueError where the address is something
    else, OSError where nothing can listen there.
    """

    def __init__(
        self, address: str, handler: type["Handler"], most_connections: int, tls: ssl.SSLContext | None = None
    ) -> None:
        host, port = host_and_port(address)
        self._server = _Server(host or LOOPBACK, port, handler, most_connections, tls)
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


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_BACKLOG

    def __init__(
        self, host: str, port: int, handler: type["Handler"], most_connections: int, tls: ssl.SSLContext | None
    ) -> None:
        self._tls = tls
        self._free = threading.BoundedSemaphore(most_connections)
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


class _Requests(BufferedReader):
    """What a client sends: of each request a line and headers of at most MAX_HEAD_BYTES, and a body."""

    left = MAX_HEAD_BYTES

    def readline(self, size: int | None = -1, /) -> bytes:
        """The next line of a request's head. Raises LineTooLong where the head is longer, as for one long line."""
        del size
        line = super().readline(self.left + 1)
        self.left -= len(line)
        if self.left < 0:
            raise LineTooLong("the request's headers")
        return line


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    wbufsize = -1
    server: _Server

    def setup(self) -> None:
        """Bound what is read before a body."""
        super().setup()
        self.rfile = self._requests = _Requests(cast("BufferedReader", self.rfile).detach())

    def handle_one_request(self) -> None:
        """Read and answer a request; a longer head than may be ends the connection."""
        self._requests.left = MAX_HEAD_BYTES
        super().handle_one_request()

    def send_page(self, page: Page) -> None:
        """Send the page in one piece, and say whether it is the connection's last."""
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        if self.server.lingers:
            self.send_header("Connection", "close")  # the next request goes to a server that stays
        self.end_headers()
        self.wfile.write(page.body)
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Requests are not logged."""
