"""A short-lived token of another service account, asked of the API server and kept in memory alone.

Owns when such a token is asked for anew. With it the agent shows a kubelet an account that may do next to nothing,
whoever answers there.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class PodReference:
    """The pod that a token is bound to: the token ends with it."""

    name: str
    uid: str


class ReaderToken:
    """The token of the service account ``account``, ``NAMESPACE/NAME``, bound to ``pod`` where one is given.

    Raises ValueError where ``account`` is not of that form.
    """

    def __init__(
        self,
        client: Client,
        account: str,
        pod: PodReference | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        namespace, slash, name = account.partition("/")
        if not (namespace and slash and name) or "/" in name:
            raise ValueError(f"{account!r} is not NAMESPACE/NAME")
        self._client, self._namespace, self._name, self._pod = client, namespace, name, pod
        self._monotonic = monotonic
        self._token = ""
        self._ends = 0.0

    def read(self) -> str:
        """The token, asked for anew where it is about to end. Raises APIError."""
        if not self._token or self._monotonic() >= self._ends:
            began = self._monotonic()
            self._token = self._request()
            self._ends = began + LIFE_SECONDS - RENEW_SECONDS
        return self._token

    def forget(self) -> None:
        """Have the next one be asked for: this one was not accepted."""
        self._token = ""

    def _request(self) -> str:
        spec: dict[str, Any] = {"expirationSeconds": LIFE_SECONDS}
        if self._pod is not None:
            spec["boundObjectRef"] = {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": self._pod.name,
                "uid": self._pod.uid,
            }
        try:
            answer = self._client.request_token(self._namespace, self._name, spec)
        except Forbidden as error:
            raise APIError(
                f"the agent may not ask for a token of {self._namespace}/{self._name} ({error}): apply the manifests "
                "of this version, and give the agent POD_NAME and POD_UID as they do"
            ) from error
        except APIError as error:
            raise APIError(f"no token of {self._namespace}/{self._name}: {error}") from error
        token = answer.get("status", {}).get("token")
        if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
            raise APIError(f"no token of {self._namespace}/{self._name}: the API server's answer holds none")
        return token
