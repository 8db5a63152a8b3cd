"""What a failed request to a cluster says to its reader: the server, what went wrong, and the field to look at."""

import socket
import ssl
from collections.abc import Iterator
from http.client import HTTPException

from topomend.base.plain_text import plain
from topomend.kube.connection.access import Access
from topomend.kube.connection.kubeconfig import NotConfigured
from topomend.kube.connection.tls import is_name_mismatch
from topomend.kube.connection.transport import ProxyRefused
from topomend.kube.errors import Refused

MAX_WORDS = 300

_CAUSES = (OSError, HTTPException, NotConfigured)
"""The errors that say why. urllib3 and the official client wrap them in others."""

_CERTIFICATE_ALERTS = (
    "CERTIFICATE_REQUIRED",
    "BAD_CERTIFICATE",
    "UNKNOWN_CA",
    "CERTIFICATE_EXPIRED",
)


def failure(error: BaseException, access: Access) -> str:
    """Why no answer came from the API server of ``access``, in one line."""
    found = next((cause for cause in _causes(error) if isinstance(cause, _CAUSES)), error)
    if isinstance(found, NotConfigured):
        return str(found)
    return f"no answer from {access.server.url} ({access.where}): {_reason(found, access)}"


def unknown_account(refusal: Refused, access: Access) -> Refused:
    """The refusal 401 with the field that the API server does not accept."""
    return type(refusal)(refusal.status, refusal.reason, not_accepted(access), refusal.retry_after)


def not_accepted(access: Access) -> str:
    """That the API server does not accept the account, and which."""
    return f"{access.server.url} does not accept the account: {access.credentials.shown} ({access.where})"


def is_untrusted(error: BaseException) -> bool:
    """Whether the server's certificate was not accepted: that does not heal by itself."""
    return any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _reason(error: BaseException, access: Access) -> str:
    through = f" at the proxy {access.server.proxy.shown}" if access.server.proxy else ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _distrust(error, access)
    if isinstance(error, ssl.SSLError):
        return _tls_failure(error, access)
    if isinstance(error, ProxyRefused):
        return f"the proxy {access.server.proxy.shown if access.server.proxy else ''} answers {plain(str(error), 80)}"
    if isinstance(error, socket.gaierror):
        host = access.server.proxy.host if access.server.proxy else access.server.host
        return f"the name {host} cannot be resolved"
    if isinstance(error, TimeoutError):
        return f"it took too long (timed out){through}"
    if isinstance(error, ConnectionRefusedError):
        return f"connection refused{through}"
    if isinstance(error, OSError) and error.strerror:
        return plain(f"{error.strerror}{through}", MAX_WORDS)
    return plain(str(error) or type(error).__name__, MAX_WORDS)


def _distrust(error: ssl.SSLCertVerificationError, access: Access) -> str:
    expected = access.server.certified_name or access.server.host
    if is_name_mismatch(error):
        return (
            f"its certificate is not for {expected}; set tls-server-name of the cluster to a name that is in the "
            "certificate, or correct the server's address"
        )
    authority = access.cluster.pem("certificate-authority")
    trusted = f"{authority.name} of the cluster" if authority else "this machine's authorities (the cluster names none)"
    return f"its certificate is not trusted ({error.verify_message}): {trusted} must be the authority that signed it"


def _tls_failure(error: ssl.SSLError, access: Access) -> str:
    reason = error.reason or ""
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return "it does not speak TLS; is the server's address http instead of https?"
    if any(alert in reason for alert in _CERTIFICATE_ALERTS):
        shown = access.credentials.certificate
        mine = f"{shown.name} of user {access.user.name}" if shown else f"user {access.user.name} has none"
        return f"it does not accept the client certificate ({reason.lower().replace('_', ' ')}): {mine}"
    return plain(f"TLS failed: {reason or error}", MAX_WORDS)
