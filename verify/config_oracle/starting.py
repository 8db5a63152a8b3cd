"""Random configurations of kubelets that start, or do not.

A configuration sets a few fields, each to a value that is often at the edge of what the kubelet takes.
"""

import json
import posixpath
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from topomend.replay.startup.feature_gates import known_in
from topomend.replay.startup.go_text import duration

Content = dict[str, Any]
Draw = Callable[[Random], Any]

MEMORY = 16 << 30
NUMA_NODES = 4
_SECOND = 1_000_000_000


def one_of(*values: Any) -> Draw:
    """Any of the values."""
    return lambda random: random.choice(values)


def some_of(most: int, draw: Draw) -> Draw:
    """A list of up to ``most`` drawn values."""
    return lambda random: [draw(random) for _ in range(random.randint(0, most))]


def pairs(keys: tuple[str, ...], draw: Draw) -> Draw:
    """A map of up to three of the keys."""
    return lambda random: {key: draw(random) for key in random.sample(keys, random.randint(0, min(3, len(keys))))}


def struct(**fields: Draw) -> Draw:
    """A struct with some of the fields."""
    return lambda random: {name: draw(random) for name, draw in fields.items() if random.random() < 0.7}


def around(*edges: int) -> Draw:
    """A number at or next to an edge."""
    return lambda random: random.choice(edges) + random.choice((-1, 0, 0, 1))


_INT32 = around(0, 0, 1, 100, 1000, 65535, -5)
_QUANTITIES = (
    "0", "0Mi", "100Mi", "1Gi", "500m", "1.5Gi", "1e3", "-1", "-1.500", "-05Ki", "1k", "2000", "1000m", "1.0", "",
    "abc", "1Zi", ".", "+",
    "1e", "1E", "5e-10", "0.1n", "-1Ki", "12.", "1Ki1", "\uff19", "1e99", "9223372036854775807", "9Ei", "0x10", " 1",
    "1 ",
)  # fmt: skip
_QUANTITY = one_of(*_QUANTITIES)
_PERCENTAGE = one_of(
    "0%", "100%", "10%", "-1%", "101%", "1e1%", "%", "x%", "NaN%", "Inf%", "5%%", "0.5%", "1e40%", "1_0%"
)
_THRESHOLD: Draw = lambda random: (_PERCENTAGE if random.random() < 0.5 else _QUANTITY)(random)  # noqa: E731
_SIGNALS = (
    "memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
    "containerfs.available", "pid.available", "allocatableMemory.available", "memory.free", "",
)  # fmt: skip
_PERIODS = one_of(
    "30s", "1m", "1h30m", "0", "-1s", "", "1", "x", "1.5h", ".5s", "1d", "1µs", "99999999999h", "1s ", "-.s"
)
_DURATION = around(0, _SECOND, 3 * _SECOND, 300 * _SECOND, 100_000_000, 1_000_000, -_SECOND, 120 * _SECOND)
_CPUS = one_of(
    "0", "0-1", "", "a", "1-0", "0,", "0-", "-1", "0,2-3", "+1", " 0", "0-1-2", "99999999999999999999", "0,0", "٣"
)
_PATTERNS = one_of(
    "registry.io/app", "registry.io/app:v1", "nginx", "registry.io/*", "*", "/*", "", " a", "a b", "A/b",
    "reg:5000/x/*",
    "docker.io/library/nginx", "docker.io/nginx", "a//b", "x@sha256:" + "0" * 64, "x@sha256:" + "0" * 40, "x/*/y",
    "localhost/x",
    "index.docker.io/a/b", "f" * 64, "Reg.io/x", "example.com/A", "example.com/" + "a" * 300,
)  # fmt: skip
_SYSCTLS = (
    "net.ipv4.ip_forward", "net/ipv4/ip_forward", "kernel.shmmax", "kernel/shmmax", "vm.swappiness", "fs.mqueue.x",
    "user.x",
    "Net.x", "net.", "net.ipv4.conf.eno2/100.rp_filter", "kernel.msg*", "kernel.domainname", "",
)  # fmt: skip
_ENFORCED = one_of(
    "pods", "pods", "system-reserved", "kube-reserved", "none", "system-reserved-compressible",
    "kube-reserved-compressible", "", "x",
)  # fmt: skip
_ENDPOINTS = one_of(
    "localhost:4317", "dns://a:1", "unix:///x", "http://a", "", "a b:1", "http://[::1]", "x:y", "dns://%zz",
    "dns://a:b",
    "unix-abstract://x", "://", "dns:// a", "a%", "dns://u@h:1", "DNS://x", "dns://a^b", "//x", "dns://a?%zz#%zz",
)  # fmt: skip
_QOS_PERCENTAGE = one_of("50%", "101%", "-1%", "x%", "5", "%", "", "5%%", "+5%", "99999999999999999999%")
_CIPHERS = one_of(
    "TLS_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "x",
    "",
)
_RESOURCES = ("cpu", "memory", "ephemeral-storage", "pid", "gpu", "hugepages-2Mi")
_BOOL: Draw = lambda random: random.random() < 0.5  # noqa: E731


def _gates(random: Random) -> Content:
    names = [*known_in(random.choice((30, 34, 37))), "AllAlpha", "AllBeta", "Accelerators", "x y"]
    return {random.choice(names): random.random() < 0.5 for _ in range(random.randint(1, 3))}


_GATES_OF_RULES = (
    "CustomCPUCFSQuotaPeriod", "GracefulNodeShutdown", "GracefulNodeShutdownBasedOnPodPriority", "NodeSwap", "AllAlpha",
    "KubeletCrashLoopBackOffMax", "KubeletEnsureSecretPulledImages", "MemoryQoS", "KubeletTracing", "NodeLogQuery",
    "LoggingAlphaOptions", "LoggingBetaOptions", "DefaultPodSysctls", "RotateKubeletServerCertificate", "AllBeta",
    "ImageMaximumGCAge", "MemoryManager",
)  # fmt: skip


def _gates_of_rules(random: Random) -> Content:
    return {random.choice(_GATES_OF_RULES): random.random() < 0.6 for _ in range(random.randint(1, 2))}


_ROUTING = struct(splitStream=_BOOL, infoBufferSize=one_of("0", "1Ki", "0.5", 0, 5))

FIELDS: Mapping[str, Draw] = {
    "featureGates": lambda random: (_gates if random.random() < 0.3 else _gates_of_rules)(random),
    "nodeLeaseDurationSeconds": _INT32,
    "systemCgroups": one_of("", "/system", "/"),
    "cgroupRoot": one_of("", "/", "/x"),
    "eventBurst": _INT32,
    "eventRecordQPS": _INT32,
    "healthzPort": around(0, 1, 65535, 10248, -7),
    "cpuCFSQuotaPeriod": around(100_000_000, 100_000_000, 1_000_000, _SECOND, 0),
    "imageGCHighThresholdPercent": around(0, 50, 100, 85),
    "imageGCLowThresholdPercent": around(0, 50, 100, 85),
    "imageMinimumGCAge": _DURATION,
    "imageMaximumGCAge": _DURATION,
    "defaultPodSysctls": pairs(_SYSCTLS, one_of("1", "0")),
    "iptablesDropBit": around(0, 31, 15),
    "iptablesMasqueradeBit": around(0, 31, 14),
    "kubeAPIBurst": _INT32,
    "kubeAPIQPS": _INT32,
    "nodeStatusMaxImages": around(-1, 0, 50),
    "maxOpenFiles": around(0, 1 << 40, -9),
    "maxPods": around(0, 110, -9),
    "oomScoreAdj": around(-1000, 0, 1000),
    "podsPerCore": _INT32,
    "port": around(0, 1, 65535, 10250),
    "readOnlyPort": around(0, 1, 65535, 10255),
    "registryBurst": _INT32,
    "registryPullQPS": _INT32,
    "maxParallelImagePulls": around(0, 1, 2, 5),
    "serializeImagePulls": _BOOL,
    "serverTLSBootstrap": _BOOL,
    "runOnce": _BOOL,
    "registerWithTaints": some_of(
        2,
        struct(
            key=one_of("a", "example.com/x", "a/b/c", "", "-a", "A_b", "x" * 64, "Up.com/x", "/x"),
            value=one_of("", "v", "a b", "-", "x" * 64),
            effect=one_of("NoSchedule", "NoExecute", "PreferNoSchedule", "", "Never"),
            timeAdded=one_of("2024-01-02T03:04:05Z", "2024-01-02T03:04:05+02:00"),
        ),
    ),
    "topologyManagerPolicy": one_of("none", "best-effort", "restricted", "single-numa-node", "", "Restricted", "x\ty"),
    "topologyManagerScope": one_of("container", "pod", "", "Pod", "node"),
    "shutdownGracePeriod": _DURATION,
    "shutdownGracePeriodCriticalPods": _DURATION,
    "shutdownGracePeriodByPodPriority": some_of(
        1, lambda random: {"priority": random.randint(0, 9), "shutdownGracePeriodSeconds": random.randint(0, 9)}
    ),
    "memorySwap": struct(swapBehavior=one_of("", "NoSwap", "LimitedSwap", "UnlimitedSwap")),
    "crashLoopBackOff": struct(maxContainerRestartPeriod=_DURATION),
    "enforceNodeAllocatable": some_of(3, _ENFORCED),
    "cgroupsPerQOS": _BOOL,
    "failCgroupV1": _BOOL,
    "singleProcessOOMKill": _BOOL,
    "systemReservedCgroup": one_of("", "/system"),
    "kubeReservedCgroup": one_of("", "/kube"),
    "hairpinMode": one_of("none", "hairpin-veth", "promiscuous-bridge", "", "x"),
    "imagePullCredentialsVerificationPolicy": one_of(
        "", "NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify", "x"
    ),
    "preloadedImagesVerificationAllowlist": some_of(2, _PATTERNS),
    "reservedSystemCPUs": _CPUS,
    "memoryManagerPolicy": one_of("None", "Static", "Static", ""),
    "userNamespaces": struct(idsPerPod=around(0, 65536, 131072, 1 << 32, 1 << 33)),
    "showHiddenMetricsForVersion": one_of("", "1.29", "1.33", "1.36", "1.35", "x", '"'),
    "logging": struct(
        format=one_of("text", "json", "", "x", "JSON"),
        verbosity=one_of(0, 5, (1 << 31) - 1, 1 << 31, (1 << 32) - 1),
        flushFrequency=one_of("5s", "-1s", "0", 0, -1, 5 * _SECOND, "1h0m1s", "-90m"),
        vmodule=some_of(2, struct(filePattern=one_of("a", "", "a=b", "b,", "*"), verbosity=one_of(1, 1 << 31))),
        options=struct(text=_ROUTING, json=_ROUTING),
    ),
    "tracing": struct(endpoint=_ENDPOINTS, samplingRatePerMillion=around(0, 1_000_000, 5)),
    "memoryThrottlingFactor": one_of(0.9, 0.8, 0.0, 1.0, 1.1, -0.5, 1e-7, 1e21, 123456789.0, 1e300, 0.1 + 0.2, 2),
    "memoryReservationPolicy": one_of("", "None", "TieredReservation", "x"),
    "containerRuntimeEndpoint": one_of("", "unix:///x"),
    "enableSystemLogQuery": _BOOL,
    "enableSystemLogHandler": _BOOL,
    "containerLogMaxWorkers": around(0, 1),
    "containerLogMonitorInterval": _DURATION,
    "containerLogMaxFiles": around(0, 1, 2),
    "containerLogMaxSize": _QUANTITY,
    "podLogsDir": one_of("", "/var/log/pods", "a", "/a/", "//a", "/a/../b", "/ü", ".", "/", "/a/./b", "/.", "///a"),
    "enableServer": _BOOL,
    "tlsCipherSuites": some_of(2, _CIPHERS),
    "tlsMinVersion": one_of("", "VersionTLS12", "VersionTLS13", "x", "versiontls12"),
    "tlsCurvePreferences": some_of(3, one_of(23, 24, 25, 29, 4588, 0, 1, 70000, -1)),
    "authorization": struct(mode=one_of("", "Webhook", "AlwaysAllow", "x")),
    "kubeReserved": pairs(_RESOURCES, _QUANTITY),
    "systemReserved": pairs(_RESOURCES, _QUANTITY),
    "evictionHard": pairs(_SIGNALS, _THRESHOLD),
    "evictionSoft": pairs(_SIGNALS[:4], _THRESHOLD),
    "evictionSoftGracePeriod": pairs(_SIGNALS[:4], _PERIODS),
    "evictionMinimumReclaim": pairs(_SIGNALS, _THRESHOLD),
    "qosReserved": pairs(("memory", "cpu"), _QOS_PERCENTAGE),
    "syncFrequency": _DURATION,
    "configMapAndSecretChangeDetectionStrategy": one_of("", "Watch", "Cache", "Get", "x"),
    "allowedUnsafeSysctls": some_of(2, one_of(*_SYSCTLS, "net.core.*", "kernel.msg*", "a" * 300)),
}  # fmt: skip
"""The fields that a rule looks at, with values around its edges."""


def _reserved_memory(random: Random) -> Content:
    """A Memory Manager that may or may not be balanced."""
    amounts = ("100Mi", "50Mi", "1Gi", "104857600", "0.1Gi", "1e2", "1500m", "0", "1k", "-1", "10000000000000000000000")
    reserved = [
        {"numaNode": node, "limits": {name: random.choice(amounts) for name in _reserved_kinds(random)}}
        for node in random.choices(range(NUMA_NODES), k=random.randint(1, 3))
    ]
    content: Content = {"reservedMemory": reserved, "memoryManagerPolicy": random.choice(("Static", "Static", "None"))}
    content["evictionHard"] = {"memory.available": random.choice(("100Mi", "50Mi", "0.5%", "104857600", "1Gi", "0%"))}
    if random.random() < 0.5:
        content["kubeReserved"] = {"memory": random.choice(amounts)}
    if random.random() < 0.6 and len(reserved) == 1:
        content["evictionHard"] = {"memory.available": "100Mi"}
        reserved[0]["limits"] = {"memory": "100Mi"}
    return content


def _reserved_kinds(random: Random) -> list[str]:
    kinds = ("memory", "memory", "memory", "hugepages-2Mi", "cpu")
    return list({random.choice(kinds) for _ in range(random.randint(1, 2))})


def random_content(random: Random) -> Content:
    """A configuration as Go decodes it."""
    content: Content = _reserved_memory(random) if random.random() < 0.15 else {}
    if random.random() < 0.95:
        # Otherwise no kubelet from 1.35 on starts on a machine with cgroup v1.
        content["failCgroupV1"] = False
    for name in random.sample([*FIELDS], random.choice((0, 1, 1, 2, 2, 3, 5, 8))):
        content.setdefault(name, FIELDS[name](random))
    return content


_DURATIONS = frozenset(
    {
        "syncFrequency",
        "imageMinimumGCAge",
        "imageMaximumGCAge",
        "cpuCFSQuotaPeriod",
        "shutdownGracePeriod",
        "shutdownGracePeriodCriticalPods",
        "containerLogMonitorInterval",
        "nodeStatusUpdateFrequency",
        "nodeStatusReportFrequency",
        "volumeStatsAggPeriod",
        "maxContainerRestartPeriod",
    }
)


def as_file(content: Mapping[str, Any]) -> str:
    """The file that a kubelet decodes into ``content``."""
    kind = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}
    return json.dumps({**kind, **written(content)})


def written(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as a file has them: durations as text."""
    return {name: _value(name, value) for name, value in fields.items()}


def _value(name: str, value: Any) -> Any:
    if name in _DURATIONS:
        return duration(value)
    return written(value) if isinstance(value, dict) else value


def as_loaded(content: Content) -> Content:
    """The configuration as the loader leaves it.

    Relative paths are the file's (pkg/kubelet/kubeletconfig/configfiles/configfiles.go:resolveRelativePaths).
    Thresholds have a default (cmd/kubelet/app/server.go:loadConfigFile). Two fields are always those of flags, because
    the kubelet registers the flags once more (component-base logs/api/v1/options.go:addFlags).
    """
    routes = content.get("logging", {}).get("options")
    if routes:
        kept = {name: {key: value for key, value in of.items() if key != "splitStream"} for name, of in routes.items()}
        content = {**content, "logging": {**content["logging"], "options": kept}}
    folder = content.get("podLogsDir", "")
    if folder and not folder.startswith("/"):
        content = {**content, "podLogsDir": posixpath.normpath(f"/etc/{folder}")}
    defaults = {
        "memory.available": "100Mi",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
        "imagefs.available": "15%",
        "imagefs.inodesFree": "5%",
    }
    return content if "evictionHard" in content else {**content, "evictionHard": defaults}
