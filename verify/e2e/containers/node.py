"""One node of a cluster: the configuration of its kubelet and of its container runtime.

Pure functions from a node to files and flags; ``cluster`` writes the files and starts the programs. Each node has its
own /etc, /home, /run and /var, so the paths in the manifests are valid on each node and never the machine's own.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from verify.e2e.containers.network import Network

OWN_FOLDERS = ("etc", "home", "run", "var")
"""The folders that each node has for itself; a layout's files must be in one of them."""

KUBELET_PORT = 10250
CONTAINERD_SOCKET = Path("/run/containerd/containerd.sock")
CLIENT_AUTHORITY = Path("/etc/topomend-e2e/client-authority.crt")
KUBECONFIG = Path("/etc/topomend-e2e/kubelet.kubeconfig")
CNI_CONFIG = Path("/etc/cni/net.d/10-topomend.conflist")
CONTAINERD_CONFIG = Path("/etc/containerd/config.toml")

Settings = Mapping[str, Any]
"""The fields of a KubeletConfiguration."""

RUNTIME_SETTINGS: Settings = {
    "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
    "cgroupDriver": "cgroupfs",
}
"""How a kubelet reaches the containerd of ``containerd_config``, and the cgroup driver that both use."""


@dataclass(frozen=True)
class Start:
    """A layout's form of a kubelet's settings: files by their path on the node, and the flags that name them."""

    files: Mapping[Path, str] = field(default_factory=dict)
    flags: Sequence[str] = ()


def kubeadm(settings: Settings) -> Start:
    """All settings in the file that kubeadm uses."""
    path = Path("/var/lib/kubelet/config.yaml")
    return Start({path: yaml.safe_dump(dict(settings), sort_keys=False)}, [f"--config={path}"])


@dataclass(frozen=True)
class Node:
    """The specification of a node.

    ``root`` is its kubelet's root folder. ``layout`` gets all settings of the kubelet: the usual ones, overridden by
    ``settings``. ``links`` are symbolic links on the node, by their paths.
    """

    name: str
    root: Path = Path("/var/lib/kubelet")
    layout: Callable[[Settings], Start] = kubeadm
    settings: Settings = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[Path, Path] = field(default_factory=dict)


def kubelet_settings(node: Node, address: str, cgroup_root: str) -> Settings:
    """The settings of the kubelet of ``node``.

    On any machine one CPU remains for exclusive use and half a CPU is shared: the static policy rounds the reserved
    amount up to whole CPUs.
    """
    reserved = (os.cpu_count() or 2) * 1000 - 1500
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "port": KUBELET_PORT,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True, "cacheTTL": "10s"},
            "x509": {"clientCAFile": str(CLIENT_AUTHORITY)},
        },
        "authorization": {"mode": "Webhook"},
        **RUNTIME_SETTINGS,
        "cgroupRoot": f"/{cgroup_root}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "clusterDomain": "cluster.local",
        "systemReserved": {"cpu": f"{reserved}m"},
        "imageGCHighThresholdPercent": 100,
        "evictionHard": dict.fromkeys(
            ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"),
            "0%",
        ),
        "nodeStatusUpdateFrequency": "5s",
        "volumeStatsAggPeriod": "-1s",
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": "None",
        "topologyManagerPolicy": "single-numa-node",
        **node.settings,
    }


def kubelet_flags(node: Node, address: str) -> list[str]:
    """The flags that have no field in the configuration file."""
    labels = ",".join(f"{key}={value}" for key, value in node.labels.items())
    return [
        f"--root-dir={node.root}",
        f"--kubeconfig={KUBECONFIG}",
        f"--cert-dir={node.root / 'pki'}",
        f"--hostname-override={node.name}",
        f"--node-ip={address}",
        *([f"--node-labels={labels}"] if labels else []),
    ]


def containerd_config(snapshotter: str, pause: str, cni_folder: str) -> str:
    """containerd's configuration: runc, without the machine's security modules."""
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni_folder}"
conf_dir = "{CNI_CONFIG.parent}"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""


def node_files(number: int, network: Network, *, cni_folder: str, pause: str, snapshotter: str) -> Mapping[Path, str]:
    """The files of a node by their path on it, without those of its kubelet."""
    etc = Path("/etc")
    cni = network.cni(number, "/var/lib/cni/networks")
    return {
        CONTAINERD_CONFIG: containerd_config(snapshotter, pause, cni_folder),
        CNI_CONFIG: json.dumps(cni),
        etc / "hosts": "127.0.0.1 localhost\n::1 localhost\n",
        etc / "passwd": "root:x:0:0:root:/root:/bin/sh\n",
        etc / "group": "root:x:0:\n",
        etc / "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        etc / "machine-id": f"{number:032x}\n",
        etc / "os-release": 'ID=debian\nPRETTY_NAME="a node of a test"\n',
    }
