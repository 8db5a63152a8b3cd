"""Why a kubelet with a configuration does not start, in the kubelet's own sentences.

Owns the order of the checks. Source: cmd/kubelet/app/server.go:NewKubeletCommand,
pkg/kubelet/apis/config/validation/validation.go:ValidateKubeletConfiguration.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from topomend.replay.gates import minor_of
from topomend.replay.startup.configuration import UNKNOWN_HOST, Configuration, Host
from topomend.replay.startup.defaults import with_defaults
from topomend.replay.startup.feature_gates import FeatureGates, refusals
from topomend.replay.startup.go_text import quote, quoted_list
from topomend.replay.startup.rules import images, limits, node_allocatable, observability, pods, run
from topomend.replay.startup.rules.taints import registered_taints

MAX_SENTENCES = 64
"""More faults than a person reads. A list in a file may have thousands."""


def why_not_start(
    content: Mapping[str, Any],
    version: str,
    *,
    host: Host = UNKNOWN_HOST,
    has_defaults: bool = False,
) -> tuple[str, ...]:
    """The kubelet's sentences by which a kubelet of release ``version`` does not start with this configuration.

    Empty if it starts as far as the configuration alone says. ``content`` has the fields of
    kubelet.config.k8s.io/v1beta1 as Go decodes them, after drop-ins and flags: durations in nanoseconds, quantities as
    text, unset fields absent. A threshold in percent is judged only on a ``host`` whose memory is known.
    ``has_defaults`` says that they are filled in, so that a zero is no unset field.

    A kubelet stops at the first group that says anything: its feature gates, its logs, its configuration, then one
    check after the other. Within a group the order is the kubelet's, except where that is the random one of a Go map;
    there it is by name. Never raises.
    """
    minor = minor_of(version)
    gates = FeatureGates(minor, _booleans(content.get("featureGates")))
    if wrong := tuple(islice(refusals(gates), MAX_SENTENCES)):
        return wrong
    config = Configuration(content if has_defaults else with_defaults(content, gates), minor, gates, host)
    for group in (observability.logging(config), _validate(config)):
        if wrong := tuple(islice(group, MAX_SENTENCES)):
            return wrong
    return run.refusals(config)[:MAX_SENTENCES]


def _booleans(given: object) -> dict[str, bool]:
    gates = given.items() if isinstance(given, Mapping) else ()
    return {name: value for name, value in gates if isinstance(name, str) and isinstance(value, bool)}


def _validate(config: Configuration) -> Iterator[str]:
    """ValidateKubeletConfiguration."""
    for check in _CHECKS:
        yield from check(config)


_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
_SCOPES = ("container", "pod")


def _topology_manager(config: Configuration) -> Iterator[str]:
    policy, scope = config.text("topologyManagerPolicy"), config.text("topologyManagerScope")
    if policy not in _POLICIES:
        yield (
            f"{limits.INVALID}topologyManagerPolicy (--topology-manager-policy) {quote(policy)} must be one of: "
            f"{quoted_list(_POLICIES)}"
        )
    if scope not in _SCOPES:
        container, pod = map(quote, _SCOPES)
        yield (
            f"{limits.INVALID}topologyManagerScope (--topology-manager-scope) {quote(scope)} must be one of: "
            f"{container}, or {pod}"
        )


_CHECKS: tuple[Callable[[Configuration], Iterator[str]], ...] = (
    limits.lease,
    limits.cgroup_root,
    limits.events,
    limits.healthz_port,
    limits.cfs_quota_period,
    images.garbage_collection_thresholds,
    pods.default_sysctls,
    images.garbage_collection_ages,
    limits.iptables_and_api,
    limits.node_limits,
    limits.ports,
    limits.registry,
    images.parallel_pulls,
    limits.serving_certificate,
    registered_taints,
    _topology_manager,
    pods.shutdown,
    pods.swap,
    pods.crash_loop_back_off,
    node_allocatable.enforcement,
    limits.hairpin_mode,
    images.credentials_verification,
    node_allocatable.reserved_cpus,
    node_allocatable.reserved_memory,
    pods.operating_system,
    observability.hidden_metrics,
    observability.logging,
    observability.tracing,
    limits.memory_qos,
    limits.system_log_query,
    pods.logs,
)
"""In the order in which the kubelet makes them."""
