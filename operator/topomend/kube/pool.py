"""Connections to one server that several threads share, by urllib3: the transport of the commands.

Owns that connections are those of a ``Server``: the TLS, the name, the proxy and the end of a connection whose client
certificate was replaced. Paths, credentials and the meaning of a status are left to ``client``.
"""

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, ClassVar

import urllib3
from urllib3.connection import HTTPSConnection
from urllib3.exceptions import HTTPError, InsecureRequestWarning

from topomend.kube.connection import transport
from topomend.kube.connection.credentials import Headers
from topomend.kube.connection.transport import Server, raise_refusal_of_proxy

MAX_IDLE = 16
"""How many connections may wait for the next request."""


class Pool:
    """Requests to one server, several at once. May be used by several threads.

    A connection must be made within ``connect_seconds``; its TLS handshake may take as long again.
    """

    FAILURES: ClassVar[tuple[type[Exception], ...]] = (*transport.FAILURES, HTTPError)
    """What a request raises where no answer arrived. The cause of those of libraries is one of the system's."""

    def __init__(self, server: Server, connect_seconds: float) -> None:
        self._server, self._connect_seconds = server, connect_seconds
        self._stamp: object = None
        self._manager = self._made_manager(server)
        made: Any = self._manager
        made.pool_classes_by_scheme = {**made.pool_classes_by_scheme, "https": partial(_pool, server)}
        # It would join headers that are repeated, such as groups. Those that it adds are set in any case.
        made._set_proxy_headers = lambda _, headers: headers
        # A kubeconfig that has nothing verified is a user's choice, of which each connection would warn.
        urllib3.disable_warnings(InsecureRequestWarning)

    @contextmanager
    def response(
        self, method: str, target: str, body: Mapping[str, Any] | None, headers: Headers, seconds: float
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """The answer to a request for ``target``, a path with its query; its body is unread. Raises FAILURES.

        ``seconds`` is how long the server may be silent. The request is sent once only. The connection is reused if the
        body was read to its end.
        """
        self._close_outdated()
        # Headers may be repeated.
        sent = (method, self._server.url + target, urllib3.HTTPHeaderDict(headers), body)
        with closing(self._send(*sent, seconds)) as response:
            yield response

    def close(self) -> None:
        """Close the connections that no request uses, and each of the others after its request."""
        self._manager.clear()

    def _made_manager(self, server: Server) -> urllib3.PoolManager:
        # A client that retries by itself hides that the first request may have taken effect.
        settings: dict[str, Any] = {"retries": False, "maxsize": MAX_IDLE}
        if server.proxy is None:
            return urllib3.PoolManager(**settings)
        return urllib3.ProxyManager(server.proxy.shown, proxy_headers=headers_for(server), **settings)

    def _send(
        self, method: str, url: str, headers: urllib3.HTTPHeaderDict, body: Mapping[str, Any] | None, seconds: float
    ) -> urllib3.BaseHTTPResponse:
        text = None if body is None else json.dumps(body)
        timeout = urllib3.Timeout(connect=self._connect_seconds, read=seconds)
        return self._manager.request(method, url, body=text, headers=headers, timeout=timeout, preload_content=False)

    def _close_outdated(self) -> None:
        """Close the connections where the client's certificate was replaced: each stays that of the old one."""
        stamp = self._server.stamp()
        if stamp != self._stamp:
            self._manager.clear()
            self._stamp = stamp


def headers_for(server: Server) -> dict[str, str]:
    """The headers that the server's proxy gets."""
    authorization = server.proxy.authorization if server.proxy else ""
    return {"Proxy-Authorization": authorization} if authorization else {}


def _pool(server: Server, host: str, port: int, **settings: Any) -> urllib3.HTTPSConnectionPool:
    pool: Any = urllib3.HTTPSConnectionPool(host, port, **settings)
    pool.ConnectionCls = partial(_Connection, server)
    return pool  # type: ignore[no-any-return]


class _Connection(HTTPSConnection):
    """A connection whose certificates are read when it is made: the settings of a pool are for ever."""

    def __init__(self, server: Server, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._server = server

    def connect(self) -> None:
        context = self._server.tls() if self._server.tls else ssl.create_default_context()
        self.ssl_context, self.cert_reqs = context, context.verify_mode
        self.server_hostname = self._server.certified_name or self._server.host
        try:
            super().connect()
        except OSError as error:
            raise_refusal_of_proxy(error)
            raise
