"""Where the API server is and how the agent proves who it is: a kubeconfig, or the account of the pod it runs in.

Owns the reading of both, for kube.light alone; the controller and the commands have the full client's. What it cannot
do (exec plugins, proxies, impersonation) it refuses by name, rather than ask as somebody else.
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

from topomend.kube.tls import as_clusters_are

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_UNSUPPORTED = {
    "cluster": ("proxy-url", "tls-server-name"),
    "user": ("exec", "auth-provider", "username", "as", "as-uid", "as-groups", "as-user-extra"),
}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class NotConfigured(Exception):
    """Neither KUBECONFIG nor an in-cluster account says where the API server is, or what they say cannot be used."""


class _Unusable(Exception):
    """What is wrong with a kubeconfig; the text completes a sentence that begins with its name."""


@dataclass(frozen=True)
class Access:
    """One API server and one account there.

    ``tls`` makes the context of a new connection, from files as they are then: certificates are replaced in place. It
    is None for plain HTTP. ``token`` is the bearer token of the moment, empty where a certificate says who asks. Both
    raise OSError or ValueError where a file cannot be read or holds something else.
    """

    host: str
    port: int
    path: str
    tls: Callable[[], ssl.SSLContext] | None
    token: Callable[[], str]


def find_access() -> Access:
    """The API server that ``KUBECONFIG`` names, else that of the pod this process runs in. Raises NotConfigured."""
    path = os.environ.get("KUBECONFIG")
    where = path or "the in-cluster account"
    try:
        access = _of_kubeconfig(Path(path)) if path else _of_service_account(SERVICE_ACCOUNT)
        # What cannot be used now is told at once, not at the first request.
        access.token()
        if access.tls:
            access.tls()
    except (_Unusable, OSError, ValueError, yaml.YAMLError) as error:
        words = " ".join(str(error).split())[:160]
        raise NotConfigured(f"{where} does not say how to reach the cluster: {words}") from error
    return access


def _of_service_account(folder: Path) -> Access:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise _Unusable("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    authority = folder / "ca.crt"
    # The kubelet replaces the token long before it expires: it is read for every request.
    token = folder / "token"
    return Access(host, int(port), "", lambda: _context(str(authority)), lambda: _checked(token.read_text()))


def _of_kubeconfig(path: Path) -> Access:
    content = _mapping(yaml.load(path.read_text(), Loader=yaml.CSafeLoader), "it")
    context = _named(content, "context", content.get("current-context"))
    cluster = _named(content, "cluster", context.get("cluster"))
    user = _named(content, "user", context["user"]) if context.get("user") else {}
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


def _named(content: Mapping[str, Any], kind: str, name: object) -> Mapping[str, Any]:
    """The ``kind`` of that name out of the kubeconfig's list of them."""
    if not name:
        raise _Unusable("it has no current-context" if kind == "context" else f"its current context names no {kind}")
    listed = content.get(f"{kind}s") or []
    if isinstance(listed, list):
        for each in listed:
            if isinstance(each, Mapping) and each.get("name") == name:
                return _mapping(each.get(kind) or {}, f"its {kind} {name}")
    raise _Unusable(f"it has no {kind} {name!r}")


def _mapping(content: object, what: str) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise _Unusable(f"{what} is not a mapping")
    return content


def _token(user: Mapping[str, Any], folder: Path) -> Callable[[], str]:
    if user.get("tokenFile"):
        file = folder / str(user["tokenFile"])
        return lambda: _checked(file.read_text())
    fixed = str(user.get("token") or "")
    return lambda: _checked(fixed)


def _checked(token: str) -> str:
    token = token.strip()
    # An error of the HTTP library about such a header would quote the token.
    if not token.isascii() or not token.isprintable():
        raise ValueError("the token holds characters that no token has")
    return token


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> Callable[[], ssl.SSLContext]:
    authority = _pem(cluster, "certificate-authority", folder)
    certificate, key = _pem(user, "client-certificate", folder), _pem(user, "client-key", folder)
    insecure = cluster.get("insecure-skip-tls-verify") is True

    def context() -> ssl.SSLContext:
        made = _context(authority().decode("ascii") or None, is_text=True)
        if insecure:
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        if certificate():
            _load_identity(made, certificate() + b"\n" + key())
        return made

    return context


def _pem(part: Mapping[str, Any], name: str, folder: Path) -> Callable[[], bytes]:
    """What reads a certificate or key: from ``<name>-data``, else from the file that ``<name>`` names; else empty."""
    if data := part.get(f"{name}-data"):
        content = base64.b64decode(str(data), validate=True)
        return lambda: content
    if file := part.get(name):
        return (folder / str(file)).read_bytes
    return lambda: b""


def _context(authority: str | None, *, is_text: bool = False) -> ssl.SSLContext:
    """A context that trusts this authority, given as a file or as PEM text; without one, those that the system does."""
    if is_text:
        return as_clusters_are(ssl.create_default_context(cadata=authority))
    return as_clusters_are(ssl.create_default_context(cafile=authority))


def _load_identity(context: ssl.SSLContext, pem: bytes) -> None:
    """Have the context show a certificate. The ssl module reads keys from files only: this one is in memory alone."""
    with os.fdopen(os.memfd_create("client-key"), "wb") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password="")
