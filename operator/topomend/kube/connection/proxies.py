"""Which HTTP proxy leads to a server: the one of a kubeconfig, else the one of the environment.

The rules of the environment are Go's (golang.org/x/net/http/httpproxy), which kubectl follows: HTTPS_PROXY, HTTP_PROXY
and NO_PROXY, and never a proxy to this host itself.
"""

import base64
import ipaddress
import os
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy. ``authorization`` is the value of its header Proxy-Authorization, empty without one."""

    host: str
    port: int
    authorization: str = field(default="", repr=False)

    @property
    def shown(self) -> str:
        """Its address, without a password."""
        return f"http://{bracketed(self.host)}:{self.port}"


def proxy_at(url: str) -> Proxy:
    """The proxy at ``url``. Raises ValueError, whose text completes a sentence that begins with the url's name."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError("is not the URL of a proxy, such as http://proxy:3128") from error
    if parts.scheme in ("https", "socks5", "socks5h"):
        raise ValueError(f"has the scheme {parts.scheme}, which is not supported: give the URL of an http proxy")
    if parts.scheme != "http" or not host:
        raise ValueError("is not the URL of a proxy, such as http://proxy:3128")
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    authorization = f"Basic {base64.b64encode(pair.encode()).decode()}" if parts.username else ""
    return Proxy(host, port or 80, authorization)


def url_of_environment(scheme: str, host: str, port: int) -> str:
    """The URL of the proxy that the environment names for this server; empty if none."""
    url = _variable(f"{scheme}_proxy")
    if not url or is_loopback(host) or _is_excepted(host, port, _variable("no_proxy")):
        return ""
    return url if "://" in url else f"http://{url}"


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this host itself, by its name or address."""
    address = _address(host)
    return address.is_loopback if address else host == "localhost"


def bracketed(host: str) -> str:
    """``host`` as it is written before a port."""
    return f"[{host}]" if ":" in host else host


def _variable(name: str) -> str:
    return os.environ.get(name.upper()) or os.environ.get(name) or ""


def _is_excepted(host: str, port: int, exceptions: str) -> bool:
    return any(_covers(item, host, port) for item in exceptions.lower().replace(" ", "").split(",") if item)


def _covers(item: str, host: str, port: int) -> bool:
    address = _address(host)
    if "/" in item:
        try:
            return address is not None and address in ipaddress.ip_network(item, strict=False)
        except ValueError:
            return False
    name, _, digits = item.rpartition(":")
    if name and digits.isdigit() and _address(item) is None:
        if int(digits) != port:
            return False
        item = name.strip("[]")
    if item in ("*", host):
        return True
    suffix = item.removeprefix("*")
    return address is None and host.endswith(suffix if suffix.startswith(".") else f".{suffix}")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
