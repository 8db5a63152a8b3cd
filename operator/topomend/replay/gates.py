"""Rules that depend on the kubelet's version and feature gates, each with its source. Nothing else reads versions.

Replay follows v1.30 to v1.37; within a minor version no patch release changes an admission (v1.30.0 to v1.37.1 were
compared). Each field below names the function in which versions differ. ``Gates.unmodelled`` says where a version or a
gate is not known.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from topomend.model.kubelet import DEFAULT_VERSION, KubeletSettings

OLDEST_MINOR, NEWEST_MINOR = 30, 37

POD_LEVEL_RESOURCES = "PodLevelResources"
POD_LEVEL_RESOURCE_MANAGERS = "PodLevelResourceManagers"
RESIZE = "InPlacePodVerticalScaling"
RESIZE_POD_LEVEL = "InPlacePodLevelResourcesVerticalScaling"
RESIZE_INIT_CONTAINERS = "InPlacePodVerticalScalingInitContainers"
RESIZE_EXCLUSIVE_CPUS = "InPlacePodVerticalScalingExclusiveCPUs"
RESIZE_EXCLUSIVE_MEMORY = "InPlacePodVerticalScalingExclusiveMemory"
CPU_POLICY_OPTIONS = "CPUManagerPolicyOptions"
TOPOLOGY_POLICY_OPTIONS = "TopologyManagerPolicyOptions"

FULL_PCPUS_ONLY = "full-pcpus-only"
DISTRIBUTE_ACROSS_NUMA = "distribute-cpus-across-numa"
ALIGN_BY_SOCKET = "align-by-socket"
DISTRIBUTE_ACROSS_CORES = "distribute-cpus-across-cores"
STRICT_RESERVATION = "strict-cpu-reservation"
PREFER_UNCORE_CACHE = "prefer-align-cpus-by-uncorecache"

PREFER_CLOSEST = "prefer-closest-numa-nodes"
MAX_NUMA_NODES = "max-allowable-numa-nodes"

_VERSION = re.compile(r"v?1\.(\d{1,4})(?!\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Gates:
    """What is in force.

    Options, ``alpha``, ``beta`` or ``stable`` for each that the version knows:

    - ``cpu_option_levels`` (cpumanager/policy_options.go), ``topology_option_levels`` (topologymanager's).
    - ``alpha_options``, ``beta_options``: whether options of these levels may be used (kube_features.go), and
      ``topology_alpha_options``, ``topology_beta_options`` the same for the Topology Manager's.
    - ``cpu_options``, ``topology_options``: whether there may be any (cmd/kubelet/app/server.go:run); the first gate is
      locked since 1.33.
    - ``lower_case_levels``: how the Topology Manager words the refusal of a level, since 1.33
      (topologymanager/policy_options.go:CheckPolicyOptionAvailable).

    Pod-level resources:

    - ``pod_level_resources``: new in 1.32, on by default since 1.34 (kube_features.go: PodLevelResources).
    - ``pod_level_resource_managers``: new in 1.36, off by default.
    - ``skips_pod_level_resources``: the CPU and Memory Managers leave such pods alone, since 1.34 where the gate of the
      resources is on, since 1.36 unless the managers' gate is (policy_static.go:Allocate of both).
    - ``blank_pod_resources_count``: ``spec.resources`` decides the quality of service even where it names nothing,
      before 1.37 or without PodLevelResourcesFixKubeletQOSClass (qos.go:ComputePodQOS).

    Managers:

    - ``memory_manager``: gate MemoryManager, locked since 1.32; without it no policy pins memory.
    - ``has_best_effort_memory``: Windows' policy is known, if only to be refused, since 1.32
      (memory_manager.go:NewManager).
    - ``refuses_mixed_groups``: a group of NUMA nodes takes none that has blocks of its own, since 1.32
      (memorymanager/policy_static.go:isAffinityViolatingNUMAAllocations). Before, what is left of such a pod's memory
      once it is released hangs on the order of Go's maps; replay takes the order of the containers.
    - ``skips_blank_memory``: a container that asks for no memory is left alone, since 1.37
      (memorymanager/policy_static.go:Allocate).
    - ``discovers_cpus_always``: the CPU Manager reads the machine's CPUs under policy none too, since
      1.32 (cpu_manager.go:NewManager).
    - ``tells_no_free_cores``: that no whole core is free is told as such, since 1.32; before, as a request that is no
      multiple (cpumanager/policy_static.go:SMTAlignmentError.Error).
    - ``keeps_held_cpus``: CPUs that a container holds are not checked for whole cores again, since 1.37
      (cpumanager/policy_static.go:allocateForAdd).
    - ``cache_takes_started_cores``: an odd request may take a cache's core in part, since 1.34
      (cpu_assignment.go:takePartialUncore).
    - ``bounded_distribution``: the distributed search gives no NUMA node more than it has and, with align-by-socket,
      prefers to stay on one socket, since 1.37 (cpu_assignment.go:takeByTopologyNUMADistributed).
    - ``device_nodes_only``: device hints name only NUMA nodes that host a device of the resource, since 1.36
      (devicemanager/topology_hints.go:deviceNUMANodes).
    - ``qos_by_container``: each container and resource is judged by itself, since 1.37 (qos.go:ComputePodQOS).

    In-place resize (kube_features.go; up to 1.33 kubelet.go:canResizePod, then allocation/allocation_manager.go of that
    name, since 1.36 allocation/handlers.go:Admit):

    - ``resize``: on by default since 1.33, locked since 1.35; what it is before, in alpha, is not replayed.
    - ``resize_pod_level``: ``spec.resources`` may be resized, since 1.35, on by default since 1.36.
    - ``resize_init_containers``: so may init containers that are no sidecars, since 1.36, locked since 1.37.
    - ``resize_exclusive_cpus``, ``resize_exclusive_memory``: the static policies let Guaranteed pods be resized; alpha.
      In 1.33 the gate of the CPUs stands for both.
    - ``resize_judges_resource``: a static policy minds only its own resource, since 1.34; before, any resize.
    - ``resize_checks_node``: what is too large for the node is infeasible, before 1.36; since then, deferred.
    """

    pod_level_resources: bool
    pod_level_resource_managers: bool
    device_nodes_only: bool
    cpu_option_levels: Mapping[str, str]
    alpha_options: bool
    beta_options: bool
    topology_alpha_options: bool
    topology_beta_options: bool
    topology_option_levels: Mapping[str, str]
    cpu_options: bool
    topology_options: bool
    lower_case_levels: bool
    skips_pod_level_resources: bool
    blank_pod_resources_count: bool
    memory_manager: bool
    has_best_effort_memory: bool
    refuses_mixed_groups: bool
    skips_blank_memory: bool
    discovers_cpus_always: bool
    tells_no_free_cores: bool
    keeps_held_cpus: bool
    cache_takes_started_cores: bool
    bounded_distribution: bool
    qos_by_container: bool
    resize: bool
    resize_pod_level: bool
    resize_init_containers: bool
    resize_exclusive_cpus: bool
    resize_exclusive_memory: bool
    resize_judges_resource: bool
    resize_checks_node: bool
    unmodelled: tuple[str, ...]


def read_gates(settings: KubeletSettings) -> Gates:
    """The gates of a kubelet, from its version and the gates that its configuration sets."""
    minor = _minor(settings.version)
    gates = settings.feature_gates
    pod_level = minor >= 32 and gates.get(POD_LEVEL_RESOURCES, minor >= 34)
    managers = pod_level and minor >= 36 and gates.get(POD_LEVEL_RESOURCE_MANAGERS, False)
    resize = minor >= 35 or (minor >= 33 and gates.get(RESIZE, True))
    exclusive_memory = RESIZE_EXCLUSIVE_MEMORY if minor >= 34 else RESIZE_EXCLUSIVE_CPUS
    return Gates(
        pod_level_resources=pod_level,
        pod_level_resource_managers=managers,
        device_nodes_only=minor >= 36,
        cpu_option_levels=_cpu_option_levels(minor),
        alpha_options=gates.get("CPUManagerPolicyAlphaOptions", False),
        beta_options=gates.get("CPUManagerPolicyBetaOptions", True),
        topology_alpha_options=gates.get("TopologyManagerPolicyAlphaOptions", False),
        topology_beta_options=gates.get("TopologyManagerPolicyBetaOptions", True),
        topology_option_levels=_topology_option_levels(minor),
        cpu_options=minor >= 33 or gates.get(CPU_POLICY_OPTIONS, True),
        topology_options=gates.get(TOPOLOGY_POLICY_OPTIONS, True),
        lower_case_levels=minor >= 33,
        skips_pod_level_resources=not managers if minor >= 36 else minor >= 34 and pod_level,
        blank_pod_resources_count=minor < 37 or not gates.get("PodLevelResourcesFixKubeletQOSClass", True),
        memory_manager=minor >= 32 or gates.get("MemoryManager", True),
        has_best_effort_memory=minor >= 32,
        refuses_mixed_groups=minor >= 32,
        skips_blank_memory=minor >= 37,
        discovers_cpus_always=minor >= 32,
        tells_no_free_cores=minor >= 32,
        keeps_held_cpus=minor >= 37,
        cache_takes_started_cores=minor >= 34,
        bounded_distribution=minor >= 37,
        qos_by_container=minor >= 37,
        resize=resize,
        resize_pod_level=pod_level and minor >= 35 and gates.get(RESIZE_POD_LEVEL, minor >= 36),
        resize_init_containers=minor >= 37 or (minor >= 36 and gates.get(RESIZE_INIT_CONTAINERS, True)),
        resize_exclusive_cpus=resize and gates.get(RESIZE_EXCLUSIVE_CPUS, False),
        resize_exclusive_memory=resize and gates.get(exclusive_memory, False),
        resize_judges_resource=minor >= 34,
        resize_checks_node=minor < 36,
        unmodelled=_unmodelled(settings),
    )


def _told_minor(version: str) -> int | None:
    matched = _VERSION.match(version)
    return int(matched[1]) if matched else None


def _minor(version: str) -> int:
    """The version whose rules are replayed: the nearest that is known."""
    told = _told_minor(version)
    if told is None:
        told = _told_minor(DEFAULT_VERSION) or NEWEST_MINOR
    return min(max(told, OLDEST_MINOR), NEWEST_MINOR)


def _unmodelled(settings: KubeletSettings) -> tuple[str, ...]:
    told, minor = _told_minor(settings.version), _minor(settings.version)
    remarks = []
    if told != minor:
        version = settings.version[:40] or "unknown"
        remarks.append(f"kubelet version {version}: the rules of v1.{minor} were replayed")
    remarks += [
        f"feature gate {name}=false with kubelet v1.{minor}"
        for name, locked_since in _LOCKED.items()
        if not settings.feature_gates.get(name, True) and (locked_since <= minor or name == _SIDECARS)
    ]
    return tuple(remarks)


_SIDECARS = "SidecarContainers"

_LOCKED = {"MemoryManager": 32, CPU_POLICY_OPTIONS: 33, _SIDECARS: 33}
"""Gates that cannot be off any more, from which minor version on (kube_features.go: LockToDefault)."""


def _cpu_option_levels(minor: int) -> dict[str, str]:
    """Source: cpumanager/policy_options.go of each version; KEP-2625, KEP-2902, KEP-4540, KEP-4800."""
    levels = {
        FULL_PCPUS_ONLY: "stable" if minor >= 33 else "beta",
        DISTRIBUTE_ACROSS_NUMA: "beta" if minor >= 33 else "alpha",
        ALIGN_BY_SOCKET: "alpha",
    }
    if minor >= 31:
        levels[DISTRIBUTE_ACROSS_CORES] = "alpha"
    if minor >= 32:
        levels[STRICT_RESERVATION] = "stable" if minor >= 35 else "beta" if minor >= 33 else "alpha"
        levels[PREFER_UNCORE_CACHE] = "stable" if minor >= 36 else "beta" if minor >= 34 else "alpha"
    return levels


def _topology_option_levels(minor: int) -> dict[str, str]:
    """Source: topologymanager/policy_options.go of each version; KEP-3545, KEP-4622."""
    levels = {PREFER_CLOSEST: "stable" if minor >= 32 else "beta"}
    if minor >= 31:
        levels[MAX_NUMA_NODES] = "stable" if minor >= 35 else "beta"
    return levels
