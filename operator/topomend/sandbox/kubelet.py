"""How one kubelet of a sandbox is configured and started: pure functions from a node to files, flags and mounts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topomend.model.bitmask import format_id_list
from topomend.sandbox.layout import KUBELET_CONFIG, KUBELET_ROOT
from topomend.sandbox.node_spec import NodeSpec

KERNEL_TUNABLES = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
"""The kernel settings that the kubelet wants (cm/container_manager_linux.go:setupKernelTunables). It is shown files
that already say so, for otherwise it would change this machine's own."""

MANAGER_GATES = {
    "topology_manager_policy_options": ("TopologyManagerPolicyAlphaOptions", "TopologyManagerPolicyBetaOptions"),
    "cpu_manager_policy_options": ("CPUManagerPolicyAlphaOptions", "CPUManagerPolicyBetaOptions"),
}

CRI_SOCKET = KUBELET_ROOT / "cri.sock"

KUBELET_WORK = KUBELET_ROOT / "work"
"""Where the kubelet runs: an empty folder. It removes the files that match a container's log path and ``*``
(logs/container_log_manager.go:Clean), which are those of its working folder where a runtime tells no log path."""


WRITABLE = [str(KUBELET_ROOT), "/var/log", "/dev", "/proc"]
"""All that a kubelet may write to. It runs as root, believes that the machine is its own, and is to change nothing."""


def kubelet_config(spec: NodeSpec, *, port: int, user_namespace: bool) -> Mapping[str, Any]:
    """The KubeletConfiguration of ``spec``.

    Nothing may evict pods for what this machine lacks, so every eviction threshold is off; what the Memory Manager
    reserves is therefore kubeReserved memory alone, which validateReservedMemory wants to be the sum of reservedMemory.
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
    """The gates: those of the options that are named, what a user namespace needs, and what the node's settings say."""
    gates: dict[str, bool] = {}
    for options, names in MANAGER_GATES.items():
        if getattr(spec.kubelet, options):
            gates |= dict.fromkeys(names, True)
    if user_namespace:
        gates["KubeletInUserNamespace"] = True
    return {**gates, **spec.kubelet.feature_gates}


def kubelet_flags(spec: NodeSpec) -> list[str]:
    """The flags that have no place in the configuration file.

    ``cloud-provider=external`` keeps the kubelet from asking DNS or a default route for an address of the node, which
    an offline machine has none of.
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
    """What a node sees in place of this machine, given the node's folder on it.

    The kubelet's folder at its own path, the synthetic /sys with this machine's cgroups in it, /proc's words about CPUs
    and memory, the kernel settings, an empty /var/log; and no systemd, of which the kubelet would ask a scope for each
    volume that it mounts.
    """
    system = folder / "machine" / "sys"
    mounts = [["bind", str(folder / "kubelet"), str(KUBELET_ROOT)]]
    if Path("/sys/fs/cgroup").is_dir():
        mounts.append(["bind", "/sys/fs/cgroup", str(system / "fs" / "cgroup")])
    mounts.append(["bind", str(system), "/sys"])
    mounts += [["bind", str(folder / "machine" / "proc" / name), f"/proc/{name}"] for name in ("meminfo", "cpuinfo")]
    for name in KERNEL_TUNABLES:
        if Path("/proc/sys", name).exists():
            mounts.append(["bind", str(folder / "tunables" / name), f"/proc/sys/{name}"])
    mounts += [["tmpfs", path] for path in ("/var/log", "/run/systemd") if Path(path).is_dir()]
    return mounts
