"""Rules that depend on the kubelet's version and feature gates, each with its source. Nothing else reads versions.

Replay follows v1.36.3. ``Gates.unmodelled`` says where another version is known to differ, or is not known.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from topomend.model.kubelet import DEFAULT_VERSION, KubeletSettings

OLDEST_MINOR = 32
"""Before v1.32 pod-level resources, option levels and the Memory Manager's checks differ in ways not modelled."""

NEWEST_MINOR = 36

_ALPHA, _BETA = "CPUManagerPolicyAlphaOptions", "CPUManagerPolicyBetaOptions"
_TOPOLOGY_ALPHA = "TopologyManagerPolicyAlphaOptions"
POD_LEVEL_RESOURCES = "PodLevelResources"
POD_LEVEL_RESOURCE_MANAGERS = "PodLevelResourceManagers"

FULL_PCPUS_ONLY = "full-pcpus-only"
DISTRIBUTE_ACROSS_NUMA = "distribute-cpus-across-numa"
ALIGN_BY_SOCKET = "align-by-socket"
DISTRIBUTE_ACROSS_CORES = "distribute-cpus-across-cores"
STRICT_RESERVATION = "strict-cpu-reservation"
PREFER_UNCORE_CACHE = "prefer-align-cpus-by-uncorecache"

_VERSION = re.compile(r"v?1\.(\d{1,4})(?!\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Gates:
    """What is in force.

    ``pod_level_resources``: alpha in 1.32, on by default since 1.34 (kube_features.go: PodLevelResources).
    ``pod_level_resource_managers``: alpha, new in 1.36.
    ``device_nodes_only``: device hints name only NUMA nodes that host a device of the resource, since 1.36
    (devicemanager/topology_hints.go:deviceNUMANodes).
    ``cpu_option_levels``: ``alpha``, ``beta`` or ``stable`` of each CPU Manager policy option the version knows.
    ``alpha_options``, ``beta_options``: whether options of these levels may be used (kube_features.go), and
    ``topology_alpha_options`` the same for the Topology Manager's.
    """

    pod_level_resources: bool
    pod_level_resource_managers: bool
    device_nodes_only: bool
    cpu_option_levels: Mapping[str, str]
    alpha_options: bool
    beta_options: bool
    topology_alpha_options: bool = False
    unmodelled: tuple[str, ...] = ()


def read_gates(settings: KubeletSettings) -> Gates:
    """The gates of a kubelet, from its version and the gates that its configuration sets."""
    matched = _VERSION.match(settings.version)
    minor = int(matched[1]) if matched else NEWEST_MINOR
    gates = settings.feature_gates
    pod_level = gates.get(POD_LEVEL_RESOURCES, minor >= 34)
    return Gates(
        pod_level_resources=pod_level,
        pod_level_resource_managers=pod_level and minor >= 36 and gates.get(POD_LEVEL_RESOURCE_MANAGERS, False),
        device_nodes_only=minor >= 36,
        cpu_option_levels=_cpu_option_levels(minor),
        alpha_options=gates.get(_ALPHA, False),
        beta_options=gates.get(_BETA, True),
        topology_alpha_options=gates.get(_TOPOLOGY_ALPHA, False),
        unmodelled=_unmodelled(settings.version, minor if matched else None),
    )


def _unmodelled(version: str, minor: int | None) -> tuple[str, ...]:
    if minor is None or not OLDEST_MINOR <= minor <= NEWEST_MINOR:
        return (f"kubelet version {version[:40] or 'unknown'}: the rules of {DEFAULT_VERSION} were replayed",)
    return ()


def _cpu_option_levels(minor: int) -> dict[str, str]:
    """Source: cpumanager/policy_options.go of each version; KEP-2625, KEP-2902, KEP-4540, KEP-4800."""
    return {
        FULL_PCPUS_ONLY: "stable" if minor >= 33 else "beta",
        DISTRIBUTE_ACROSS_NUMA: "beta" if minor >= 33 else "alpha",
        ALIGN_BY_SOCKET: "alpha",
        DISTRIBUTE_ACROSS_CORES: "alpha",
        STRICT_RESERVATION: "stable" if minor >= 35 else "beta" if minor >= 33 else "alpha",
        PREFER_UNCORE_CACHE: "stable" if minor >= 36 else "beta" if minor >= 34 else "alpha",
    }
