"""A small client for the agent, which runs on every node: a few requests over lightkube, errors translated.

lightkube takes about two thirds of the memory of the full ``kubernetes`` client, which the controller uses. Objects
come and go as plain dictionaries: its model classes are never loaded.
"""

import os
from collections.abc import Mapping
from typing import Any

import httpx2
import yaml
from lightkube.config.client_adapter import ConnectionParams
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ConfigError
from lightkube.core.generic_client import GenericSyncClient
from lightkube.generic_resource import create_global_resource
from lightkube.types import PatchType

from topomend.kube.errors import Unanswered, refused
from topomend.wire.group import GROUP, NODE_TOPOLOGY, VERSION

TIMEOUT_SECONDS = 10.0

_NODE: Any = create_global_resource("", "v1", "Node", "nodes")
_NODE_TOPOLOGY: Any = create_global_resource(GROUP, VERSION, NODE_TOPOLOGY, "nodetopologies")


class NotConfigured(Exception):
    """Neither KUBECONFIG nor an in-cluster account says where the API server is, or what they say cannot be used."""


class LightClient:
    """The cluster that ``KUBECONFIG`` names, else the one this process runs in.

    Raises NotConfigured when it is made. Every request raises APIError for anything but success.
    """

    def __init__(self) -> None:
        parameters = ConnectionParams(timeout=httpx2.Timeout(TIMEOUT_SECONDS))
        try:
            self._client: Any = GenericSyncClient(parameters, config=_config().get())
        except (ConfigError, OSError, yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
            # lightkube trusts what it loads: whatever is wrong with a file comes out as one of these.
            where = os.environ.get("KUBECONFIG") or "the in-cluster account"
            raise NotConfigured(
                f"{where} does not say how to reach the cluster: {' '.join(str(error).split())[:160]}"
            ) from error

    def node(self, name: str) -> dict[str, Any]:
        """The Node object."""
        return self._ask("get", _NODE, name)

    def node_topology(self, name: str) -> dict[str, Any]:
        """The NodeTopology object."""
        return self._ask("get", _NODE_TOPOLOGY, name)

    def apply_node_topology(self, name: str, content: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Create the object, or have exactly these fields of it be the manager's (server-side apply, forced)."""
        return self._apply(_NODE_TOPOLOGY, name, content, manager)

    def apply_node_topology_status(self, name: str, content: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """The same for its status."""
        return self._apply(_NODE_TOPOLOGY.Status, name, content, manager)

    def close(self) -> None:
        """End the connections."""
        self._client.close()

    def _apply(self, kind: Any, name: str, content: Mapping[str, Any], manager: str) -> dict[str, Any]:
        parameters = {"fieldManager": manager, "force": "true"}
        return self._ask(
            "patch",
            kind,
            name,
            content=dict(content),
            parameters=parameters,
            headers={"Content-Type": PatchType.APPLY.value},
        )

    def _ask(  # noqa: PLR0913 - the parts of a request
        self,
        method: str,
        kind: Any,
        name: str,
        *,
        content: dict[str, Any] | None = None,
        parameters: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        request = self._client.prepare_request(method, kind, content, name, params=parameters, headers=headers)
        try:
            answer = self._client.send(self._client.build_adapter_request(request))
        except (httpx2.HTTPError, ConfigError, OSError) as error:
            raise Unanswered(f"{method} {kind.__name__} {name}: {str(error) or type(error).__name__}") from error
        if answer.status_code >= 400:
            raise refused(answer.status_code, answer.content, answer.headers.get("Retry-After"))
        try:
            document = answer.json()
        except ValueError as error:
            raise Unanswered(f"{method} {kind.__name__} {name}: the answer is not JSON") from error
        if not isinstance(document, dict):
            raise Unanswered(f"{method} {kind.__name__} {name}: the answer is not an object")
        return document


def _config() -> KubeConfig:
    path = os.environ.get("KUBECONFIG")
    return KubeConfig.from_file(path) if path else KubeConfig.from_service_account()
