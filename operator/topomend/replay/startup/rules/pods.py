"""What the kubelet does for pods: sysctls, shutdown, swap, restarts, logs and user namespaces.

Source: pkg/kubelet/apis/config/validation/validation.go:ValidateKubeletConfiguration and validation_linux.go.
"""

import posixpath
import re
from collections.abc import Iterator
from itertools import chain, islice

from topomend.replay.startup.configuration import Configuration
from topomend.replay.startup.go_text import duration_struct, floating, quote
from topomend.replay.startup.rules.limits import INVALID

_SECOND = 1_000_000_000

# component-helpers node/util/sysctl/namespace.go
_NAMESPACED = frozenset(
    {
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.shm",
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.msg",
    }
)
_NAMESPACED_PREFIXES = ("net.", "fs.mqueue.")
_SEGMENT = "[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?"
_SYSCTL = re.compile(rf"(?:{_SEGMENT}[./])*{_SEGMENT}")
_MAX_SYSCTL = 253


def default_sysctls(config: Configuration) -> Iterator[str]:
    """The sysctls of every pod; since 1.37. Which of two that mean the same is named depends on Go's map."""
    sysctls = config.pairs("defaultPodSysctls") if config.minor >= 37 else {}
    if sysctls and not config.enabled("DefaultPodSysctls"):
        yield (
            INVALID + "DefaultPodSysctls feature gate is required for Kubelet configuration option defaultPodSysctls"
        )
        return
    seen: set[str] = set()
    for name in sysctls:
        if len(name) > _MAX_SYSCTL or not _SYSCTL.fullmatch(name):
            yield INVALID + f"{quote(name)} is not a valid sysctl name for defaultPodSysctls"
        else:
            yield from _sysctl(name, seen, config.minor)


def _sysctl(name: str, seen: set[str], minor: int) -> Iterator[str]:
    normal = normal_sysctl(name)
    if not is_namespaced(normal, minor):
        yield INVALID + f"{quote(name)} is not known to be namespaced for defaultPodSysctls"
    if normal in seen:
        yield INVALID + f"duplicate sysctl {quote(normal)} found in defaultPodSysctls"
    seen.add(normal)


def is_namespaced(name: str, minor: int) -> bool:
    """Whether a kubelet of 1.``minor`` knows the sysctl, or the sysctls with this prefix, to be a namespace's own."""
    if minor >= 37 and (name == "kernel.domainname" or name.startswith("user.")):
        return True
    return name in _NAMESPACED or name.startswith(_NAMESPACED_PREFIXES)


def normal_sysctl(name: str) -> str:
    """The name with dots as separators (component-helpers node/util/sysctl/sysctl.go:NormalizeName)."""
    first = re.search("[./]", name)
    return name if first is None or first[0] == "." else name.translate({ord("."): "/", ord("/"): "."})


def shutdown(config: Configuration) -> Iterator[str]:
    """How long pods have when the node shuts down."""
    total, critical = config.number("shutdownGracePeriod"), config.number("shutdownGracePeriodCriticalPods")
    by_priority = bool(config.items("shutdownGracePeriodByPodPriority"))
    if config.enabled("GracefulNodeShutdown"):
        yield from _grace_periods(total, critical)
    elif total > 0 or critical > 0:
        yield (
            INVALID + "specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate "
            "GracefulNodeShutdown"
        )
    if not by_priority:
        return
    if not config.enabled("GracefulNodeShutdownBasedOnPodPriority"):
        yield (
            INVALID + "Specifying shutdownGracePeriodByPodPriority requires feature gate "
            "GracefulNodeShutdownBasedOnPodPriority"
        )
    elif total > 0 or critical > 0:
        yield (
            INVALID + "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time"
        )


def _grace_periods(total: int, critical: int) -> Iterator[str]:
    if critical > total:
        yield (
            INVALID + f"shutdownGracePeriodCriticalPods {duration_struct(critical)} must be <= shutdownGracePeriod "
            f"{duration_struct(total)}"
        )
    for name, period in (("shutdownGracePeriod", total), ("shutdownGracePeriodCriticalPods", critical)):
        if period < 0 or 0 < period < _SECOND:
            yield INVALID + f"{name} {duration_struct(period)} must be either zero or otherwise >= 1 sec"


def swap(config: Configuration) -> Iterator[str]:
    """How much swap pods use."""
    behavior = config.struct("memorySwap").text("swapBehavior")
    if not config.enabled("NodeSwap"):
        if behavior:
            yield INVALID + "memorySwap.swapBehavior cannot be set when NodeSwap feature flag is disabled"
    elif behavior not in ("", "NoSwap", "LimitedSwap"):
        yield (INVALID + f'memorySwap.swapBehavior {quote(behavior)} must be one of: "", "LimitedSwap" or "NoSwap"')


def crash_loop_back_off(config: Configuration) -> Iterator[str]:
    """How long a container that crashes waits; since 1.32."""
    if config.minor < 32:
        return
    period = config.struct("crashLoopBackOff").given_number("maxContainerRestartPeriod")
    gate = "FeatureGate KubeletCrashLoopBackOffMax"
    if not config.enabled("KubeletCrashLoopBackOffMax"):
        if period is not None:
            yield INVALID + f"{gate} not enabled, CrashLoopBackOff.MaxContainerRestartPeriod must not be set"
    elif period is None:
        yield INVALID + f"{gate} is enabled, CrashLoopBackOff.MaxContainerRestartPeriod must be set"
    elif not _SECOND <= period < 300 * _SECOND + 1_000_000:
        seconds = floating(_seconds(period))
        yield (
            INVALID + f"CrashLoopBackOff.MaxContainerRestartPeriod (got: {seconds} seconds) must be set between "
            "1s and 300s"
        )


def _seconds(period: int) -> float:
    """time.Duration.Seconds."""
    sign = -1 if period < 0 else 1
    whole, rest = divmod(abs(period), _SECOND)
    return sign * (float(whole) + rest / 1e9)


def operating_system(config: Configuration) -> Iterator[str]:
    """The rules for Linux. The kubelet names the first."""
    yield from islice(chain(_cgroups(config), _user_namespaces(config)), 1)


def _cgroups(config: Configuration) -> Iterator[str]:
    """With cgroup v1 no kubelet starts since 1.35, unless it is told to; 1.31 is the first that can be told."""
    if not config.host.cgroup_v1:
        return
    if config.minor >= 31 and config.flag("failCgroupV1"):
        state = "unsupported and will be removed in a future release" if config.minor >= 35 else "in maintenance mode"
        yield f"kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is {state}"
    if config.minor >= 32 and config.content.get("singleProcessOOMKill") is False:
        yield INVALID + "singleProcessOOMKill must not be explicitly set to false when using cgroup v1"


def _user_namespaces(config: Configuration) -> Iterator[str]:
    ids = config.struct("userNamespaces").given_number("idsPerPod") if config.minor >= 33 else None
    if ids is None:
        return
    subject = INVALID + "userNamespaces.idsPerPod must "
    if ids < 65536:
        yield subject + "not be less than 65536"
    elif ids % 65536:
        yield subject + "be a multiple of 65536"
    elif ids >= 1 << 32:
        yield subject + f"not be more than {(1 << 32) - 1}"


def logs(config: Configuration) -> Iterator[str]:
    """Where the logs of containers are, and when they are rotated."""
    if config.number("containerLogMaxWorkers") < 1:
        yield INVALID + "containerLogMaxWorkers must be greater than or equal to 1"
    if config.number("containerLogMonitorInterval") < 3 * _SECOND:
        yield INVALID + "containerLogMonitorInterval must be a positive time duration greater than or equal to 3s"
    if config.minor >= 33 and config.number("containerLogMaxFiles") <= 1:
        yield INVALID + "containerLogMaxFiles must be greater than 1"
    folder = config.text("podLogsDir")
    subject = INVALID + f"pod logs path {quote(folder)} "
    if not folder.startswith("/"):
        yield subject + "must be absolute path"
    if _clean(folder) != folder:
        yield subject + "must be normalized"
    if not folder.isascii():
        yield subject + "mut contains ASCII characters only"


def _clean(path: str) -> str:
    """path/filepath.Clean, which unlike ``posixpath`` keeps no second slash at the start."""
    clean = posixpath.normpath(path)
    return clean[1:] if clean.startswith("//") else clean
