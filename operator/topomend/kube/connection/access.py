"""The way to a cluster and the account there: of a kubeconfig, or of the service account of this process's pod.

Every client is made of an Access, kopf's watches included, so that all go the same way as the same account. Owns
where a kubeconfig is looked for, and the meaning of a cluster's fields. Leaves files to ``kubeconfig``, accounts to
``credentials``. The rules are those of client-go: tools/clientcmd/client_config.go:ClientConfig,
rest/url_utils.go:DefaultServerURL, transport/transport.go:TLSConfigFor.
"""

import os
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from topomend.kube.connection.credentials import Credentials, Identity, credentials_of, impersonating_only
from topomend.kube.connection.kubeconfig import (
    BadSelection,
    Entry,
    Kubeconfig,
    NoSuchFile,
    NotConfigured,
    Selected,
    load,
    paths_of_environment,
)
from topomend.kube.connection.proxies import Proxy, bracketed, is_loopback, proxy_at, url_of_environment
from topomend.kube.connection.tls import show, trusting, trusting_anybody
from topomend.kube.connection.transport import Server

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOME_KUBECONFIG = Path(".kube") / "config"

NO_CLUSTER = (
    "no cluster is configured: KUBECONFIG is not set, this process has no service account, and there is no "
    "~/.kube/config; set KUBECONFIG to the path of a kubeconfig"
)


class Access(NamedTuple):
    """One API server, and one account there.

    ``path`` precedes the path of every request. ``authorities`` makes a context that trusts the cluster's authorities
    and shows no certificate. ``cluster`` and ``user`` are the entries that errors name.
    """

    server: Server
    path: str
    namespace: str
    credentials: Credentials
    authorities: Callable[[], ssl.SSLContext]
    cluster: Entry
    user: Entry

    @property
    def url(self) -> str:
        """The API server's address with the path before every request's."""
        return self.server.url + self.path

    @property
    def where(self) -> str:
        """The cluster by its names."""
        context = f", context {self.cluster.context}" if self.cluster.context else ""
        return f"cluster {self.cluster.name} of {self.cluster.file}{context}"


def find_access(kubeconfig: str | None = None, context: str | None = None) -> Access:
    """By the file ``kubeconfig``, else KUBECONFIG, else this pod's service account, else ``~/.kube/config``.

    ``context`` is a context of a kubeconfig, by default its current one. Files are read and an exec plugin is called:
    what cannot be used fails now, and not at the first request. Raises NotConfigured.
    """
    selected = _selected(kubeconfig, context)
    access = _access(selected)
    access.credentials.headers()
    if access.server.tls:
        access.server.tls()
    return access


def context_names(kubeconfig: str | None) -> list[str]:
    """The names of the contexts; none where the kubeconfig cannot be read."""
    try:
        return _load(kubeconfig).contexts
    except NotConfigured:
        return []


def _selected(kubeconfig: str | None, context: str | None) -> Selected:
    is_chosen = bool(kubeconfig or context or os.environ.get("KUBECONFIG"))
    # A folder that may not be entered makes Path.exists raise before 3.14.
    if not is_chosen and os.path.exists(SERVICE_ACCOUNT / "token"):  # noqa: PTH110
        return _of_service_account()
    return _load(kubeconfig).select(context)


def _load(kubeconfig: str | None) -> Kubeconfig:
    if kubeconfig:
        try:
            return load([Path(kubeconfig)])
        except NoSuchFile as error:
            raise BadSelection(f"{kubeconfig}: no such file") from error
    if named := os.environ.get("KUBECONFIG"):
        return load(paths_of_environment(named))
    try:
        return load([Path.home() / HOME_KUBECONFIG])
    except (NoSuchFile, RuntimeError):
        raise NotConfigured(NO_CLUSTER) from None


def _of_service_account() -> Selected:
    """rest/config.go:InClusterConfig."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise NotConfigured("the in-cluster account: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    # The kubelet replaces token and authority in place.
    server = {
        "server": f"https://{bracketed(host)}:{port}",
        "certificate-authority": str(SERVICE_ACCOUNT / "ca.crt"),
    }
    account = {"tokenFile": str(SERVICE_ACCOUNT / "token")}
    name = "the in-cluster account"
    return Selected(
        "", _namespace(), Entry("cluster", name, server, SERVICE_ACCOUNT), Entry("user", name, account, SERVICE_ACCOUNT)
    )


def _namespace() -> str:
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text().strip() or "default"
    except (OSError, ValueError):
        return "default"


def _access(selected: Selected) -> Access:
    cluster, user = selected.cluster, selected.user
    scheme, host, port, path = _address(cluster)
    credentials = credentials_of(user, cluster)
    tls: Callable[[], ssl.SSLContext] | None = None
    authorities = _authorities(cluster)
    if scheme == "https":
        tls = partial(_context, cluster, user, authorities, credentials)
    elif not is_loopback(host):
        # As kubectl does: a secret is not sent in plain text.
        credentials = impersonating_only(user)
    name = cluster.text("tls-server-name")
    proxy = _proxy(cluster, scheme, host, port)
    server = Server(host, port, tls, name, proxy, credentials.stamp if tls else lambda: None)
    return Access(server, path, selected.namespace, credentials, authorities, cluster, user)


def _address(cluster: Entry) -> tuple[str, str, int, str]:
    """Scheme, host, port and path of the server."""
    text = cluster.text("server")
    if not text:
        raise cluster.wrong("server", "is missing")
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise cluster.wrong("server", "is not an address such as https://10.0.0.1:6443") from error
    if parts.scheme not in ("https", "http") or not host:
        raise cluster.wrong("server", "is not an address such as https://10.0.0.1:6443")
    return parts.scheme, host, port or (443 if parts.scheme == "https" else 80), parts.path.rstrip("/")


def _proxy(cluster: Entry, scheme: str, host: str, port: int) -> Proxy | None:
    if url := cluster.text("proxy-url"):
        try:
            return proxy_at(url)
        except ValueError as error:
            raise cluster.wrong("proxy-url", str(error)) from error
    url = url_of_environment(scheme, host, port)
    try:
        return proxy_at(url) if url else None
    except ValueError as error:
        raise NotConfigured(f"{scheme.upper()}_PROXY in the environment {error}") from error


def _authorities(cluster: Entry) -> Callable[[], ssl.SSLContext]:
    """A function that makes a context by the cluster's authorities as they are now."""
    authority = cluster.pem("certificate-authority")
    if authority is None:
        return trusting
    if cluster.flag("insecure-skip-tls-verify"):
        raise cluster.wrong("insecure-skip-tls-verify", f"is true, and {authority.name} is given too: remove one")

    def context() -> ssl.SSLContext:
        pem = authority.read().decode("ascii", "ignore")
        try:
            if "-----BEGIN" in pem:
                return trusting(pem=pem)
        except ssl.SSLError as error:
            raise cluster.wrong(authority.name, "holds no certificate in PEM that can be read") from error
        raise cluster.wrong(authority.name, "holds no certificate in PEM")

    return context


def _context(
    cluster: Entry, user: Entry, authorities: Callable[[], ssl.SSLContext], credentials: Credentials
) -> ssl.SSLContext:
    """The context of a new connection. Raises NotConfigured."""
    context = trusting_anybody() if cluster.flag("insecure-skip-tls-verify") else authorities()
    identity = credentials.identity()
    if identity:
        try:
            show(context, *identity)
        except ssl.SSLError as error:
            raise user.wrong(*_unusable(credentials, identity, error)) from error
    return context


def _unusable(credentials: Credentials, identity: Identity, error: ssl.SSLError) -> tuple[str, str]:
    """The field of a user that holds a certificate or key that cannot be used, and why."""
    certificate = credentials.certificate.name if credentials.certificate else "the certificate of exec"
    key = credentials.key.name if credentials.key else "the key of exec"
    if b"-----BEGIN CERTIFICATE" not in identity.certificate:
        return certificate, "holds no certificate in PEM"
    if b"PRIVATE KEY-----" not in identity.key:
        return key, "holds no private key in PEM"
    if b"ENCRYPTED" in identity.key:
        return key, "is encrypted: give the key without a passphrase"
    if error.reason == "KEY_VALUES_MISMATCH":
        return key, f"does not belong to {certificate}"
    return key, f"or {certificate} cannot be read: one of them is damaged"
