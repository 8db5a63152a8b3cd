"""The configuration, flags and mounts of one kubelet of a sandbox: pure functions of the node."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topomend.model.bitmask import format_id_list
from topomend.sandbox.layout import KUBELET_CONFIG, KUBELET_ROOT
from topomend.sandbox.node.node_spec import NodeSpec

KERNEL_TUNABLES = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
"""The kernel settings that the kubelet requires (cm/container_manager_linux.go:setupKernelTunables). It sees files that
already have these values; otherwise it would change the host's own settings."""

MANAGER_GATES = {
    "topology_manager_policy_options": ("TopologyManagerPolicyAlphaOptions", "TopologyManagerPolicyBetaOptions"),
    "cpu_manager_policy_options": ("CPUManagerPolicyAlphaOptions", "CPUManagerPolicyBetaOptions"),
}

CRI_SOCKET = KUBELET_ROOT / "cri.sock"

KUBELET_WORK = KUBELET_ROOT / "work"
"""The kubelet's working folder, which is empty. The kubelet removes the files that match a container's log path and
``*`` (logs/container_log_manager.go:Clean); with a runtime that reports no log path, that is its working folder."""

HOSTS = Path("/etc/hosts")

WRITABLE = [str(KUBELET_ROOT), "/var/log", "/dev", "/proc"]
"""The only places that a kubelet may write to. It runs as root and believes that the host is its own."""

SHARED = [str(KUBELET_ROOT)]
"""The mounts that are shared, as a host's are. A kubelet that finds its root private mounts it over itself while it
makes its sockets below it (kubelet.go:setupDataDirs). It has ended so: the rename of its pods API's socket crossed from
the one mount to the other."""


def kubelet_config(spec: NodeSpec, *, port: int, user_namespace: bool) -> Mapping[str, Any]:
    """The KubeletConfiguration of ``spec``.

    Every eviction threshold is off, so that no shortage of the host evicts pods. The Memory Manager's reservation is
    therefore kubeReserved memory alone, which validateReservedMemory requires to be the sum of reservedMemory.
    """
    settings = spec.kubelet
    static_memory = settings.memory_manager_policy == "Static"
    reserved = settings.reserved_memory if static_memory else ()
    kube_reserved = {}
    if settings.reserved_cpus is None and settings.reserved_cpu_millis:
        kube_reserved["cpu"] = f"{settings.reserved_cpu_millis}m"
    if reserved:
        kube_reserved["memory"] = str(sum(reservation.size for reservation in reserved))
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": port,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{CRI_SOCKET}",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "podLogsDir": str(KUBELET_ROOT / "pod-logs"),
        "volumePluginDir": str(KUBELET_ROOT / "volume-plugins"),
        "resolvConf": "",
        "clusterDomain": "cluster.local",
        "clusterDNS": ["10.96.0.10"],
        "maxPods": 500,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": dict.fromkeys(
            ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"),
            "0%",
        ),
        "nodeStatusUpdateFrequency": "5s",
        "nodeStatusReportFrequency": "1m0s",
        "syncFrequency": "10s",
        "volumeStatsAggPeriod": "-1s",
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "eventRecordQPS": 0,
        "topologyManagerPolicy": settings.topology_manager_policy,
        "topologyManagerScope": settings.topology_manager_scope,
        "topologyManagerPolicyOptions": dict(settings.topology_manager_policy_options),
        "cpuManagerPolicy": settings.cpu_manager_policy,
        "cpuManagerPolicyOptions": dict(settings.cpu_manager_policy_options),
        "memoryManagerPolicy": settings.memory_manager_policy,
        "featureGates": _gates(spec, user_namespace=user_namespace),
    }
    if settings.reserved_cpus is not None:
        config["reservedSystemCPUs"] = format_id_list(settings.reserved_cpus)
    if kube_reserved:
        config["kubeReserved"] = kube_reserved
    if reserved:
        config["reservedMemory"] = [
            {"numaNode": reservation.numa_node, "limits": {reservation.resource: str(reservation.size)}}
            for reservation in reserved
        ]
    return config


def _gates(spec: NodeSpec, *, user_namespace: bool) -> Mapping[str, bool]:
    """The feature gates that options and a user namespace require, overridden by those of the node's settings."""
    gates: dict[str, bool] = {}
    for options, names in MANAGER_GATES.items():
        if getattr(spec.kubelet, options):
            gates |= dict.fromkeys(names, True)
    if user_namespace:
        gates["KubeletInUserNamespace"] = True
    return {**gates, **spec.kubelet.feature_gates}


def kubelet_flags(spec: NodeSpec) -> list[str]:
    """The flags that have no place in the configuration file.

    ``cloud-provider=external`` keeps the kubelet from asking DNS or the default route for the node's address: an
    offline machine has neither.
    """
    return [
        f"--config={KUBELET_CONFIG}",
        f"--kubeconfig={KUBELET_ROOT / 'kubeconfig'}",
        f"--root-dir={KUBELET_ROOT}",
        f"--cert-dir={KUBELET_ROOT / 'pki'}",
        f"--hostname-override={spec.name}",
        "--cloud-provider=external",
    ]


def node_mounts(folder: Path) -> list[list[str]]:
    """The mounts that show a node its made-up machine; ``folder`` is the node's folder on the host.

    They show the kubelet's folder at its usual path, the synthetic /sys with the host's cgroups in it, /proc/cpuinfo
    and /proc/meminfo, the kernel settings, the names that the probes of topomend's pods use, and an empty /var/log.
    They hide systemd: the kubelet would ask it for a
    scope for each volume that it mounts. Each mount is ``["bind", SOURCE, TARGET]`` or ``["tmpfs", TARGET]``.
    """
    system = folder / "machine" / "sys"
    mounts = [["bind", str(folder / "kubelet"), str(KUBELET_ROOT)]]
    if Path("/sys/fs/cgroup").is_dir():
        mounts.append(["bind", "/sys/fs/cgroup", str(system / "fs" / "cgroup")])
    mounts.append(["bind", str(system), "/sys"])
    if HOSTS.is_file():
        mounts.append(["bind", str(folder / "hosts"), str(HOSTS)])
    mounts += [["bind", str(folder / "machine" / "proc" / name), f"/proc/{name}"] for name in ("meminfo", "cpuinfo")]
    for name in KERNEL_TUNABLES:
        if Path("/proc/sys", name).exists():
            mounts.append(["bind", str(folder / "tunables" / name), f"/proc/sys/{name}"])
    mounts += [["tmpfs", path] for path in ("/var/log", "/run/systemd") if Path(path).is_dir()]
    return mounts
