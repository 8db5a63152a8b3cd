"""The defaults of a kubelet's configuration that its checks depend on.

Source: pkg/kubelet/apis/config/v1beta1/defaults.go:SetDefaults_KubeletConfiguration, component-base
logs/api/v1/options.go:SetRecommendedLoggingConfiguration.
"""

from collections.abc import Mapping
from typing import Any

from topomend.replay.startup.feature_gates import FeatureGates

_SECOND = 1_000_000_000

_ZERO_IS_UNSET: Mapping[str, object] = {
    "syncFrequency": 60 * _SECOND,
    "port": 10250,
    "registryBurst": 10,
    "eventBurst": 100,
    "nodeLeaseDurationSeconds": 40,
    "imageMinimumGCAge": 120 * _SECOND,
    "cpuManagerPolicy": "none",
    "memoryManagerPolicy": "None",
    "topologyManagerPolicy": "none",
    "topologyManagerScope": "container",
    "hairpinMode": "promiscuous-bridge",
    "maxPods": 110,
    "maxOpenFiles": 1_000_000,
    "kubeAPIBurst": 100,
    "containerLogMaxSize": "10Mi",
    "configMapAndSecretChangeDetectionStrategy": "Watch",
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "podLogsDir": "/var/log/pods",
}
"""The fields whose Go type is no pointer: their zero value counts as unset."""

_NIL_IS_UNSET: Mapping[str, object] = {
    "registryPullQPS": 5,
    "eventRecordQPS": 50,
    "healthzPort": 10248,
    "oomScoreAdj": -999,
    "imageGCHighThresholdPercent": 85,
    "imageGCLowThresholdPercent": 80,
    "cgroupsPerQOS": True,
    "cpuCFSQuotaPeriod": _SECOND // 10,
    "nodeStatusMaxImages": 50,
    "kubeAPIQPS": 50,
    "iptablesMasqueradeBit": 14,
    "iptablesDropBit": 15,
    "failSwapOn": True,
    "containerLogMaxFiles": 5,
    "containerLogMaxWorkers": 1,
    "containerLogMonitorInterval": 10 * _SECOND,
    "enforceNodeAllocatable": ["pods"],
    "enableSystemLogHandler": True,
}
"""The fields whose Go type is a pointer or a list."""

_LOG_FLUSH = 5 * _SECOND


def with_defaults(content: Mapping[str, Any], gates: FeatureGates) -> dict[str, Any]:
    """``content`` with every default that a check looks at; ``gates`` are those in force when defaults are filled in.

    The kubelet fills them in as it decodes its file, and from 1.32 on again after its drop-ins. A default stays when a
    drop-in or a flag turns off what it belongs to, and a zero stays that comes after the last defaults.
    """
    filled = {key: value for key, value in content.items() if value is not None}
    for name, default in _ZERO_IS_UNSET.items():
        filled[name] = filled.get(name) or default
    for name, default in _NIL_IS_UNSET.items():
        filled.setdefault(name, default)
    pulls = filled.get("maxParallelImagePulls")
    filled.setdefault("serializeImagePulls", not (isinstance(pulls, int) and pulls >= 2))
    filled["logging"] = _logging(filled.get("logging"))
    filled.update(_of_release(filled, gates))
    return filled


def _logging(given: object) -> dict[str, Any]:
    logging = dict(given) if isinstance(given, Mapping) else {}
    logging["format"] = logging.get("format") or "text"
    logging["flushFrequency"] = logging.get("flushFrequency") or _LOG_FLUSH
    return logging


def _of_release(filled: Mapping[str, Any], gates: FeatureGates) -> dict[str, Any]:
    """The defaults that releases or gates have and others have not."""
    found: dict[str, Any] = {}
    if gates.minor >= 31:
        found["failCgroupV1"] = filled.get("failCgroupV1", gates.minor >= 35)
    if gates.minor < 37:
        found["memoryThrottlingFactor"] = filled.get("memoryThrottlingFactor", 0.9)
    if gates.minor >= 36:
        found["memoryReservationPolicy"] = filled.get("memoryReservationPolicy") or "None"
    if gates.enabled("KubeletCrashLoopBackOffMax"):
        found["crashLoopBackOff"] = _crash_loop_back_off(filled.get("crashLoopBackOff"))
    if gates.enabled("KubeletEnsureSecretPulledImages"):
        policy = "imagePullCredentialsVerificationPolicy"
        found[policy] = filled.get(policy) or "NeverVerifyPreloadedImages"
    return found


def _crash_loop_back_off(given: object) -> dict[str, Any]:
    found = dict(given) if isinstance(given, Mapping) else {}
    if found.get("maxContainerRestartPeriod") is None:
        found["maxContainerRestartPeriod"] = 300 * _SECOND
    return found
