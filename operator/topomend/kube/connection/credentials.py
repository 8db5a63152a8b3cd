"""Who a client is for a cluster: the headers of its requests, and the certificate of its connections.

Owns which of a kubeconfig's credentials counts and when each is read again. Everything that can be replaced while a
program runs is read when it is used. The rules are those of client-go: tools/clientcmd/validation.go:validateAuthInfo,
transport/round_trippers.go:HTTPWrappersForConfig.
"""

import base64
import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from topomend.kube.connection.kubeconfig import Entry, NotConfigured, Pem

if TYPE_CHECKING:
    from topomend.kube.connection.exec_plugin import ExecPlugin

Headers = tuple[tuple[str, str], ...]

_TOKEN_LETTERS = frozenset(string.ascii_letters + string.digits + "!#$&'*+-.^_`|~")
"""The letters of a header's name (RFC 9110, token), without the sign that escapes others."""


class Identity(NamedTuple):
    """A client certificate with its chain, and its key, in PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class Credentials:
    """The account of ``user``. ``plugin`` issues what the kubeconfig does not hold, None without one.

    Every method raises NotConfigured where a file or the plugin fails.
    """

    user: Entry
    certificate: Pem | None = None
    key: Pem | None = None
    plugin: "ExecPlugin | None" = None

    def headers(self) -> Headers:
        """The headers of a request: the authorization, and whom to act as."""
        authorization = self._authorization()
        return ((("Authorization", authorization),) if authorization else ()) + _impersonation(self.user)

    def identity(self) -> Identity | None:
        """The client certificate to show; None to show none."""
        if self.certificate and self.key:
            return Identity(self.certificate.read(), self.key.read())
        issued = self.plugin.credential() if self.plugin else None
        return Identity(issued.certificate, issued.key) if issued and issued.certificate else None

    def stamp(self) -> object:
        """A value that changes with the client certificate: connections that were opened before are to be closed."""
        if self.certificate and self.key:
            return self.certificate.stamp(), self.key.stamp()
        return self.plugin.credential().certificate if self.plugin else None

    @property
    def shown(self) -> str:
        """By which field of the kubeconfig the account is known."""
        fields = ("tokenFile", "token", "username", "client-certificate", "client-certificate-data", "exec")
        used = next((name for name in fields if self.user.fields.get(name)), "")
        name = self.user.name or "of the context"
        return f"{used} of user {name}" if used else f"user {name} has no credentials"

    def renew(self) -> None:
        """Have an issued credential issued anew: the server did not accept it."""
        if self.plugin:
            self.plugin.forget()

    def _authorization(self) -> str:
        if token := self._token():
            return f"Bearer {token}"
        if _has_password(self.user):
            pair = f"{self.user.text('username')}:{self.user.text('password')}"
            return f"Basic {base64.b64encode(pair.encode()).decode()}"
        token = self.plugin.credential().token if self.plugin else ""
        return f"Bearer {_checked(self.user, 'exec', token)}" if token else ""

    def _token(self) -> str:
        """That of the file, which is replaced before it expires; the kubeconfig's own only if the file is no use."""
        own, path = self.user.text("token"), self.user.path("tokenFile")
        try:
            if path:
                return _checked(self.user, "tokenFile", self.user.read("tokenFile", path).decode("utf-8", "replace"))
        except NotConfigured:
            if not own:
                raise
        return _checked(self.user, "token", own) if own else ""


def impersonating_only(user: Entry) -> Credentials:
    """Without a secret: for a server to which one would go in plain text."""
    return Credentials(Entry(user.kind, user.name, {key: user.fields.get(key) for key in _ACTING}, user.file))


def credentials_of(user: Entry, cluster: Entry) -> Credentials:
    """The credentials of ``user``; ``cluster`` is described to an exec plugin. Raises NotConfigured."""
    certificate, key = user.pem("client-certificate"), user.pem("client-key")
    if certificate and not key:
        raise user.wrong("client-key", "is missing: a client-certificate is of no use without it")
    if user.text("token") and _has_password(user):
        raise user.wrong("token", "is given, and username or password too: give one of them")
    if not user.text("as") and any(user.fields.get(name) for name in _ACTING[1:]):
        raise user.wrong("as", "is missing: as-uid, as-groups and as-user-extra need it")
    has_own = bool(user.text("token") or user.text("tokenFile") or _has_password(user) or certificate)
    if user.fields.get("auth-provider"):
        name = user.mapping("auth-provider").get("name")
        raise user.wrong("auth-provider", f"is {name}, which is not supported: use an exec plugin or a token")
    if not user.fields.get("exec") or has_own:
        return Credentials(user, certificate, key if certificate else None)
    # Imported only if needed: the agent has no plugin on most nodes.
    from topomend.kube.connection.exec_plugin import ExecPlugin  # noqa: PLC0415

    return Credentials(user, plugin=ExecPlugin(user, _described(cluster)))


_ACTING = ("as", "as-uid", "as-groups", "as-user-extra")


def _has_password(user: Entry) -> bool:
    return bool(user.text("username") or user.text("password"))


def _checked(user: Entry, name: str, token: str) -> str:
    token = token.strip()
    if not token:
        raise user.wrong(name, "holds no token")
    # The HTTP library would quote the token in its error about such a header.
    if not token.isascii() or not token.isprintable():
        raise user.wrong(name, "holds a token with invalid characters")
    return token


def _impersonation(user: Entry) -> Headers:
    """transport/round_trippers.go:impersonatingRoundTripper."""

    def headers() -> Iterator[tuple[str, str]]:
        if name := user.text("as"):
            yield "Impersonate-User", name
            if uid := user.text("as-uid"):
                yield "Impersonate-Uid", uid
            for group in user.texts("as-groups"):
                yield "Impersonate-Group", group
            extra = Entry("as-user-extra of user", user.name, user.mapping("as-user-extra"), user.file, user.context)
            for key in extra.fields:
                for value in extra.texts(key):
                    yield f"Impersonate-Extra-{_escaped(key)}", value

    made = tuple(headers())
    if any(not value.isascii() or not value.isprintable() for _, value in made):
        raise user.wrong("as", "or another field of impersonation has invalid characters")
    return made


def _escaped(key: str) -> str:
    letters = (chr(byte) if chr(byte) in _TOKEN_LETTERS else f"%{byte:02X}" for byte in key.encode())
    return "".join(letters)


def _described(cluster: Entry) -> dict[str, object]:
    """The cluster as an exec plugin is told of it (clientauthentication.Cluster), without what it is not told."""
    authority = cluster.pem("certificate-authority")
    described = {name: cluster.fields.get(name) for name in _TOLD}
    data = base64.b64encode(authority.read()).decode() if authority else None
    config = next((item.get("extension") for item in _extensions(cluster) if item.get("name") == _EXTENSION), None)
    described |= {"certificate-authority-data": data, "config": config}
    return {key: value for key, value in described.items() if value}


_TOLD = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")
_EXTENSION = "client.authentication.k8s.io/exec"


def _extensions(cluster: Entry) -> list[dict[str, object]]:
    listed = cluster.fields.get("extensions")
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
