"""Access to the cluster from a kubeconfig or a pod's account, and kubeconfigs that are rejected. TLS: test_tls.py."""

import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from topomend.kube import kubeconfig as reader
from topomend.kube.kubeconfig import NotConfigured, find_access

SECRET = "very-secret-token"  # noqa: S105 - no secret, but it must not be seen in an error


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
    assert (access.host, access.port, access.path, access.token()) == ("api.example", 6443, "/base", SECRET)
    assert access.tls is not None
    context = access.tls()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_a_token_file_is_read_beside_the_kubeconfig_and_again_each_time(kubeconfig: Path) -> None:
    write(kubeconfig, {}, {"tokenFile": "token", "token": "of old"})
    file = kubeconfig.with_name("token")
    file.write_text("first\n")
    access = find_access()
    assert access.token() == "first"
    file.write_text("second\n")
    assert access.token() == "second"


def test_a_server_is_not_verified_only_where_the_kubeconfig_says_so(kubeconfig: Path) -> None:
    write(kubeconfig, {"insecure-skip-tls-verify": True}, {"token": SECRET})
    access = find_access()
    assert access.tls is not None
    assert access.tls().verify_mode == ssl.CERT_NONE
    write(kubeconfig, {"insecure-skip-tls-verify": "true"}, {"token": SECRET})
    access = find_access()
    assert access.tls is not None
    assert access.tls().verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("cluster", "user", "why"),
    [
        ({}, {"exec": {"command": "aws"}}, "its user uses exec, which the agent does not support"),
        ({}, {"auth-provider": {"name": "gcp"}}, "its user uses auth-provider"),
        ({}, {"username": "me", "password": SECRET}, "its user uses username"),
        ({}, {"token": SECRET, "as": "somebody"}, "its user uses as,"),
        ({"proxy-url": "http://proxy"}, {}, "its cluster uses proxy-url"),
        ({"tls-server-name": "other"}, {}, "its cluster uses tls-server-name"),
        ({"server": "http://api.example"}, {"token": SECRET}, "plain http"),
        ({"server": "ftp://api.example"}, {}, "not an https address"),
        ({"server": "https://api.example:http"}, {}, "Port could not be cast"),
        ({"server": None}, {}, "not an https address"),
        ({"certificate-authority-data": "not base64!"}, {}, "base64"),
        ({"certificate-authority-data": "bm8gcGVt"}, {}, "does not say how"),
        ({"certificate-authority": "gone.crt"}, {}, "gone.crt"),
        ({}, {"client-certificate-data": "bm8gcGVt", "client-key-data": "bm8gcGVt"}, "does not say how"),
        ({}, {"tokenFile": "gone"}, "gone"),
        ({}, {"token": f"{SECRET}\nInjected: header"}, "contains invalid characters"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name_and_without_the_secret(
    kubeconfig: Path, cluster: dict[str, Any], user: dict[str, Any], why: str
) -> None:
    write(kubeconfig, cluster, user)
    with pytest.raises(NotConfigured, match=why) as caught:
        find_access()
    assert SECRET not in str(caught.value)
    assert str(caught.value).startswith(f"{kubeconfig} does not say how to reach the cluster: ")


def test_in_a_pod_the_accounts_token_is_read_again_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(reader, "SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "token").write_text("first")
    with pytest.raises(NotConfigured, match="the in-cluster account"):
        find_access()
    authority = Path(ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt")
    (tmp_path / "ca.crt").write_bytes(authority.read_bytes())
    access = find_access()
    assert (access.host, access.port, access.path, access.token()) == ("10.0.0.1", 443, "", "first")
    (tmp_path / "token").write_text("second")
    assert access.token() == "second"
