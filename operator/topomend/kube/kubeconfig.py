"""Find the API server and the agent's credentials: from a kubeconfig, or from the service account of its pod.

Owns the reading of both for ``agent_client`` alone; the operator and the commands use the official client. What is not
supported here (exec plugins, proxies, impersonation) is refused by name, so that the agent never acts as somebody else.
"""

import base64
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import yaml

from topomend.kube.tls import trusting
from topomend.model.plain_text import plain

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_UNSUPPORTED = {
    "cluster": ("proxy-url", "tls-server-name"),
    "user": ("exec", "auth-provider", "username", "as", "as-uid", "as-groups", "as-user-extra"),
}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class NotConfigured(Exception):
    """Neither KUBECONFIG nor an in-cluster account names an API server, or what they name cannot be used."""


class _Unusable(Exception):
    """What is wrong with a kubeconfig. The text completes a sentence that starts with the kubeconfig's path."""


@dataclass(frozen=True)
class Access:
    """One API server and one account there.

    ``path`` precedes the path of every request. ``tls`` makes the context of a new connection and reads the files each
    time, because certificates are replaced in place; it is None for plain HTTP. ``token`` returns the current bearer
    token, empty where a client certificate identifies the account. Both raise OSError where a file cannot be read, and
    ValueError where its content is wrong.
    """

    host: str
    port: int
    path: str
    tls: Callable[[], ssl.SSLContext] | None
    token: Callable[[], str]


def find_access() -> Access:
    """The API server that ``KUBECONFIG`` names, otherwise that of this process's pod. Raises NotConfigured."""
    path = os.environ.get("KUBECONFIG")
    where = path or "the in-cluster account"
    try:
        access = _of_kubeconfig(Path(path)) if path else _of_service_account(SERVICE_ACCOUNT)
        # Fail now, and not at the first request.
        access.token()
        if access.tls:
            access.tls()
    except (_Unusable, OSError, ValueError, yaml.YAMLError) as error:
        words = plain(str(error), 160)
        raise NotConfigured(f"{where} does not say how to reach the cluster: {words}") from error
    return access


def _of_service_account(folder: Path) -> Access:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise _Unusable("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    authority = folder / "ca.crt"
    # The kubelet replaces the token long before it expires, so every request reads it.
    token = folder / "token"
    return Access(host, int(port), "", lambda: trusting(authority), lambda: _checked_token(token.read_text()))


def _of_kubeconfig(path: Path) -> Access:
    content = _mapping(yaml.load(path.read_text(), Loader=yaml.CSafeLoader), "it")
    context = _entry(content, "context", content.get("current-context"))
    cluster = _entry(content, "cluster", context.get("cluster"))
    user = _entry(content, "user", context["user"]) if context.get("user") else {}
    for kind, part in (("cluster", cluster), ("user", user)):
        for key in _UNSUPPORTED[kind]:
            if part.get(key):
                raise _Unusable(f"its {kind} uses {key}, which the agent does not support: give it a token instead")
    server = urlsplit(str(cluster.get("server", "")))
    if server.scheme not in ("https", "http") or not server.hostname:
        raise _Unusable(f"its server is {server.geturl()!r}, not an https address")
    token = _token(user, path.parent)
    tls = None if _is_plain(server) else _tls(cluster, user, path.parent)
    port = server.port or (443 if tls else 80)
    return Access(server.hostname, port, server.path.rstrip("/"), tls, token)


def _is_plain(server: SplitResult) -> bool:
    if server.scheme == "https":
        return False
    if server.hostname not in _LOOPBACK:
        raise _Unusable(f"its server {server.geturl()} is plain http, which is for this host's own proxy alone")
    return True


def _entry(content: Mapping[str, Any], kind: str, name: object) -> Mapping[str, Any]:
    """The entry of that name in the kubeconfig's list of clusters, contexts or users. Raises _Unusable."""
    if not name:
        raise _Unusable("it has no current-context" if kind == "context" else f"its current context names no {kind}")
    listed = content.get(f"{kind}s") or []
    if isinstance(listed, list):
        for entry in listed:
            if isinstance(entry, Mapping) and entry.get("name") == name:
                return _mapping(entry.get(kind) or {}, f"its {kind} {name}")
    raise _Unusable(f"it has no {kind} {name!r}")


def _mapping(content: object, part: str) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise _Unusable(f"{part} is not a mapping")
    return content


def _token(user: Mapping[str, Any], folder: Path) -> Callable[[], str]:
    if user.get("tokenFile"):
        file = folder / str(user["tokenFile"])
        return lambda: _checked_token(file.read_text())
    fixed = str(user.get("token") or "")
    return lambda: _checked_token(fixed)


def _checked_token(token: str) -> str:
    token = token.strip()
    # The HTTP library would quote the token in its error about such a header.
    if not token.isascii() or not token.isprintable():
        raise ValueError("the token contains invalid characters")
    return token


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> Callable[[], ssl.SSLContext]:
    authority = _pem(cluster, "certificate-authority", folder)
    certificate, key = _pem(user, "client-certificate", folder), _pem(user, "client-key", folder)
    insecure = cluster.get("insecure-skip-tls-verify") is True

    def context() -> ssl.SSLContext:
        tls_context = trusting(pem=authority().decode("ascii") or None)
        if insecure:
            tls_context.check_hostname = False
            tls_context.verify_mode = ssl.CERT_NONE
        if certificate():
            _load_identity(tls_context, certificate() + b"\n" + key())
        return tls_context

    return context


def _pem(part: Mapping[str, Any], name: str, folder: Path) -> Callable[[], bytes]:
    """A function that returns a certificate or key: from ``<name>-data``, else from the file ``<name>``, else empty."""
    if data := part.get(f"{name}-data"):
        content = base64.b64decode(str(data), validate=True)
        return lambda: content
    if file := part.get(name):
        return (folder / str(file)).read_bytes
    return lambda: b""


def _load_identity(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a client certificate and key. The ssl module reads keys from files only, so this file is in memory."""
    with os.fdopen(os.memfd_create("client-key"), "wb") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password="")
