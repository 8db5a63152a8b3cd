"""The names of a kubelet's flags: it ends at one that it does not know.

Those that override a field are data (``fields``); owns the others, which no setting depends on that is read here
(cmd/kubelet/app/options, pkg/kubelet/config/flags.go and component-base's, in 1.30 to 1.37).
"""

from collections.abc import Iterator, Mapping

from topomend.discover.kubelet_config.fields import flags as overriding
from topomend.discover.kubelet_config.kubelet_process import Flags

MAX_NAME = 80

_OTHERS = (
    "bootstrap-kubeconfig", "cert-dir", "cloud-provider", "config", "config-dir", "exit-on-lock-contention",
    "experimental-allocatable-ignore-eviction", "experimental-mounter-path", "help", "hostname-override",
    "housekeeping-interval",
    "image-credential-provider-bin-dir", "image-credential-provider-config", "kubeconfig", "lock-file",
    "maximum-dead-containers", "maximum-dead-containers-per-container", "minimum-container-ttl-duration", "node-ip",
    "node-labels", "reserved-memory", "root-dir", "runtime-cgroups", "seccomp-default", "version",
)  # fmt: skip

_LAST_MINOR: Mapping[int, tuple[str, ...]] = {
    30: ("iptables-drop-bit", "iptables-masquerade-bit", "keep-terminated-pod-volumes"),
    33: ("cloud-config", "register-schedulable"),
    34: ("pod-infra-container-image",),
    36: (
        "application-metrics-count-limit", "boot-id-file", "container-hints", "containerd", "containerd-namespace",
        "enable-load-reader", "event-storage-age-limit", "event-storage-event-limit", "global-housekeeping-interval",
        "log-cadvisor-usage", "machine-id-file", "storage-driver-buffer-duration",
        "storage-driver-db", "storage-driver-host", "storage-driver-password", "storage-driver-secure",
        "storage-driver-table", "storage-driver-user",
    ),
}  # fmt: skip
"""The flags that are gone, by the last release that has them."""

_SINCE = {"fail-cgroupv1": 31}


def flag_names(minor: int) -> frozenset[str]:
    """Every flag of a kubelet of a minor release; one that is newer than the known ones counts as the newest."""
    gone_later = (name for last, names in _LAST_MINOR.items() if minor <= last for name in names)
    own = (name for name in overriding() if minor >= _SINCE.get(name, minor))
    return frozenset((*own, *_OTHERS, *gone_later))


def unknown_flags(flags: Flags, minor: int) -> Iterator[tuple[str, str]]:
    """Each of ``flags`` that the kubelet does not know, and its words (cmd/kubelet/app/server.go:NewKubeletCommand)."""
    known = flag_names(minor)
    for name in flags:
        if name not in known:
            shown = name[:MAX_NAME]
            yield shown, f"failed to parse kubelet flag: unknown flag: --{shown}"
