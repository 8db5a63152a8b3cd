"""A short-lived token of another service account, asked of the API server and kept in memory alone.

Owns when such a token is asked for anew. With it the agent shows a kubelet an account that may do next to nothing,
whoever answers there.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from topomend.kube.errors import APIError, Forbidden

LIFE_SECONDS = 600
"""As short as the API server grants (pkg/apis/authentication/validation:MinTokenAgeSec)."""

RENEW_SECONDS = 60.0
"""So long before its end a token is no longer used: clocks differ, and a request takes its time."""


class Client(Protocol):
    """The one request that is needed; see kube.light."""

    def request_token(self, namespace: str, account: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The TokenRequest as the API server answers it. Raises APIError."""


class ReaderToken:
    """The token of the service account ``account``, ``NAMESPACE/NAME``, bound to the Node ``node_name``.

    To the Node, for the API server binds no token to a pod of another account; it can since Kubernetes 1.31
    (registry/core/serviceaccount/storage/token.go). Raises ValueError where ``account`` is not of that form.
    """

    def __init__(
        self,
        client: Client,
        account: str,
        node_name: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        namespace, slash, name = account.partition("/")
        if not (namespace and slash and name) or "/" in name:
            raise ValueError(f"{account!r} is not NAMESPACE/NAME")
        self._client, self._namespace, self._name, self._node_name = client, namespace, name, node_name
        self._monotonic = monotonic
        self._token = ""
        self._node_uid = ""
        self._ends = 0.0

    def read(self, node_uid: str) -> str:
        """The token for the Node of this uid, asked for anew where it is about to end. Raises APIError."""
        if not self._token or self._node_uid != node_uid or self._monotonic() >= self._ends:
            began = self._monotonic()
            self._token = self._request(node_uid)
            self._node_uid, self._ends = node_uid, began + LIFE_SECONDS - RENEW_SECONDS
        return self._token

    def forget(self) -> None:
        """Have the next one be asked for: this one was not accepted."""
        self._token = ""

    def _request(self, node_uid: str) -> str:
        bound = {"apiVersion": "v1", "kind": "Node", "name": self._node_name, "uid": node_uid}
        spec = {"expirationSeconds": LIFE_SECONDS, "boundObjectRef": bound}
        try:
            answer = self._client.request_token(self._namespace, self._name, spec)
        except Forbidden as error:
            raise APIError(
                f"the agent may not ask for a token of {self._namespace}/{self._name} ({error}): apply the manifests "
                "of this version, kubelet-reader.yaml among them"
            ) from error
        except APIError as error:
            raise APIError(f"no token of {self._namespace}/{self._name}: {error}") from error
        token = answer.get("status", {}).get("token")
        if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
            raise APIError(f"no token of {self._namespace}/{self._name}: the API server's answer holds none")
        return token
