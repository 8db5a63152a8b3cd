"""What the entries of a kubeconfig mean: server, TLS, account; and the account of a pod. Real servers: test_every_*."""

import json
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.closed_folder import closed
from tests.kube.certificates import Authority

from topomend.kube.connection import access as module
from topomend.kube.connection.access import context_names, find_access
from topomend.kube.connection.kubeconfig import BadSelection, NotConfigured

SECRET = "very-secret-token"  # noqa: S105 - no secret, but it must not be seen in an error

V1 = "client.authentication.k8s.io/v1"


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


def write(path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> None:
    content = {
        "current-context": "b",
        "contexts": [
            {"name": "a", "context": {"cluster": "gone", "user": "gone"}},
            {"name": "b", "context": {"cluster": "c", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://api.example:6443/base/"} | cluster}],
        "users": [{"name": "other", "user": {"token": "wrong"}}, {"name": "u", "user": user}],
    }
    path.write_text(json.dumps(content))


def test_the_current_contexts_cluster_and_user_are_taken(kubeconfig: Path) -> None:
    write(kubeconfig, {}, {"token": SECRET})
    access = find_access()
    assert access.url == "https://api.example:6443/base"
    assert access.credentials.headers() == (("Authorization", f"Bearer {SECRET}"),)
    assert access.server.tls is not None
    context = access.server.tls()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("https://api", "https://api:443"),
        ("https://[::1]:6443", "https://[::1]:6443"),
        ("HTTPS://API:1/", "https://api:1"),
        ("http://127.0.0.1:8001/x", "http://127.0.0.1:8001/x"),
        ("localhost:8080", "http://localhost:8080"),
        ("https://user:password@api:1/a?b=c#d", "https://api:1/a"),
    ],
)
def test_a_server_is_an_address_with_a_path(kubeconfig: Path, server: str, expected: str) -> None:
    write(kubeconfig, {"server": server}, {"token": SECRET})
    assert find_access().url == expected


def test_a_token_file_counts_before_a_token_and_is_read_again_each_time(kubeconfig: Path) -> None:
    write(kubeconfig, {}, {"tokenFile": "token", "token": "of old"})
    file = kubeconfig.with_name("token")
    access = find_access()
    for content, expected in (("first\n", "first"), ("second\n", "second"), ("", "of old")):
        file.write_text(content)
        assert access.credentials.headers() == (("Authorization", f"Bearer {expected}"),)
    file.unlink()
    assert access.credentials.headers() == (("Authorization", "Bearer of old"),)


def test_in_plain_text_a_secret_goes_no_further_than_this_host(kubeconfig: Path) -> None:
    """kubectl sends none over http. Here proxies on loopback may need it."""
    write(kubeconfig, {"server": "http://api.example"}, {"token": SECRET, "as": "me"})
    assert find_access().credentials.headers() == (("Impersonate-User", "me"),)
    for host in ("127.0.0.1", "[::1]", "localhost"):
        write(kubeconfig, {"server": f"http://{host}:1"}, {"token": SECRET})
        assert find_access().credentials.headers() == (("Authorization", f"Bearer {SECRET}"),)


def test_whom_to_act_as_is_sent_as_kubectl_sends_it(kubeconfig: Path) -> None:
    extra = {"example.com/a key": ["1", "2"]}
    user = {"username": "me", "as": "you", "as-uid": "7", "as-groups": ["g", "h"], "as-user-extra": extra}
    write(kubeconfig, {}, user)
    assert find_access().credentials.headers() == (
        ("Authorization", "Basic bWU6"),
        ("Impersonate-User", "you"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "g"),
        ("Impersonate-Group", "h"),
        ("Impersonate-Extra-example.com%2Fa%20key", "1"),
        ("Impersonate-Extra-example.com%2Fa%20key", "2"),
    )


def test_a_server_is_not_verified_only_where_the_kubeconfig_says_so(kubeconfig: Path) -> None:
    write(kubeconfig, {"insecure-skip-tls-verify": True}, {"token": SECRET})
    access = find_access()
    assert access.server.tls is not None
    assert access.server.tls().verify_mode == ssl.CERT_NONE
    assert access.authorities().verify_mode == ssl.CERT_REQUIRED, "other servers, such as kubelets, are verified"


def test_an_exec_plugin_counts_only_without_other_credentials(kubeconfig: Path) -> None:
    plugin = {"command": "/nowhere", "apiVersion": V1, "interactiveMode": "Never"}
    write(kubeconfig, {}, {"token": SECRET, "exec": plugin})
    assert find_access().credentials.plugin is None


PROXIED = "of cluster c is not the URL of a proxy, such as http://proxy:3128"


@pytest.mark.parametrize(
    ("cluster", "user", "why"),
    [
        ({}, {"auth-provider": {"name": "gcp"}}, "auth-provider of user u is gcp, which is not supported: use an exec"),
        ({}, {"username": "me", "token": SECRET}, "token of user u is given, and username or password too"),
        ({}, {"token": SECRET, "as-groups": ["g"]}, "as of user u is missing: as-uid, as-groups and as-user-extra"),
        ({"proxy-url": "ftp://proxy"}, {}, f"proxy-url {PROXIED}"),
        ({"proxy-url": "http://"}, {}, f"proxy-url {PROXIED}"),
        ({"proxy-url": "http://a:b"}, {}, f"proxy-url {PROXIED}"),
        ({"proxy-url": "socks5://proxy"}, {}, "proxy-url of cluster c has the scheme socks5, which is not supported"),
        ({"server": "ftp://api.example"}, {}, "server of cluster c is not an address such as https://10.0.0.1:6443"),
        ({"server": "https://api.example:http"}, {}, "server of cluster c is not an address such as"),
        ({"server": None}, {}, "server of cluster c is missing"),
        ({"server": 3}, {}, "server of cluster c is no text"),
        ({"certificate-authority-data": "not base64!"}, {}, "certificate-authority-data of cluster c is not base64"),
        (
            {"certificate-authority-data": "bm8gcGVt"},
            {},
            "certificate-authority-data of cluster c holds no cert",
        ),
        ({"certificate-authority": "gone.crt"}, {}, "certificate-authority of cluster c cannot be read: "),
        ({"certificate-authority": "damaged"}, {}, "certificate-authority of cluster c holds no certificate in PEM"),
        ({"certificate-authority": "a", "certificate-authority-data": "YQ=="}, {}, "is given and certificate-auth"),
        ({"certificate-authority": "a", "insecure-skip-tls-verify": True}, {}, "is true, and certificate-authority "),
        ({"insecure-skip-tls-verify": "true"}, {}, "insecure-skip-tls-verify of cluster c is neither true nor false"),
        ({}, {"client-certificate": "user.crt"}, "client-key of user u is missing"),
        ({}, {"client-certificate": "user.crt", "client-key": "gone"}, "client-key of user u cannot be read: "),
        ({}, {"client-certificate": "user.crt", "client-key": "damaged"}, "client-key of user u holds no private key"),
        ({}, {"client-certificate": "damaged", "client-key": "user.key"}, "client-certificate of user u holds no cert"),
        ({}, {"client-certificate": "user.crt", "client-key": "other.key"}, "client-key of user u does not belong to"),
        ({}, {"client-certificate": "user.crt", "client-key": "locked.key"}, "client-key of user u is encrypted: "),
        ({}, {"tokenFile": "gone"}, "tokenFile of user u cannot be read: "),
        ({}, {"tokenFile": "empty"}, "tokenFile of user u holds no token"),
        ({}, {"token": f"{SECRET}\nInjected: header"}, "token of user u holds a token with invalid characters"),
        ({}, {"exec": {"command": "a", "apiVersion": "v1"}}, "apiVersion of exec of user u is v1: give client.auth"),
        ({}, {"exec": {"command": "a", "apiVersion": V1}}, "interactiveMode of exec of user u is missing: give Never"),
        ({}, {"exec": []}, "has no credentials"),
    ],
)
def test_what_cannot_be_used_is_refused_by_file_context_and_field_and_without_the_secret(
    kubeconfig: Path, cluster: dict[str, Any], user: dict[str, Any], why: str
) -> None:
    folder = kubeconfig.parent
    authority = Authority.make(folder)
    authority.issue("user", "DNS:user")
    authority.issue("other", "DNS:other")
    (folder / "empty").write_text("")
    (folder / "damaged").write_text("-----BEGIN\n")
    lock = ["openssl", "ec", "-aes256", "-passout", "pass:x", "-in", "user.key", "-out", "locked.key"]
    subprocess.run(lock, cwd=folder, check=True, capture_output=True, timeout=240)
    write(kubeconfig, cluster, user)
    if why == "has no credentials":
        assert why in find_access().credentials.shown
        return
    with pytest.raises(NotConfigured) as caught:
        find_access()
    assert str(caught.value).startswith(f"{kubeconfig}, context b: ")
    assert why in str(caught.value)
    assert SECRET not in str(caught.value)


def test_in_a_pod_the_accounts_token_and_authority_are_read_again_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "token").write_text("first")
    with pytest.raises(NotConfigured, match="certificate-authority of cluster the in-cluster account cannot be read"):
        find_access()
    Authority.make(tmp_path)
    (tmp_path / "namespace").write_text("mine")
    access = find_access()
    assert (access.url, access.namespace) == ("https://[fd00::1]:443", "mine")
    for token in ("first", "second"):
        (tmp_path / "token").write_text(token)
        assert access.credentials.headers() == (("Authorization", f"Bearer {token}"),)
    (tmp_path / "ca.crt").write_text("")
    assert access.server.tls is not None
    with pytest.raises(NotConfigured, match="holds no certificate"):
        access.server.tls()


def test_a_kubeconfig_in_a_folder_that_may_not_be_entered_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with closed(tmp_path / "closed") as home:
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setattr(module, "SERVICE_ACCOUNT", home / "account")
        for kubeconfig, path in ((str(home / "mine"), home / "mine"), (None, home / ".kube" / "config")):
            with pytest.raises(NotConfigured, match=f"^{path}: cannot be read: Permission denied$"):
                find_access(kubeconfig)
            assert context_names(kubeconfig) == []


@pytest.mark.parametrize("home", ["", "/dev/null"])
def test_without_any_kubeconfig_the_error_says_where_one_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", home or str(tmp_path))
    monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path / "none")
    with pytest.raises(NotConfigured, match=r"^no cluster is configured: KUBECONFIG is not set"):
        find_access()
    with pytest.raises(BadSelection, match=f"^{tmp_path}/gone: no such file$"):
        find_access(str(tmp_path / "gone"))
