"""The official client as the transport of the operator: connections of urllib3 that several threads share.

Owns its configuration, and that its connections are those of a ``Server``: the TLS, the name, the proxy and the end of
a connection whose client certificate was replaced. The official client reads no kubeconfig here, because ``access``
does, and its models are not used, because ``wire`` reads objects. Its import takes 0.2 s of the processor, so that
commands use a plain ``Pool``.
"""

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any, ClassVar

import urllib3
from kubernetes.client import ApiClient, ApiException, Configuration
from urllib3.connection import HTTPSConnection
from urllib3.exceptions import HTTPError, InsecureRequestWarning

from topomend.kube.connection import transport
from topomend.kube.connection.credentials import Headers
from topomend.kube.connection.transport import Server, raise_refusal_of_proxy
from topomend.kube.pool import MAX_IDLE, Answer


class Official:
    """Requests to one server, several at once, sent by the official client. May be used by several threads.

    A connection must be made within ``connect_seconds``; its TLS handshake may take as long again.
    """

    FAILURES: ClassVar[tuple[type[Exception], ...]] = (*transport.FAILURES, HTTPError, ApiException)

    def __init__(self, server: Server, connect_seconds: float) -> None:
        self._server, self._connect_seconds = server, connect_seconds
        self._stamp: object = None
        api: Any = ApiClient(_configuration(server))
        manager: Any = api.rest_client.pool_manager
        self._api, self._manager = api, manager
        manager.pool_classes_by_scheme = {**manager.pool_classes_by_scheme, "https": partial(_pool, server)}
        # It would join headers that are repeated, such as groups. Those that it adds are set in any case.
        manager._set_proxy_headers = lambda _, headers: headers
        # A kubeconfig that has nothing verified is a user's choice, of which each connection would warn.
        urllib3.disable_warnings(InsecureRequestWarning)

    @contextmanager
    def sent(
        self, method: str, target: str, body: Mapping[str, Any] | None, headers: Headers, seconds: float
    ) -> Iterator[Callable[[], Answer]]:
        """Send a request, as ``Connections`` has it: when somebody waits for the answer, as this client does."""
        with ExitStack() as stack:
            yield lambda: stack.enter_context(self._response(method, target, body, headers, seconds))

    @contextmanager
    def _response(
        self, method: str, target: str, body: Mapping[str, Any] | None, headers: Headers, seconds: float
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        self._close_outdated()
        repeated = urllib3.HTTPHeaderDict(headers)
        timeouts = (self._connect_seconds, seconds)
        answer = self._api.call_api(method, self._server.url + target, repeated, body, _request_timeout=timeouts)
        with closing(answer.response) as response:
            yield response

    def close(self) -> None:
        """Close the connections that no request uses, and each of the others after its request."""
        self._api.close()
        self._manager.clear()

    def _close_outdated(self) -> None:
        """Close the connections where the client's certificate was replaced: each stays that of the old one."""
        stamp = self._server.stamp()
        if stamp != self._stamp:
            self._manager.clear()
            self._stamp = stamp


def _configuration(server: Server) -> Any:
    configuration: Any = Configuration()
    configuration.host = server.url
    # A client that retries by itself hides that the first request may have taken effect.
    configuration.retries = False
    configuration.connection_pool_maxsize = MAX_IDLE
    # Those of the environment are in the server already, by the rules of kubectl.
    configuration.proxy = server.proxy.shown if server.proxy else None
    configuration.no_proxy = ""
    authorization = server.proxy.authorization if server.proxy else ""
    configuration.proxy_headers = {"Proxy-Authorization": authorization} if authorization else None
    return configuration


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
