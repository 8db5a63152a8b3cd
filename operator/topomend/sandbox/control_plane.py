"""Flags, accounts and files of etcd, the API server, the controller manager and the scheduler: pure functions.

Every program listens on loopback or on a unix socket. Accounts are in a token file that lives as long as the sandbox.
Writing the files is left to ``plan``, starting the programs to ``supervisor``.
"""

import base64
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
"""Requests and answers without the objects: an audit log must not contain secrets."""

TOLERATED_SECONDS = 86_400
"""How long pods stay on a node that is not ready, if they do not say: a machine that sleeps for a minute is no failed
node. The taint eviction controller (kubernetes ``pkg/controller/tainteviction``) deletes by name alone after that time,
and may miss that a pod was replaced and the node is ready again."""


@dataclass(frozen=True)
class Account:
    """One user of the API server: its bearer token, name and groups."""

    user: str
    token: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Files:
    """The control plane's files, below the sandbox's folder."""

    folder: Path

    @property
    def certificates(self) -> Path:
        """The folder that the API server writes its self-signed certificate to."""
        return self.folder / "pki"

    @property
    def certificate(self) -> Path:
        """The API server's certificate followed by the authority that signed it."""
        return self.certificates / "apiserver.crt"

    @property
    def service_account_key(self) -> Path:
        """The private key that service account tokens are signed with."""
        return self.folder / "service-account.key"

    @property
    def tokens(self) -> Path:
        """The static token file."""
        return self.folder / "tokens.csv"

    @property
    def audit_policy(self) -> Path:
        """The audit policy."""
        return self.folder / "audit-policy.json"

    @property
    def audit_log(self) -> Path:
        """The audit log, a JSON event a line."""
        return self.folder / "audit.log"

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig of one of the control plane's own accounts."""
        return self.folder / f"{user}.kubeconfig"


ADMIN, CONTROLLER_MANAGER, SCHEDULER = "admin", "controller-manager", "scheduler"


def accounts(node_names: Iterable[str]) -> Mapping[str, Account]:
    """A fresh account for the administrator, each program and each kubelet (``node:NAME``)."""
    users = {
        ADMIN: ("topomend-sandbox-admin", ("system:masters",)),
        CONTROLLER_MANAGER: ("system:kube-controller-manager", ()),
        SCHEDULER: ("system:kube-scheduler", ()),
        **{f"node:{name}": (f"system:node:{name}", ("system:nodes",)) for name in node_names},
    }
    return {key: Account(user, secrets.token_urlsafe(32), groups) for key, (user, groups) in users.items()}


def token_file(every: Iterable[Account]) -> str:
    """The API server's static token file: token, user, uid, quoted groups."""
    return "".join(f'{account.token},{account.user},{account.user},"{",".join(account.groups)}"\n' for account in every)


def kubeconfig(server: str, authority: bytes, account: Account) -> str:
    """A kubeconfig that needs no other file, in JSON, which is YAML too."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(authority).decode()}
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandbox", "cluster": cluster}],
        "users": [{"name": "sandbox", "user": {"token": account.token}}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
        "current-context": "sandbox",
    }
    return json.dumps(document, indent=2) + "\n"


def etcd_flags() -> list[str]:
    """Etcd on unix sockets in its working folder, so that no other user of the machine can connect.

    It does not sync to disk: a sandbox's data is worthless afterwards.
    """
    return [
        "--name=sandbox",
        "--data-dir=etcd",
        "--listen-client-urls=unix://etcd.sock:0",
        "--advertise-client-urls=unix://etcd.sock:0",
        "--listen-peer-urls=unix://etcd-peer.sock:0",
        "--initial-advertise-peer-urls=unix://etcd-peer.sock:0",
        "--initial-cluster=sandbox=unix://etcd-peer.sock:0",
        "--unsafe-no-fsync",
        "--log-level=warn",
        "--snapshot-count=50000",
    ]


def api_server_flags(files: Files, port: int, *, audit: bool) -> list[str]:
    """The API server: Node and RBAC authorization, NodeRestriction, service account tokens, admission policies."""
    flags = [
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        f"--secure-port={port}",
        f"--cert-dir={files.certificates}",
        "--endpoint-reconciler-type=none",
        "--etcd-servers=unix://etcd.sock:0",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",  # as clusters have it; what may be privileged is for admission to say
        "--enable-admission-plugins=NodeRestriction",
        f"--token-auth-file={files.tokens}",
        "--anonymous-auth=false",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={files.service_account_key}",
        f"--service-account-signing-key-file={files.service_account_key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--profiling=false",
        "--shutdown-delay-duration=0s",
        f"--default-not-ready-toleration-seconds={TOLERATED_SECONDS}",
        f"--default-unreachable-toleration-seconds={TOLERATED_SECONDS}",
    ]
    if audit:
        flags += [f"--audit-policy-file={files.audit_policy}", f"--audit-log-path={files.audit_log}"]
    return flags


def emulation_flags(version: str) -> list[str]:
    """What has each program of the control plane behave as one of ``version``, such as ``1.35``; none if it is empty.

    All must agree: a scheduler waits without an end for a kind that an older API server does not serve.
    """
    return [f"--emulated-version={version}"] if version else []


def controller_manager_flags(files: Files) -> list[str]:
    """The controller manager: without leader election, with high client-side limits, without a port of its own."""
    kubeconfig_file = files.kubeconfig(CONTROLLER_MANAGER)
    return [
        f"--kubeconfig={kubeconfig_file}",
        "--leader-elect=false",
        "--secure-port=0",
        "--profiling=false",
        f"--root-ca-file={files.certificate}",
        f"--service-account-private-key-file={files.service_account_key}",
        "--use-service-account-credentials=true",
        "--allocate-node-cidrs=false",
        f"--flex-volume-plugin-dir={files.folder / 'volume-plugins'}",
        "--kube-api-qps=300",
        "--kube-api-burst=600",
    ]


def scheduler_flags(files: Files) -> list[str]:
    """The default scheduler: without leader election, without a port of its own."""
    return [
        f"--kubeconfig={files.kubeconfig(SCHEDULER)}",
        "--leader-elect=false",
        "--secure-port=0",
        "--profiling=false",
        "--kube-api-qps=300",
        "--kube-api-burst=600",
    ]
