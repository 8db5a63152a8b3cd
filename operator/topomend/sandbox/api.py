"""A minimal client of the sandbox's own API server, with the standard library alone: readiness, get, create.

A request without an answer yields None or False. For anything more, use the kubeconfig with a real client.
"""

import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TIMEOUT = 5.0


class API:
    """One API server on loopback, with the administrator's token. ``authority`` is the file of its certificate."""

    def __init__(self, host: str, port: int, authority: Path, token: str) -> None:
        self._host, self._port, self._authority, self._token = host, port, authority, token

    def ready(self) -> bool:
        """Whether ``/readyz`` answers with 200."""
        answer = self.ask("GET", "/readyz")
        return answer is not None and answer[0] == http.client.OK

    def get(self, path: str) -> Mapping[str, Any] | None:
        """The object at ``path``; None if there is no such object or no answer."""
        answer = self.ask("GET", path)
        if answer is None or answer[0] != http.client.OK:
            return None
        document = json.loads(answer[1])
        return document if isinstance(document, dict) else None

    def create(self, path: str, document: Mapping[str, Any]) -> bool:
        """Create an object. True if it exists afterwards."""
        answer = self.ask("POST", path, json.dumps(document))
        return answer is not None and answer[0] in (http.client.CREATED, http.client.CONFLICT)

    def ask(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes] | None:
        """Send a request; the answer's status and body, or None without an answer in time."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            context = ssl.create_default_context(cafile=self._authority)
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT, context=context)
            try:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                return response.status, response.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException):
            return None


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
