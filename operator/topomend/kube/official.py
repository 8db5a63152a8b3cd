"""The official client as the transport of the operator.

Owns its configuration. The official client reads no kubeconfig here, because ``access`` does, and its models are not
used, because ``wire`` reads objects. Its import takes 0.2 s of the processor, so that commands use a plain ``Pool``.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import urllib3
from kubernetes.client import ApiClient, ApiException, Configuration

from topomend.kube.connection.transport import Server
from topomend.kube.pool import MAX_IDLE, Pool, headers_for


class Official(Pool):
    """The same, sent by the official client."""

    FAILURES: ClassVar[tuple[type[Exception], ...]] = (*Pool.FAILURES, ApiException)

    def close(self) -> None:
        """Close the connections that no request uses, and each of the others after its request."""
        self._api.close()
        super().close()

    def _made_manager(self, server: Server) -> urllib3.PoolManager:
        api: Any = ApiClient(_configuration(server))
        self._api = api
        manager: urllib3.PoolManager = api.rest_client.pool_manager
        return manager

    def _send(
        self, method: str, url: str, headers: urllib3.HTTPHeaderDict, body: Mapping[str, Any] | None, seconds: float
    ) -> urllib3.BaseHTTPResponse:
        answer = self._api.call_api(method, url, headers, body, _request_timeout=(self._connect_seconds, seconds))
        response: urllib3.BaseHTTPResponse = answer.response
        return response


def _configuration(server: Server) -> Any:
    configuration: Any = Configuration()
    configuration.host = server.url
    # A client that retries by itself hides that the first request may have taken effect.
    configuration.retries = False
    configuration.connection_pool_maxsize = MAX_IDLE
    # Those of the environment are in the server already, by the rules of kubectl.
    configuration.proxy = server.proxy.shown if server.proxy else None
    configuration.no_proxy = ""
    configuration.proxy_headers = headers_for(server) or None
    return configuration
