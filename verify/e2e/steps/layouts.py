"""How distributions lay out a kubelet: its root folder, and where its configuration is. Sources: docs/run/layouts.md.

Pure functions from the settings of a kubelet to files and flags, and which component of ``deploy/`` reads those.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from verify.e2e.containers.node import CLIENT_AUTHORITY, Node, Settings, Start, kubeadm

DEFAULT_ROOT = Path("/var/lib/kubelet")
HEAD = ("apiVersion", "kind")

FRESH: Settings = {
    "authentication": {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": True, "cacheTTL": "1s"},
        "x509": {"clientCAFile": str(CLIENT_AUTHORITY)},
    },
    "authorization": {"mode": "Webhook", "webhook": {"cacheAuthorizedTTL": "1s", "cacheUnauthorizedTTL": "1s"}},
}
"""Kubelets cache authorizations for minutes; a test revokes a right and grants it again."""


@dataclass(frozen=True)
class Layout:
    """One distribution's. ``change`` is the file that takes the place of another, or comes into a drop-in folder.

    ``component`` reads the files; None where no component may, or where ``deploy/`` has none. ``links`` are symbolic
    links on the node, by their paths.
    """

    name: str
    lay_out: Callable[[Settings], Start]
    change: Path
    component: str | None = None
    root: Path = DEFAULT_ROOT
    links: Mapping[Path, Path] = field(default_factory=dict)

    @property
    def drops_in(self) -> bool:
        """Whether a change is another file beside those that are there."""
        return self.change.suffix == ".conf" and self.change.name.startswith("9")

    def node(self, settings: Settings) -> Node:
        """A node laid out so."""
        return Node(self.name, root=self.root, layout=self.lay_out, settings=settings, links=self.links)


def _in_file(path: str) -> Callable[[Settings], Start]:
    """All settings in one file."""
    return lambda settings: Start({Path(path): json.dumps(dict(settings))}, [f"--config={path}"])


def _in_drop_ins(folder: str, name: str) -> Callable[[Settings], Start]:
    """All settings in the first drop-in; there is no other file."""
    return lambda settings: Start({Path(folder, name): json.dumps(dict(settings))}, [f"--config-dir={folder}"])


def _in_both(path: str, folder: str, name: str) -> Callable[[Settings], Start]:
    """Most settings in a file, those about topology in a drop-in."""

    def start(settings: Settings) -> Start:
        dropped_in = {key: value for key, value in settings.items() if key in (*HEAD, "topologyManagerPolicy")}
        rest = {key: value for key, value in settings.items() if key != "topologyManagerPolicy"}
        files = {Path(path): json.dumps(rest), Path(folder, name): json.dumps(dropped_in)}
        return Start(files, [f"--config={path}", f"--config-dir={folder}"])

    return start


def _as_flags(path: str) -> Callable[[Settings], Start]:
    """All settings on the command line, in a file of arguments as MicroK8s has it."""

    def start(settings: Settings) -> Start:
        flags = [f"--{_FLAGS[key]}={_text(value)}" for key, value in _flat(settings) if key not in HEAD]
        quoted = (f'{name}="{value}"' for name, value in (flag.split("=", 1) for flag in flags))
        return Start({Path(path): "# flags of the kubelet\n" + "\n".join(quoted) + "\n"}, flags)

    return start


_FLAGS = {
    "address": "address",
    "port": "port",
    "healthzPort": "healthz-port",
    "authentication.anonymous.enabled": "anonymous-auth",
    "authentication.webhook.enabled": "authentication-token-webhook",
    "authentication.webhook.cacheTTL": "authentication-token-webhook-cache-ttl",
    "authentication.x509.clientCAFile": "client-ca-file",
    "authorization.mode": "authorization-mode",
    "authorization.webhook.cacheAuthorizedTTL": "authorization-webhook-cache-authorized-ttl",
    "authorization.webhook.cacheUnauthorizedTTL": "authorization-webhook-cache-unauthorized-ttl",
    "containerRuntimeEndpoint": "container-runtime-endpoint",
    "cgroupDriver": "cgroup-driver",
    "cgroupRoot": "cgroup-root",
    "failCgroupV1": "fail-cgroupv1",
    "failSwapOn": "fail-swap-on",
    "makeIPTablesUtilChains": "make-iptables-util-chains",
    "resolvConf": "resolv-conf",
    "clusterDomain": "cluster-domain",
    "systemReserved": "system-reserved",
    "imageGCHighThresholdPercent": "image-gc-high-threshold",
    "evictionHard": "eviction-hard",
    "nodeStatusUpdateFrequency": "node-status-update-frequency",
    "volumeStatsAggPeriod": "volume-stats-agg-period",
    "cpuManagerPolicy": "cpu-manager-policy",
    "memoryManagerPolicy": "memory-manager-policy",
    "topologyManagerPolicy": "topology-manager-policy",
}


def _flat(settings: Settings, prefix: str = "") -> list[tuple[str, Any]]:
    """Settings by their path, where they are not the value of one flag."""
    pairs: list[tuple[str, Any]] = []
    for key, value in settings.items():
        path = prefix + key
        pairs += [(path, value)] if path in (*_FLAGS, *HEAD) else _flat(value, f"{path}.")
    return pairs


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        between = "<" if "memory.available" in value else "="
        return ",".join(f"{key}{between}{amount}" for key, amount in value.items())
    return str(value)


def rewritten(layout: Layout, content: str, **fields: str) -> str:
    """The new content of a layout's changed file with these ``fields``."""
    if layout.drops_in:
        head = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
        return yaml.safe_dump({**head, **fields})
    if content.startswith("#"):
        lines = [line for line in content.splitlines() if not any(_FLAGS[key] in line for key in fields)]
        return "\n".join([*lines, *(f"--{_FLAGS[key]}={value}" for key, value in fields.items())]) + "\n"
    return yaml.safe_dump({**yaml.safe_load(content), **fields})


_EKS, _RANCHER, _MICROK8S = "/etc/kubernetes/kubelet", "/var/lib/rancher", "/var/snap/microk8s"
_ELSEWHERE = Path("/var/data/kubelet")

LAYOUTS = (
    Layout("kubeadm", kubeadm, DEFAULT_ROOT / "config.yaml", "kubeadm"),
    Layout("aks", _in_file("/etc/default/kubeletconfig.json"), Path("/etc/default/kubeletconfig.json"), "aks"),
    Layout(
        "eks-al2023",
        _in_both(f"{_EKS}/config.json", f"{_EKS}/config.json.d", "40-nodeadm.conf"),
        Path(f"{_EKS}/config.json.d/90-mine.conf"),
        "eks-al2023",
    ),
    Layout("eks-al2", _in_file(f"{_EKS}/kubelet-config.json"), Path(f"{_EKS}/kubelet-config.json"), "eks-al2"),
    Layout("bottlerocket", _in_file(f"{_EKS}/config"), Path(f"{_EKS}/config"), "bottlerocket"),
    Layout("gke", _in_file("/home/kubernetes/kubelet-config.yaml"), Path("/home/kubernetes/kubelet-config.yaml")),
    Layout(
        "openshift",
        _in_both("/etc/kubernetes/kubelet.conf", "/etc/openshift/kubelet.conf.d", "20-auto-sizing.conf"),
        Path("/etc/openshift/kubelet.conf.d/90-mine.conf"),
        "openshift",
    ),
    Layout("talos", _in_file("/etc/kubernetes/kubelet.yaml"), Path("/etc/kubernetes/kubelet.yaml")),
    *(
        Layout(
            name,
            _in_drop_ins(f"{_RANCHER}/{name}/agent/etc/kubelet.conf.d", f"00-{name}-defaults.conf"),
            Path(f"{_RANCHER}/{name}/agent/etc/kubelet.conf.d/90-mine.conf"),
            name,
        )
        for name in ("k3s", "rke2")
    ),
    Layout(
        "microk8s",
        _as_flags(f"{_MICROK8S}/7000/args/kubelet"),
        Path(f"{_MICROK8S}/7000/args/kubelet"),
        "microk8s",
        root=Path(f"{_MICROK8S}/common/var/lib/kubelet"),
        links={
            DEFAULT_ROOT: Path(f"{_MICROK8S}/common/var/lib/kubelet"),
            Path(f"{_MICROK8S}/current"): Path("7000"),
        },
    ),
    Layout("root-dir", _in_file(f"{_ELSEWHERE}/config.yaml"), _ELSEWHERE / "config.yaml", "kubelet-root", _ELSEWHERE),
)
"""All layouts. The last one belongs to no distribution: a kubelet with ``--root-dir``."""
