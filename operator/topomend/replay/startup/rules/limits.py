"""Numbers out of range, and fields that need another one: the plain rules of ValidateKubeletConfiguration.

Source: pkg/kubelet/apis/config/validation/validation.go:ValidateKubeletConfiguration, in its order.
"""

from collections.abc import Iterator

from topomend.replay.startup.configuration import Configuration
from topomend.replay.startup.go_text import duration_struct, floating, quote

INVALID = "invalid configuration: "
_MILLISECOND, _SECOND = 1_000_000, 1_000_000_000
_CFS_PERIOD = 100 * _MILLISECOND


def lease(config: Configuration) -> Iterator[str]:
    """How long the node's Lease lasts."""
    if config.number("nodeLeaseDurationSeconds") <= 0:
        yield INVALID + "nodeLeaseDurationSeconds must be greater than 0"


def cgroup_root(config: Configuration) -> Iterator[str]:
    """Before 1.31 no enforcement may be listed without cgroups for QoS classes; system cgroups need a root."""
    if config.minor < 31 and config.items("enforceNodeAllocatable") and not config.flag("cgroupsPerQOS"):
        yield (
            INVALID + "enforceNodeAllocatable (--enforce-node-allocatable) is not supported unless "
            "cgroupsPerQOS (--cgroups-per-qos) is set to true"
        )
    if config.text("systemCgroups") and not config.text("cgroupRoot"):
        yield (
            INVALID + "systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not specified"
        )


def events(config: Configuration) -> Iterator[str]:
    """How many events are sent."""
    yield from _not_negative(config, "eventBurst", "event-burst")
    yield from _not_negative(config, "eventRecordQPS", "event-qps")


def _not_negative(config: Configuration, name: str, flag: str) -> Iterator[str]:
    if config.number(name) < 0:
        yield INVALID + f"{name} (--{flag}) {config.number(name)} must not be a negative number"


def _within(config: Configuration, name: str, flag: str, least: int, most: int) -> Iterator[str]:
    if not least <= config.number(name) <= most:
        yield (INVALID + f"{name} (--{flag}) {config.number(name)} must be between {least} and {most}, inclusive")


def healthz_port(config: Configuration) -> Iterator[str]:
    """The port of healthz; 0 turns it off."""
    if config.number("healthzPort"):
        yield from _within(config, "healthzPort", "healthz-port", 1, 65535)


def cfs_quota_period(config: Configuration) -> Iterator[str]:
    """The period of CPU quotas, which a feature gate frees."""
    period = config.number("cpuCFSQuotaPeriod")
    subject = INVALID + f"cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {duration_struct(period)} "
    free = config.enabled("CustomCPUCFSQuotaPeriod")
    if not free and period != _CFS_PERIOD:
        yield subject + "requires feature gate CustomCPUCFSQuotaPeriod"
    if free and not _MILLISECOND <= period <= _SECOND:
        yield subject + "must be between 1ms and 1sec, inclusive"


def iptables_and_api(config: Configuration) -> Iterator[str]:
    """Bits of packet marks, and how fast the kubelet asks the API server."""
    yield from _within(config, "iptablesDropBit", "iptables-drop-bit", 0, 31)
    yield from _within(config, "iptablesMasqueradeBit", "iptables-masquerade-bit", 0, 31)
    yield from _not_negative(config, "kubeAPIBurst", "kube-api-burst")
    yield from _not_negative(config, "kubeAPIQPS", "kube-api-qps")


def node_limits(config: Configuration) -> Iterator[str]:
    """What a node has at most: images in its status, open files, pods; and its OOM score."""
    if config.number("nodeStatusMaxImages") < -1:
        images = config.number("nodeStatusMaxImages")
        yield INVALID + f"nodeStatusMaxImages (--node-status-max-images) {images} must be -1 or greater"
    yield from _not_negative(config, "maxOpenFiles", "max-open-files")
    yield from _not_negative(config, "maxPods", "max-pods")
    yield from _within(config, "oomScoreAdj", "oom-score-adj", -1000, 1000)
    yield from _not_negative(config, "podsPerCore", "pods-per-core")


def ports(config: Configuration) -> Iterator[str]:
    """The kubelet's ports."""
    yield from _within(config, "port", "port", 1, 65535)
    if not 0 <= config.number("readOnlyPort") <= 65535:
        number = config.number("readOnlyPort")
        yield INVALID + f"readOnlyPort (--read-only-port) {number} must be between 0 and 65535, inclusive"


def registry(config: Configuration) -> Iterator[str]:
    """How fast images are pulled."""
    yield from _not_negative(config, "registryBurst", "registry-burst")
    yield from _not_negative(config, "registryPullQPS", "registry-qps")


def serving_certificate(config: Configuration) -> Iterator[str]:
    """A serving certificate from the API server needs a feature gate; since 1.32 no kubelet runs once."""
    if config.flag("serverTLSBootstrap") and not config.enabled("RotateKubeletServerCertificate"):
        yield INVALID + "serverTLSBootstrap true requires feature gate RotateKubeletServerCertificate"
    if config.minor >= 32 and config.flag("runOnce"):
        yield INVALID + "runOnce (--runOnce) true, Runonce mode has been deprecated and should not be set"


_HAIRPIN_MODES = ("none", "hairpin-veth", "promiscuous-bridge")


def hairpin_mode(config: Configuration) -> Iterator[str]:
    """How a pod reaches itself through a Service."""
    mode = config.text("hairpinMode")
    if mode not in _HAIRPIN_MODES:
        none, veth, bridge = map(quote, _HAIRPIN_MODES)
        yield (
            INVALID + f"option {quote(mode)} specified for hairpinMode (--hairpin-mode). "
            f"Valid options are {none}, {veth} or {bridge}"
        )


def memory_qos(config: Configuration) -> Iterator[str]:
    """The limits of feature gate MemoryQoS."""
    enabled, factor = config.enabled("MemoryQoS"), config.given_float("memoryThrottlingFactor")
    if config.minor >= 37 and not enabled and factor not in (None, 0.9):
        yield INVALID + "memoryThrottlingFactor must not be set when MemoryQoS feature gate is disabled"
    if factor is not None and not 0 < factor <= 1:
        yield (
            INVALID + f"memoryThrottlingFactor {floating(factor)} must be greater than 0 and less than or equal to 1.0"
        )
    if config.minor >= 36:
        yield from _memory_reservation(config.text("memoryReservationPolicy"), enabled)


def _memory_reservation(policy: str, enabled: bool) -> Iterator[str]:
    if policy == "TieredReservation" and not enabled:
        yield INVALID + f"memoryReservationPolicy {quote(policy)} requires MemoryQoS feature gate to be enabled"
    if policy not in ("None", "TieredReservation"):
        yield (
            INVALID + f"option {quote(policy)} specified for memoryReservationPolicy. "
            'Valid options are "None" or "TieredReservation"'
        )


def system_log_query(config: Configuration) -> Iterator[str]:
    """Whether the node's logs may be read through the API."""
    if not config.flag("enableSystemLogQuery"):
        return
    if not config.enabled("NodeLogQuery"):
        # The kubelet names the wrong field before 1.35.
        field = "enableSystemLogQuery" if config.minor >= 35 else "enableSystemLogHandler"
        yield INVALID + f"NodeLogQuery feature gate is required for {field}"
    if not config.flag("enableSystemLogHandler"):
        yield INVALID + "enableSystemLogHandler is required for enableSystemLogQuery"
