"""Ask one kubelet for its configuration: ``GET /configz`` on its own port.

A direct request needs only the right ``nodes/configz`` (KEP-2862, since Kubernetes 1.33;
pkg/kubelet/server/auth.go:GetRequestAttributes). A request through the API server needs ``nodes/proxy``, with which one
can run commands in every pod.

Many kubelets sign their serving certificate themselves, so the agent cannot tell the kubelet from an impostor. The
token sent here must therefore grant next to nothing. It is never the agent's own.

Owns the request, and which certificate a kubelet may show. Leaves the connection to ``transport``, the token to
``reader_token``, and the meaning of the answer to ``discover``.
"""

import ipaddress
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from topomend.kube.connection.address import host_and_port
from topomend.kube.connection.tls import is_name_mismatch, trusting, trusting_anybody
from topomend.kube.connection.transport import FAILURES, Response, Server, Transport
from topomend.kube.errors import Forbidden, Unanswered, refused

DEFAULT_PORT = 10250
TIMEOUT_SECONDS = 5.0
MAX_ANSWER_BYTES = 1 << 20
_PATH = "/configz"


class Token(Protocol):
    """The bearer token to send (``kube.connection.reader_token``)."""

    def read(self, node_uid: str) -> str:
        """The current token, bound to the Node of this uid. Raises APIError."""

    def forget(self) -> None:
        """Discard the token: the kubelet did not accept it."""


@dataclass(frozen=True, slots=True)
class Configz:
    """A kubelet's answer as JSON values. ``unverified`` is why its certificate was not trusted, empty if it was."""

    content: Any
    unverified: str = ""


class KubeletClient:
    """Requests to the kubelet at ``address``: a host, or ``HOST:PORT`` where the Node names the wrong port.

    The kubelet's certificate is verified against the authorities of the context ``tls`` and the one in the file
    ``authority``. It must name the node or the address. With ``must_verify``, nothing is sent to a kubelet whose
    certificate cannot be verified. Raises ValueError where ``address`` is malformed.
    """

    def __init__(  # noqa: PLR0913 - what to ask, whom to trust, as whom to ask
        self,
        address: str,
        node_name: str,
        token: Token,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        authority: Path | None = None,
        must_verify: bool = False,
    ) -> None:
        self._host, self._port = _host_and_port(address)
        self._node_name, self._token, self._tls = node_name, token, tls
        self._authority, self._must_verify = authority, must_verify

    def configz(self, node_uid: str, port: int = DEFAULT_PORT) -> Configz:
        """The kubelet's configuration. ``node_uid`` and ``port`` come from the Node object. Raises APIError."""
        port = self._port or port
        try:
            response, unverified = self._ask(node_uid, port)
        except FAILURES as error:
            where = f"[{self._host}]:{port}" if ":" in self._host else f"{self._host}:{port}"
            raise Unanswered(f"the kubelet at {where} does not answer: {_explain(error)}") from error
        if response.status != 200:
            refusal = refused(response.status, response.body)
            if isinstance(refusal, Forbidden):
                self._token.forget()
            raise refusal
        try:
            return Configz(json.loads(response.body), unverified)
        except (ValueError, RecursionError) as error:
            raise Unanswered(f"the kubelet answers {_PATH} with invalid JSON") from error

    def _ask(self, node_uid: str, port: int) -> tuple[Response, str]:
        transport, unverified = self._connected(port)
        with transport:
            headers = {"Accept": "application/json", "Authorization": f"Bearer {self._token.read(node_uid)}"}
            return transport.request("GET", _PATH, headers=headers), unverified

    def _connected(self, port: int) -> tuple[Transport, str]:
        """An open connection, and why the kubelet's certificate was not trusted, empty if it was.

        Raises ssl.SSLCertVerificationError with ``must_verify``.
        """
        trusted = self._trusted()
        try:
            return self._open(trusted, self._node_name, port), ""
        except ssl.SSLCertVerificationError as error:
            failure = error
        if is_name_mismatch(failure):
            try:
                return self._open(trusted, self._host, port), ""
            except ssl.SSLCertVerificationError as error:
                failure = error
        if self._must_verify:
            raise failure
        return self._open(trusting_anybody(), self._node_name, port), failure.verify_message

    def _trusted(self) -> ssl.SSLContext:
        trusted = self._tls() if self._tls else trusting()
        if self._authority:
            trusted.load_verify_locations(cafile=self._authority)
        return trusted

    def _open(self, context: ssl.SSLContext, name: str, port: int) -> Transport:
        server = Server(self._host, port, lambda: context, name)
        transport = Transport(server, timeout=TIMEOUT_SECONDS, max_bytes=MAX_ANSWER_BYTES)
        transport.connect()
        return transport


def _host_and_port(address: str) -> tuple[str, int]:
    """The host without brackets, and the port, 0 if none. A bare IPv6 address is accepted, as in ``status.hostIP``."""
    if _is_address(address) or (address and ":" not in address):
        return address.strip("[]"), 0
    try:
        host, port = host_and_port(address)
    except ValueError:
        host, port = "", 0
    if not host or not port:
        raise ValueError(f"{address!r} is neither HOST nor HOST:PORT")
    return host, port


def _is_address(text: str) -> bool:
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        return False
    return True


def _explain(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}); name its authority with --kubelet-ca, for a "
            "kubelet that signs for itself its pki/kubelet.crt"
        )
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:.0f} s"
    return str(getattr(error, "strerror", None) or str(error) or type(error).__name__)
