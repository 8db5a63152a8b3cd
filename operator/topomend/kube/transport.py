"""HTTP requests over the standard library: one server, one connection, answers of bounded size.

Carries the requests of the agent to the API server and to its kubelet, and those of the sandbox. Owns connections,
their reuse, time limits and the longest answer. Leaves paths, credentials and the meaning of a status to the clients.

The operator and the commands use the official client's transport instead, which also knows proxies and exec plugins.
It is built on urllib3, which would add 1.3 MiB to the agent on every node.
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Self

FAILURES = (HTTPException, OSError, ValueError)
"""What a request raises where no answer, or none of an acceptable size, arrived."""

_ENDED = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""What a connection raises that the server has closed."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server listens, and how it proves that it is the right one.

    ``tls`` makes the context of each new connection, because certificates are replaced in place; it is None for plain
    HTTP. ``certified_name`` is the name or address that the certificate must carry, by default ``host``.
    """

    host: str
    port: int
    tls: Callable[[], ssl.SSLContext] | None
    certified_name: str = ""


@dataclass(frozen=True, slots=True)
class Response:
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
        self._connection: HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> None:
        """Open a connection, where none is open. Raises FAILURES, SSLCertVerificationError among them."""
        if self._connection is None:
            connection = _Connection(self._server, self._timeout)
            connection.connect()
            self._connection = connection

    def request(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
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

    def _request(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> Response:
        if self._connection is not None:
            try:
                return self._exchange(self._connection, method, target, body, headers)
            except _ENDED:
                self.close()
        self.connect()
        assert self._connection is not None  # noqa: S101 - connect() has just opened it
        return self._exchange(self._connection, method, target, body, headers)

    def _exchange(
        self, connection: HTTPConnection, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Response:
        connection.request(method, target, body, dict(headers))
        answer = connection.getresponse()
        content = answer.read(self._max_bytes + 1)
        if len(content) > self._max_bytes:
            raise ValueError(f"the answer is longer than {self._max_bytes} bytes")
        if answer.will_close:
            self.close()
        return Response(answer.status, content, answer.headers.get("Retry-After"))


class _Connection(HTTPConnection):
    """A connection to a Server. HTTPSConnection would verify the host's name and no other."""

    auto_open = 0  # a connection that was closed is never opened again by itself

    def __init__(self, server: Server, timeout: float) -> None:
        self.default_port = 443 if server.tls else 80
        super().__init__(server.host, server.port, timeout=timeout)
        self._server = server

    def connect(self) -> None:
        context = self._server.tls() if self._server.tls else None
        super().connect()
        if context is None:
            return
        try:
            self.sock = context.wrap_socket(self.sock, server_hostname=self._server.certified_name or self._server.host)
        except BaseException:
            self.close()
            raise
