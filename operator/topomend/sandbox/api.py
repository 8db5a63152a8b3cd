"""A minimal client of the sandbox's own API server: readiness, get, create, apply.

A request without an answer yields None or False. For anything more, use the kubeconfig with a real client.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from topomend.kube.connection.tls import trusting
from topomend.kube.connection.transport import FAILURES, Response, Server, Transport

TIMEOUT_SECONDS = 5.0
MAX_ANSWER_BYTES = 64 << 20
"""Far more than all pods of one namespace take."""


class API:
    """One API server on loopback, with the administrator's token. ``authority`` is the file of its certificate."""

    def __init__(self, host: str, port: int, authority: Path, token: str) -> None:
        self._server = Server(host, port, lambda: trusting(authority))
        self._token = token

    def ready(self) -> bool:
        """Whether ``/readyz`` answers with 200."""
        response = self.ask("GET", "/readyz")
        return response is not None and response.status == HTTPStatus.OK

    def get(self, path: str) -> Mapping[str, Any] | None:
        """The object at ``path``; None if there is no such object or no answer."""
        response = self.ask("GET", path)
        if response is None or response.status != HTTPStatus.OK:
            return None
        document = json.loads(response.body)
        return document if isinstance(document, dict) else None

    def create(self, path: str, document: Mapping[str, Any]) -> bool:
        """Create an object. True if it exists afterwards."""
        response = self.ask("POST", path, json.dumps(document))
        return response is not None and response.status in (HTTPStatus.CREATED, HTTPStatus.CONFLICT)

    def apply(self, path: str, document: Mapping[str, Any], manager: str) -> Response | None:
        """Apply a part of an object as the field manager ``manager``; the answer, or None without one in time."""
        query = f"?fieldManager={manager}&force=true"
        return self.ask("PATCH", path + query, json.dumps(document), "application/apply-patch+yaml")

    def ask(
        self, method: str, path: str, body: str | None = None, content_type: str = "application/json"
    ) -> Response | None:
        """Send a request; the answer, or None without one in time."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
        content = None if body is None else body.encode()
        try:
            with Transport(self._server, timeout=TIMEOUT_SECONDS, max_bytes=MAX_ANSWER_BYTES) as transport:
                return transport.request(method, path, content, headers)
        except FAILURES:
            return None


def heartbeat(node: Mapping[str, Any]) -> str:
    """When a kubelet last wrote the Node's status, as the Node has it; empty if none has."""
    conditions = node.get("status", {}).get("conditions", ())
    return next((str(one.get("lastHeartbeatTime", "")) for one in conditions if one["type"] == "Ready"), "")


def is_ready(node: Mapping[str, Any], devices: Mapping[str, int]) -> bool:
    """Whether a Node is Ready, has no taints, and offers at least ``devices`` (number by resource)."""
    status = node.get("status", {})
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions", ())}
    allocatable = status.get("allocatable", {})
    return (
        conditions.get("Ready") == "True"
        and not node.get("spec", {}).get("taints")
        and all(int(allocatable.get(resource, "0")) >= count for resource, count in devices.items())
    )
