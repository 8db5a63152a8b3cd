"""A small API client for the agent: the few requests that it needs.

Owns the paths of these requests. Leaves the way to the cluster to ``access``, connections to ``transport``, and what a
status means to ``errors``. Objects are plain dictionaries.
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from topomend.kube.connection.access import Access, find_access
from topomend.kube.connection.credentials import Headers
from topomend.kube.connection.transport import FAILURES, Transport
from topomend.kube.errors import Unanswered, answered, refused
from topomend.kube.words import failure, unknown_account
from topomend.wire.group import API_VERSION
from topomend.wire.published import node_feature as features
from topomend.wire.published import node_resource_topology as zones

TIMEOUT_SECONDS = 10.0
MAX_ANSWER_BYTES = 8 << 20
"""More than any object that etcd stores (1.5 MiB)."""

UNAUTHORIZED = 401

_NODES = "/api/v1/nodes"
_NODE_TOPOLOGIES = f"/apis/{API_VERSION}/nodetopologies"
_NODE_RESOURCE_TOPOLOGIES = f"/apis/{zones.API_VERSION}/noderesourcetopologies"
_APPLY, _JSON_PATCH = "application/apply-patch+yaml", "application/json-patch+json"


class AgentClient:
    """Requests to the API server of ``access``, by default of ``find_access``.

    The constructor raises NotConfigured. Every request raises APIError unless it succeeds. One connection stays open
    between requests. Not for use by several threads.
    """

    def __init__(self, access: Access | None = None) -> None:
        self.access = access or find_access()
        self._transport = Transport(self.access.server, timeout=TIMEOUT_SECONDS, max_bytes=MAX_ANSWER_BYTES)

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

    def node_feature(self, name: str, namespace: str) -> dict[str, Any]:
        """The NodeFeature object."""
        return self._ask("GET", _node_feature(name, namespace))

    def apply_node_feature(self, name: str, namespace: str, content: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Create or change the object (server-side apply). Raises Conflict where another manager owns a field of it."""
        return self._apply(_node_feature(name, namespace), content, manager, force=False)

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
        target = self.access.path + path + (f"?{urlencode(query)}" if query else "")
        body = None if content is None else json.dumps(content, separators=(",", ":")).encode()
        try:
            response = self._transport.request(method, target, body, self._headers(content_type if body else None))
        except FAILURES as error:
            raise Unanswered(failure(error, self.access), f"{method} {path}") from error
        if response.status == UNAUTHORIZED:
            self.access.credentials.renew()
            self._transport.close()  # a connection stays that of the certificate with which it was made
            raise unknown_account(refused(response.status, response.body, response.retry_after), self.access)
        return answered(response.status, response.body, f"{method} {path}", response.retry_after)

    def _headers(self, content_type: str | None) -> Headers:
        typed = (("Content-Type", content_type),) if content_type else ()
        return (("Accept", "application/json"), *typed, *self.access.credentials.headers())


def _node_feature(name: str, namespace: str) -> str:
    return f"/apis/{features.API_VERSION}/namespaces/{quote(namespace)}/nodefeatures/{quote(name)}"
