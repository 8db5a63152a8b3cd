"""Which proxy the environment names. The rules are those of golang.org/x/net/http/httpproxy."""

import pytest

from topomend.kube.connection.proxies import Proxy, proxy_at, url_of_environment


@pytest.mark.parametrize(
    ("exceptions", "host", "is_proxied"),
    [
        ("", "api.example", True),
        ("", "localhost", False),
        ("", "127.0.0.2", False),
        ("", "::1", False),
        ("*", "api.example", False),
        ("example", "api.example", False),
        (".example", "api.example", False),
        ("*.example", "api.example", False),
        (".api.example", "api.example", True),
        ("pi.example", "api.example", True),
        ("API.example:6443", "api.example", False),
        ("api.example:443", "api.example", True),
        ("10.0.0.0/8", "10.1.2.3", False),
        ("other, 10.0.0.0/8", "11.1.2.3", True),
        ("fd00::/8", "fd00::1", False),
        ("fd00::1", "fd00::1", False),
        ("10.0.0.1:6443", "10.0.0.1", False),
        ("0.0.1", "10.0.0.1", True),
        ("not/a/network", "10.0.0.1", True),
    ],
)
def test_the_environments_exceptions(
    exceptions: str, host: str, is_proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy:3128")
    monkeypatch.setenv("NO_PROXY", exceptions)
    assert url_of_environment("https", host, 6443) == ("http://proxy:3128" if is_proxied else "")


def test_without_a_variable_there_is_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://other")
    assert url_of_environment("https", "api.example", 6443) == ""
    monkeypatch.setenv("https_proxy", "http://lower")
    assert url_of_environment("https", "api.example", 6443) == "http://lower"


def test_a_proxys_password_is_not_shown() -> None:
    proxy = proxy_at("http://me:p%40ss@[::1]:3128")
    assert proxy == Proxy("::1", 3128, "Basic bWU6cEBzcw==")
    assert proxy.shown == "http://[::1]:3128"
    assert "bWU6" not in repr(proxy)
