"""What one kubelet runs with, asked of the kubelet itself: ``GET /configz`` on its own port.

Asked directly, for this takes the right ``nodes/configz`` alone (KEP-2862, since Kubernetes 1.33;
pkg/kubelet/server/auth.go:GetRequestAttributes). The way through the API server takes ``nodes/proxy``, with which one
runs commands in every pod. The token is sent only to a server whose certificate has been verified.
"""

import json
import socket
import ssl
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from topomend.kube.access import Access
from topomend.kube.errors import Unanswered, refused

TIMEOUT_SECONDS = 5.0
MAX_ANSWER_BYTES = 1 << 20
_PATH = "/configz"


class KubeletClient:
    """Asks the kubelet at ``address`` (host:port) as the account that ``access`` has.

    Its certificate must be signed by the cluster's authority, or by one in the file ``authority``, and be made out to
    the node's name or to the address. Raises ValueError where that is no address.
    """

    def __init__(self, access: Access, address: str, node_name: str, authority: Path | None = None) -> None:
        self._access, self._node_name, self._authority = access, node_name, authority
        self._host, self._port = _host_and_port(address)

    def configz(self) -> Any:
        """The answer, as JSON reads it. Raises APIError."""
        try:
            status, text = self._answer()
        except (HTTPException, OSError, ValueError) as error:
            raise Unanswered(f"the kubelet at {self._host}:{self._port} does not answer: {_words(error)}") from error
        if status != 200:
            raise refused(status, text)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Unanswered(
                f"the kubelet at {self._host}:{self._port} answers {_PATH} with what is no JSON"
            ) from error

    def _answer(self) -> tuple[int, bytes]:
        headers = {"Accept": "application/json"}
        connection = self._connection()
        try:
            if token := self._access.token():
                headers["Authorization"] = f"Bearer {token}"
            connection.request("GET", _PATH, headers=headers)
            answer = connection.getresponse()
            text = answer.read(MAX_ANSWER_BYTES + 1)
        finally:
            connection.close()
        if len(text) > MAX_ANSWER_BYTES:
            raise ValueError(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
        return answer.status, text

    def _connection(self) -> HTTPSConnection:
        """A connection to a server that has shown a certificate of one of the two names."""
        trusted = self._access.tls() if self._access.tls else ssl.create_default_context()
        if self._authority:
            trusted.load_verify_locations(cafile=self._authority)
        try:
            return self._connected(trusted, self._node_name)
        except ssl.SSLCertVerificationError as error:
            if error.verify_code not in _OTHER_NAME:
                raise
            return self._connected(trusted, self._host)

    def _connected(self, trusted: ssl.SSLContext, name: str) -> HTTPSConnection:
        connection = HTTPSConnection(self._host, self._port, timeout=TIMEOUT_SECONDS, context=trusted)
        plain = socket.create_connection((self._host, self._port), TIMEOUT_SECONDS)
        try:
            connection.sock = trusted.wrap_socket(plain, server_hostname=name)
        except BaseException:
            plain.close()
            raise
        return connection


_OTHER_NAME = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH (openssl/x509_vfy.h)."""


def _host_and_port(address: str) -> tuple[str, int]:
    """An IPv6 address may do without its brackets: a pod's field ``status.hostIP`` has none."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 1 << 16:
        raise ValueError(f"{address!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}); name its authority with --kubelet-ca, for a "
            "kubelet that signs for itself its pki/kubelet.crt"
        )
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:.0f} s"
    return str(getattr(error, "strerror", None) or str(error) or type(error).__name__)
