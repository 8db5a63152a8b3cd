"""HTTP requests over the standard library: one connection to one server, through a proxy or not.

Carries the requests of the agent to the API server and its kubelet, and those of the sandbox. Owns connections, their
reuse, their end when the client's certificate is replaced, time limits and the longest answer. Leaves paths,
credentials and the meaning of a status to the clients. The commands' requests share its connections by ``pool``; the
operator sends its own by ``official``.
"""

import select
import ssl
from collections.abc import Callable, Iterable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from typing import NamedTuple, Self

from topomend.kube.connection.proxies import Proxy, bracketed

FAILURES = (HTTPException, OSError, ValueError)
"""What a request raises where no answer, or none of an acceptable size, arrived."""

_ENDED = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""What a connection raises that the server has closed."""

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


class ProxyRefused(OSError):
    """The proxy did not connect to the server. The text says what it answered."""


def raise_refusal_of_proxy(error: OSError) -> None:
    """Raise ProxyRefused where ``error`` is the one of http.client about a proxy's answer, which has no class."""
    text = str(error)
    if error.errno is None and text.startswith(_REFUSED):
        raise ProxyRefused(text.removeprefix(_REFUSED)) from error


_REFUSED = "Tunnel connection failed: "


class Server(NamedTuple):
    """Where a server listens, and how it proves that it is the right one.

    ``tls`` makes the context of each new connection, because certificates are replaced in place; it is None for plain
    HTTP. ``certified_name`` is the name or address that the certificate must carry, by default ``host``. ``stamp``
    returns a value that changes when connections are to be made anew.
    """

    host: str
    port: int
    tls: Callable[[], ssl.SSLContext] | None
    certified_name: str = ""
    proxy: Proxy | None = None
    stamp: Callable[[], object] = lambda: None

    @property
    def url(self) -> str:
        """Its address."""
        return f"{'https' if self.tls else 'http'}://{bracketed(self.host)}:{self.port}"


class Response(NamedTuple):
    """A server's answer. ``retry_after`` is the header Retry-After as it was sent, None without one."""

    status: int
    body: bytes
    retry_after: str | None = None


class Transport:
    """Requests to one server over one connection, which stays open between them. Not for use by several threads.

    No step of a request may take longer than ``timeout`` seconds: connecting, the TLS handshake, sending, or waiting
    for more of the answer. An answer may have ``max_bytes`` at most.
    """

    def __init__(self, server: Server, *, timeout: float, max_bytes: int) -> None:
        self._server, self._timeout, self._max_bytes = server, timeout, max_bytes
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> None:
        """Open a connection, where none is open. Raises FAILURES, SSLCertVerificationError among them."""
        if self._connection is None:
            connection = Connection(self._server, self._timeout)
            connection.connect()
            self._connection = connection

    def request(self, method: str, target: str, body: bytes | None = None, headers: Headers | None = None) -> Response:
        """The answer to a request for ``target``, a path with its query. Raises FAILURES.

        The request is sent a second time where the server has closed the idle connection meanwhile. Therefore it must
        be one that may take effect twice.
        """
        try:
            return self._request(method, target, body, headers or {})
        except FAILURES:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection. The next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _request(self, method: str, target: str, body: bytes | None, headers: Headers) -> Response:
        if self._connection is not None and self._connection.is_outdated():
            self.close()
        if self._connection is not None:
            try:
                return self._exchange(self._connection, method, target, body, headers)
            except _ENDED:
                self.close()
        self.connect()
        assert self._connection is not None  # noqa: S101 - connect() has just opened it
        return self._exchange(self._connection, method, target, body, headers)

    def _exchange(
        self, connection: "Connection", method: str, target: str, body: bytes | None, headers: Headers
    ) -> Response:
        connection.send_request(method, target, body, headers)
        answer = connection.getresponse()
        content = answer.read(self._max_bytes + 1)
        if len(content) > self._max_bytes:
            raise ValueError(f"the answer is longer than {self._max_bytes} bytes")
        if answer.will_close:
            self.close()
        return Response(answer.status, content, answer.headers.get("Retry-After"))


class _Answer(HTTPResponse):
    """An answer that says where it is cut short. Read in parts, that of the standard library ends there."""

    def read(self, amt: int | None = None) -> bytes:
        """So many bytes; fewer at the end of the body. Raises IncompleteRead."""
        due = self.length
        content = super().read(amt)
        if amt is not None and due is not None and len(content) < min(amt, due):
            raise IncompleteRead(content, due - len(content))
        return content

    def read1(self, n: int = -1) -> bytes:
        """What has arrived, at most so many bytes; none at the end of the body. Raises IncompleteRead."""
        due = self.length
        content = super().read1(n)
        if n and due and not content:
            raise IncompleteRead(content, due)
        return content


class Connection(HTTPConnection):
    """A connection to a Server. HTTPSConnection would verify the host's name and no other.

    ``timeout`` and ``handshake_seconds`` are how long the server may be silent while it accepts the connection, and in
    its TLS handshake (without it ``timeout`` as well, and from then on until ``set_timeout``).
    """

    response_class = _Answer
    auto_open = 0  # a connection that was closed is never opened again by itself

    def __init__(self, server: Server, timeout: float, handshake_seconds: float | None = None) -> None:
        self.default_port = 443 if server.tls else 80
        first = server.proxy or server
        super().__init__(first.host, first.port, timeout=timeout)
        self._server, self._stamp = server, server.stamp()
        self._handshake_seconds = timeout if handshake_seconds is None else handshake_seconds
        if server.proxy and server.tls:
            allowed = {"Proxy-Authorization": server.proxy.authorization} if server.proxy.authorization else {}
            self.set_tunnel(bracketed(server.host), server.port, allowed)

    def connect(self) -> None:
        """Open it. Raises FAILURES."""
        context = self._server.tls() if self._server.tls else None
        self._reach()
        if context is None:
            return
        try:
            self.set_timeout(self._handshake_seconds)
            self.sock = context.wrap_socket(self.sock, server_hostname=self._server.certified_name or self._server.host)
        except BaseException:
            self.close()
            raise

    def send_request(self, method: str, target: str, body: bytes | None, headers: Headers) -> None:
        """Send a request. Headers may be repeated."""
        proxy = None if self._server.tls else self._server.proxy
        self.putrequest(method, f"{self._server.url}{target}" if proxy else target)
        if proxy and proxy.authorization:
            self.putheader("Proxy-Authorization", proxy.authorization)
        for name, value in headers.items() if isinstance(headers, Mapping) else headers:
            self.putheader(name, value)
        if body is not None or method != "GET":
            self.putheader("Content-Length", str(len(body or b"")))
        self.endheaders(body)

    def set_timeout(self, seconds: float) -> None:
        """How long the server may be silent from now on."""
        self.sock.settimeout(seconds)

    def is_ended(self) -> bool:
        """Whether the server has closed the idle connection, or sent what nobody asked for."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))

    def is_outdated(self) -> bool:
        """Whether the client's certificate was replaced since it was made."""
        return self._stamp != self._server.stamp()

    def _reach(self) -> None:
        try:
            super().connect()
        except OSError as error:
            raise_refusal_of_proxy(error)
            raise
