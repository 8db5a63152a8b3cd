"""The control plane's flags and accounts."""

import base64
import json
from pathlib import Path

from topomend.sandbox import control_plane
from topomend.sandbox.control_plane import Files

FILES = Files(Path("/state"))


def test_kubelets_are_authorized_as_the_nodes_they_are() -> None:
    flags = control_plane.api_server_flags(FILES, 20000, audit=False)
    assert "--authorization-mode=Node,RBAC" in flags
    assert "--enable-admission-plugins=NodeRestriction" in flags
    accounts = control_plane.accounts(["a", "b"])
    assert (accounts["node:a"].user, accounts["node:a"].groups) == ("system:node:a", ("system:nodes",))
    assert len({account.token for account in accounts.values()}) == 5


def test_only_the_api_server_has_a_port_and_it_is_on_loopback() -> None:
    assert "--bind-address=127.0.0.1" in control_plane.api_server_flags(FILES, 20000, audit=False)
    for flags in (control_plane.controller_manager_flags(FILES), control_plane.scheduler_flags(FILES)):
        assert "--secure-port=0" in flags
    assert all("unix://" in flag for flag in control_plane.etcd_flags() if "-urls=" in flag)


def test_the_audit_log_is_kept_when_asked_for() -> None:
    def audit_flags(*, audit: bool) -> list[str]:
        return [flag for flag in control_plane.api_server_flags(FILES, 20000, audit=audit) if "audit" in flag]

    assert audit_flags(audit=False) == []
    assert audit_flags(audit=True) == [
        "--audit-policy-file=/state/audit-policy.json",
        "--audit-log-path=/state/audit.log",
    ]


def test_a_token_file_line_quotes_the_groups() -> None:
    account = control_plane.Account("system:node:a", "secret", ("system:nodes", "other"))
    assert control_plane.token_file([account]) == 'secret,system:node:a,system:node:a,"system:nodes,other"\n'


def test_a_kubeconfig_needs_no_other_file() -> None:
    text = control_plane.kubeconfig("https://127.0.0.1:1", b"PEM", control_plane.Account("a", "secret"))
    document = json.loads(text)
    cluster = document["clusters"][0]["cluster"]
    assert base64.b64decode(cluster["certificate-authority-data"]) == b"PEM"
    assert document["users"][0]["user"] == {"token": "secret"}
