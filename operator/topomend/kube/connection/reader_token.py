"""Request short-lived tokens of another service account from the API server, and keep them in memory only.

Owns when a token is renewed. The agent authenticates to a kubelet with an account that may do next to nothing, so that
an impostor gains nothing by the token.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from topomend.kube.errors import APIError, Forbidden, Refused

LIFE_SECONDS = 600
"""The shortest life that the API server grants (pkg/apis/authentication/validation:MinTokenAgeSec)."""

RENEW_SECONDS = 60.0
"""How long before its end a token is renewed: clocks differ, and a request takes time."""


class Client(Protocol):
    """The one request that is needed (``kube.agent_client``)."""

    def request_token(self, namespace: str, account: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The API server's answer to a TokenRequest. Raises APIError."""


class ReaderToken:
    """The token of the service account ``account``, written ``NAMESPACE/NAME``, bound to the Node ``node_name``.

    The API server binds no token to a pod of another account. It binds tokens to Nodes since Kubernetes 1.31
    (registry/core/serviceaccount/storage/token.go). ``monotonic`` is a clock in seconds. Raises ValueError where
    ``account`` is malformed.
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
        """The token bound to the Node of this uid, renewed where it is about to expire. Raises APIError."""
        if not self._token or self._node_uid != node_uid or self._monotonic() >= self._ends:
            began = self._monotonic()
            self._token = self._request(node_uid)
            self._node_uid, self._ends = node_uid, began + LIFE_SECONDS - RENEW_SECONDS
        return self._token

    def forget(self) -> None:
        """Discard the token, so that the next read requests another: this one was not accepted."""
        self._token = ""

    def _request(self, node_uid: str) -> str:
        bound = {"apiVersion": "v1", "kind": "Node", "name": self._node_name, "uid": node_uid}
        spec = {"expirationSeconds": LIFE_SECONDS, "boundObjectRef": bound}
        try:
            answer = self._client.request_token(self._namespace, self._name, spec)
        except Forbidden as error:
            raise APIError(
                f"the agent may not request a token of {self._namespace}/{self._name} ({error}): apply the manifests "
                "of this version, kubelet-reader.yaml among them"
            ) from error
        except APIError as error:
            why = f"no token of {self._namespace}/{self._name}: {error}"
            if isinstance(error, Refused) and error.status == 400:
                why += ": API servers before 1.31 bind no token to a Node"
            raise APIError(why) from error
        token = answer.get("status", {}).get("token")
        if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
            raise APIError(f"no token of {self._namespace}/{self._name}: the API server's answer has none")
        return token
