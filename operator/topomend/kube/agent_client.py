"""A small API client for the agent: the few requests that it needs.

The official ``kubernetes`` client, which the operator uses, costs some 60 MiB more on every node. Owns the paths of
these requests. Leaves credentials to ``kubeconfig``, connections to ``transport``, and what a status means to
``errors``. Objects are plain dictionaries. It uses no proxy: an agent speaks to its API server directly.
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from topomend.kube.errors import Unanswered, answered
from topomend.kube.kubeconfig import NotConfigured, find_access
from topomend.kube.transport import FAILURES, Server, Transport
from topomend.wire import node_resource_topology as zones
from topomend.wire.group import API_VERSION

__all__ = ["AgentClient", "NotConfigured"]

TIMEOUT_SECONDS = 10.0
MAX_ANSWER_BYTES = 8 << 20
"""More than any object that etcd stores (1.5 MiB)."""

_NODES = "/api/v1/nodes"
_NODE_TOPOLOGIES = f"/apis/{API_VERSION}/nodetopologies"
_NODE_RESOURCE_TOPOLOGIES = f"/apis/{zones.API_VERSION}/noderesourcetopologies"
_APPLY, _JSON_PATCH = "application/apply-patch+yaml", "application/json-patch+json"


class AgentClient:
    """Requests to the cluster that ``KUBECONFIG`` names, otherwise to the one in which this process runs.

    The constructor raises NotConfigured. Every request raises APIError unless it succeeds. One connection stays open
    between requests. Not for use by several threads.
    """

    def __init__(self) -> None:
        self._access = find_access()
        server = Server(self._access.host, self._access.port, self._access.tls)
        self._transport = Transport(server, timeout=TIMEOUT_SECONDS, max_bytes=MAX_ANSWER_BYTES)

    def node(self, name: str) -> dict[str, Any]:
        """The Node object."""
        return self._ask("GET", f"{_NODES}/{quote(name)}")

    def node_topology(self, name: str) -> dict[str, Any]:
        """The NodeTopology object."""
        return self._ask("GET", f"{_NODE_TOPOLOGIES}/{quote(name)}")

    def apply_node_topology(self, name: str, content: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Create or change the object; the manager then owns exactly these fields (server-side apply, forced)."""
        return self._apply(f"{_NODE_TOPOLOGIES}/{quote(name)}", content, manager)

    def apply_node_topology_status(self, name: str, content: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Change the object's status in the same way; ``content`` is an object that has one."""
        return self._apply(f"{_NODE_TOPOLOGIES}/{quote(name)}/status", content, manager)

    def replace_in_node_topology(self, name: str, field: str, value: object, manager: str) -> dict[str, Any]:
        """Replace ``field`` as a whole: ``status``, or a path such as ``metadata/ownerReferences`` (JSON patch)."""
        path = f"{_NODE_TOPOLOGIES}/{quote(name)}" + ("/status" if field == "status" else "")
        patch = [{"op": "add", "path": f"/{field}", "value": value}]
        return self._ask("PATCH", path, {"fieldManager": manager}, patch, _JSON_PATCH)

    def node_resource_topology(self, name: str) -> dict[str, Any]:
        """The NodeResourceTopology object."""
        return self._ask("GET", f"{_NODE_RESOURCE_TOPOLOGIES}/{quote(name)}")

    def apply_node_resource_topology(self, name: str, content: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Create or change the object (server-side apply). Raises Conflict where another manager owns a field of it."""
        return self._apply(f"{_NODE_RESOURCE_TOPOLOGIES}/{quote(name)}", content, manager, force=False)

    def request_token(self, namespace: str, account: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a TokenRequest with this ``spec`` for a service account."""
        path = f"/api/v1/namespaces/{quote(namespace)}/serviceaccounts/{quote(account)}/token"
        content = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return self._ask("POST", path, content=content, content_type="application/json")

    def close(self) -> None:
        """Close the connection. The next request opens another."""
        self._transport.close()

    def _apply(self, path: str, content: Mapping[str, Any], manager: str, *, force: bool = True) -> dict[str, Any]:
        return self._ask("PATCH", path, {"fieldManager": manager, "force": str(force).lower()}, content)

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        content: object = None,
        content_type: str = _APPLY,
    ) -> dict[str, Any]:
        target = self._access.path + path + (f"?{urlencode(query)}" if query else "")
        body = None if content is None else json.dumps(content, separators=(",", ":")).encode()
        try:
            response = self._transport.request(method, target, body, self._headers(content_type if body else None))
        except FAILURES as error:
            raise Unanswered(f"{method} {path}: {str(error) or type(error).__name__}") from error
        return answered(response.status, response.body, f"{method} {path}", response.retry_after)

    def _headers(self, content_type: str | None) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if content_type:
            headers["Content-Type"] = content_type
        # Every request reads the token: the kubelet replaces its file long before it expires.
        if token := self._access.token():
            headers["Authorization"] = f"Bearer {token}"
        return headers
