"""Rules that depend on the kubelet's version and feature gates, each with its source. No other module reads versions.

Replay models v1.30 to v1.37, and what ``NEXT`` has of v1.38. Within a minor version no patch release changes an
admission (v1.30.0 to v1.37.1 were compared), but for ``finds_any_running``. Each field of ``Gates`` names the function
in which versions differ.
``Gates.unmodelled`` names versions and gates that replay does not know.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from topomend.model.nodes.kubelet import DEFAULT_VERSION, KubeletSettings

OLDEST_MINOR, NEWEST_MINOR = 30, 37

NEXT = "v1.38.0-beta.0"
"""The newest version whose rules for pods were read. It is not released; its checks at the start were not read."""

POD_LEVEL_RESOURCES = "PodLevelResources"
POD_LEVEL_RESOURCE_MANAGERS = "PodLevelResourceManagers"
RESIZE = "InPlacePodVerticalScaling"
RESIZE_POD_LEVEL = "InPlacePodLevelResourcesVerticalScaling"
RESIZE_INIT_CONTAINERS = "InPlacePodVerticalScalingInitContainers"
RESIZE_EXCLUSIVE_CPUS = "InPlacePodVerticalScalingExclusiveCPUs"
RESIZE_EXCLUSIVE_MEMORY = "InPlacePodVerticalScalingExclusiveMemory"
CPU_POLICY_OPTIONS = "CPUManagerPolicyOptions"
TOPOLOGY_BETA_OPTIONS = "TopologyManagerPolicyBetaOptions"
TOPOLOGY_POLICY_OPTIONS = "TopologyManagerPolicyOptions"

FULL_PCPUS_ONLY = "full-pcpus-only"
DISTRIBUTE_ACROSS_NUMA = "distribute-cpus-across-numa"
ALIGN_BY_SOCKET = "align-by-socket"
DISTRIBUTE_ACROSS_CORES = "distribute-cpus-across-cores"
STRICT_RESERVATION = "strict-cpu-reservation"
PREFER_UNCORE_CACHE = "prefer-align-cpus-by-uncorecache"

PREFER_CLOSEST = "prefer-closest-numa-nodes"
MAX_NUMA_NODES = "max-allowable-numa-nodes"
DEFAULT_MAX_NUMA_NODES = 8
"""With so many NUMA nodes every kubelet starts: this option takes no smaller number."""

_VERSION = re.compile(r"v?1\.(\d{1,4})(?!\d)", re.ASCII)


class Gates(NamedTuple):
    """The rules in force for one kubelet. A tuple: of so many fields a dataclass takes 2 ms of every command's start.

    Policy options:

    - ``cpu_option_levels``, ``topology_option_levels``: the level of each option that the version has, ``alpha``,
      ``beta`` or ``stable`` (policy_options.go of cpumanager and topologymanager).
    - ``alpha_options``, ``beta_options``: options of these levels may be used (kube_features.go).
      ``topology_alpha_options`` and ``topology_beta_options`` are the Topology Manager's.
    - ``cpu_options``, ``topology_options``: any option may be used (cmd/kubelet/app/server.go:run). The first gate is
      locked since 1.33.
    - ``lower_case_levels``: the Topology Manager writes levels in lower case in its error, since 1.33
      (topologymanager/policy_options.go:CheckPolicyOptionAvailable).

    Pod-level resources:

    - ``pod_level_resources``: new in 1.32, on by default since 1.34 (kube_features.go: PodLevelResources).
    - ``pod_level_resource_managers``: new in 1.36, off by default (kube_features.go: PodLevelResourceManagers).
    - ``skips_pod_level_resources``: the CPU and Memory Managers skip such pods, since 1.34 if PodLevelResources is on,
      since 1.36 unless PodLevelResourceManagers is on (policy_static.go:Allocate of both).
    - ``blank_pod_resources_count``: an empty ``spec.resources`` determines the QoS class too, before 1.37 or without
      PodLevelResourcesFixKubeletQOSClass (qos.go:ComputePodQOS).

    Managers:

    - ``memory_manager``: gate MemoryManager, locked since 1.32. Without it no policy allocates memory.
    - ``has_best_effort_memory``: the error for Windows' policy BestEffort names the platform, since 1.32
      (memory_manager.go:NewManager).
    - ``refuses_mixed_groups``: a group takes no NUMA node that has blocks of its own, since 1.32
      (memorymanager/policy_static.go:isAffinityViolatingNUMAAllocations). Before, the state after the end of a pod with
      such blocks depends on the order of Go's maps; replay uses the order of the containers.
    - ``skips_blank_memory``: a container without a memory request is skipped, since 1.37
      (memorymanager/policy_static.go:Allocate).
    - ``discovers_cpus_always``: the CPU Manager reads the machine's CPUs under policy none too, since
      1.32 (cpu_manager.go:NewManager).
    - ``reports_no_free_cores``: the error says that no whole core is free, since 1.32. Before, it says that the request
      is not a multiple of the core size (cpumanager/policy_static.go:SMTAlignmentError.Error).
    - ``keeps_assigned_cpus``: CPUs that a container already has are not checked for whole cores again, since 1.37
      (cpumanager/policy_static.go:allocateForAdd).
    - ``cache_takes_started_cores``: an odd request may take one thread of a cache's core, since 1.34
      (cpu_assignment.go:takePartialUncore).
    - ``bounded_distribution``: the distributed search takes no more CPUs of a NUMA node than are free there and, with
      align-by-socket, prefers one socket, since 1.37 (cpu_assignment.go:takeByTopologyNUMADistributed).
    - ``device_nodes_only``: device hints consist only of NUMA nodes with a device of the resource, since 1.36
      (devicemanager/topology_hints.go:deviceNUMANodes).
    - ``finds_any_running``: a restarted kubelet counts a container as running if any instance of it runs, since 1.36.
      Before, it looks at one instance, by chance (devicemanager/manager.go:isContainerAlreadyRunning; late releases of
      1.35 do as 1.36).
    - ``qos_by_container``: the QoS class is computed for each container and resource first, since 1.37
      (qos.go:ComputePodQOS).

    State files:

    - ``checkpoints_of_pods``: the managers' files may hold what whole pods have, since 1.36
      (cpumanager/state/checkpoint.go and memorymanager/state/checkpoint.go).
    - ``checkpoints_in_data``: their content is in a text with a checksum of its own, since 1.37 (same files).
    - ``compares_memory_of_groups``: a restart compares what is reserved on a group of NUMA nodes, since 1.32;
      before, on each of them (memorymanager/policy_static.go:areMachineStatesEqual).
    - ``restores_claims``: resource claims are read again, since 1.34, if DynamicResourceAllocation is on
      (container_manager_linux.go:NewContainerManager).
    - ``restores_actuated``: what is in force for pods is read by the runtime's manager, since 1.35
      (kuberuntime/kuberuntime_manager.go:NewKubeGenericRuntimeManager).

    Pod-resources:

    - ``lists_ended_pods``: List names pods that have ended too, before 1.34 or without
      KubeletPodResourcesListUseActivePods (apis/podresources/server_v1.go:List).
    - ``keeps_last_admitted``: the managers purge what an ended pod held only when they admit another, if it is the pod
      that they admitted last, before 1.32 (cpumanager/cpu_manager.go:removeStaleState, pendingAdmissionPod).

    In-place resize (kube_features.go; up to 1.33 kubelet.go:canResizePod, then allocation/allocation_manager.go of that
    name, since 1.36 allocation/handlers.go:Admit):

    - ``resize``: on by default since 1.33, locked since 1.35. Replay does not model the alpha version before 1.33.
    - ``resize_pod_level``: ``spec.resources`` may be resized, since 1.35, on by default since 1.36.
    - ``resize_init_containers``: init containers that are not sidecars may be resized, since 1.36, locked since 1.37.
    - ``resize_exclusive_cpus``, ``resize_exclusive_memory``: the static policies allow Guaranteed pods to be resized;
      alpha. In 1.33 the CPU gate stands for both.
    - ``resize_judges_resource``: a static policy refuses only resizes of its own resource, since 1.34. Before, it
      refuses every resize.
    - ``resize_skips_managers``: CPU and Memory Manager make no hints for a resize and allocate nothing, since 1.37
      (policy_static.go:GetTopologyHints and Allocate of both, lifecycle.ResizeOperation).
    - ``resize_checks_node``: a request larger than the node is infeasible, before 1.36. Since then it is deferred.
    The fit check (lifecycle/predicate.go):

    - ``describes_predicates``: the message of a failed predicate has its description, since 1.31
      (PredicateFailureError.Error).
    - ``init_resources_may_be_missing``: init containers may request extended resources that the node does not have, as
      app containers may, since 1.31 (removeMissingExtendedResources).
    - ``extended_resources_by_claim``: extended resources that a claim provides do not count, since 1.36 (gate
      DRAExtendedResource, locked since 1.37).
    - ``checks_supplemental_groups``: the policy Strict needs a node that supports it, since 1.33
      (rejectPodAdmissionBasedOnSupplementalGroupsPolicy).
    - ``reads_node_again``: a pod that fails by node affinity alone is checked against a fresh copy of the node, since
      1.35 (predicateAdmitHandler.generalFilter).
    - ``counts_ports_of_sidecars``: since 1.34 (pkg/scheduler/util/utils.go:GetHostPorts; before
      nodeports/node_ports.go:getContainerPorts).
    - ``compares_taints``: tolerations may compare numbers, alpha since 1.35 (TaintTolerationComparisonOperators).

    The next release, each rule in ``NEXT``:

    - ``preferred_first``: the Topology Manager looks among preferred hints first
      (topologymanager/policy.go:mergePreferred).
    - ``compares_own_sizes``: a core or a socket counts as free if all CPUs of its own are free, not the machine's
      average number of them (cpu_assignment.go:isCoreFree, isSocketFree).
    - ``spreads_over_cores``: distribute-cpus-across-cores takes a thread of every core of a socket before a second one
      (cpu_assignment.go:sortAvailableCPUsSpread).
    - ``takes_whole_caches_first``: each wholly free L3 cache is taken, by its own size, before a part of any; one that
      spans NUMA nodes is looked at once (cpu_assignment.go:takeUncoreCache, sortAvailableUncoreCaches).
    - ``keeps_combinations``: no combination of NUMA nodes is overwritten by a later one
      (cpu_assignment.go:iterateCombinations).
    - ``remainder_in_groups``: NUMA nodes take a remainder only if their free CPUs suffice in whole groups, so that
      handing it out ends (cpu_assignment.go:takeByTopologyNUMADistributed).
    - ``spreads_like_hint``: distribute-cpus-across-numa uses at least as many NUMA nodes as the affinity has, if the
      request can be spread so far (cpu_assignment.go:rangeNUMANodesNeededToSatisfy).
    - ``returns_undivided``: a pod's set of CPUs that cannot be divided returns to the shared pool
      (cpumanager/policy_static.go:allocatePodForAdd).
    - ``restores_pods``: a pod that is admitted again keeps its pod-level CPUs and memory
      (cpumanager/policy_static.go:restorePodAllocation, memorymanager/policy_static.go:AllocatePod).
    - ``counts_memory_of_init``: a pod's memory includes resources that only init containers request
      (memorymanager/policy_static.go:getPodRequestedResources).
    - ``restores_by_container``: the hints of a pod that is admitted again are those of its first container with memory,
      compared with what that container requests (memorymanager/policy_static.go:GetPodTopologyHints).
    - ``resize_names_mode``: a refused resize names the resource's allocation mode, not the policy
      (allocation/handlers.go:Admit).

    - ``unmodelled``: remarks on versions and gates that replay does not model.
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
    reports_no_free_cores: bool
    keeps_assigned_cpus: bool
    cache_takes_started_cores: bool
    bounded_distribution: bool
    finds_any_running: bool
    qos_by_container: bool
    checkpoints_of_pods: bool
    checkpoints_in_data: bool
    compares_memory_of_groups: bool
    restores_claims: bool
    restores_actuated: bool
    lists_ended_pods: bool
    keeps_last_admitted: bool
    resize: bool
    resize_pod_level: bool
    resize_init_containers: bool
    resize_exclusive_cpus: bool
    resize_exclusive_memory: bool
    resize_judges_resource: bool
    resize_skips_managers: bool
    resize_checks_node: bool
    describes_predicates: bool
    init_resources_may_be_missing: bool
    extended_resources_by_claim: bool
    checks_supplemental_groups: bool
    reads_node_again: bool
    counts_ports_of_sidecars: bool
    compares_taints: bool
    preferred_first: bool
    compares_own_sizes: bool
    spreads_over_cores: bool
    takes_whole_caches_first: bool
    keeps_combinations: bool
    remainder_in_groups: bool
    spreads_like_hint: bool
    returns_undivided: bool
    restores_pods: bool
    counts_memory_of_init: bool
    restores_by_container: bool
    resize_names_mode: bool
    unmodelled: tuple[str, ...]


class _Known:
    """The rules of a kubelet with some settings, once they were read: a thousand nodes may share the settings."""

    gates: Gates | None = None


def read_gates(settings: KubeletSettings) -> Gates:
    """The rules of a kubelet, from its version and the feature gates of its configuration."""
    known = settings.kept(_Known)
    if known.gates is None:
        known.gates = _gates_of(settings)
    return known.gates


def _gates_of(settings: KubeletSettings) -> Gates:
    minor = minor_of(settings.version)
    is_next = is_newer(settings.version)
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
        topology_beta_options=gates.get(TOPOLOGY_BETA_OPTIONS, True),
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
        reports_no_free_cores=minor >= 32,
        keeps_assigned_cpus=minor >= 37,
        cache_takes_started_cores=minor >= 34,
        bounded_distribution=minor >= 37,
        finds_any_running=minor >= 36,
        qos_by_container=minor >= 37,
        checkpoints_of_pods=minor >= 36,
        checkpoints_in_data=minor >= 37,
        compares_memory_of_groups=minor >= 32,
        restores_claims=minor >= 34 and gates.get("DynamicResourceAllocation", True),
        restores_actuated=minor >= 35,
        lists_ended_pods=minor < 34 or not gates.get("KubeletPodResourcesListUseActivePods", True),
        keeps_last_admitted=minor < 32,
        resize=resize,
        resize_pod_level=pod_level and minor >= 35 and gates.get(RESIZE_POD_LEVEL, minor >= 36),
        resize_init_containers=minor >= 37 or (minor >= 36 and gates.get(RESIZE_INIT_CONTAINERS, True)),
        resize_exclusive_cpus=resize and gates.get(RESIZE_EXCLUSIVE_CPUS, False),
        resize_exclusive_memory=resize and gates.get(exclusive_memory, False),
        resize_judges_resource=minor >= 34,
        resize_skips_managers=minor >= 37,
        resize_checks_node=minor < 36,
        describes_predicates=minor >= 31,
        init_resources_may_be_missing=minor >= 31,
        extended_resources_by_claim=minor >= 37 or (minor >= 36 and gates.get("DRAExtendedResource", True)),
        checks_supplemental_groups=minor >= 33,
        reads_node_again=minor >= 35,
        counts_ports_of_sidecars=minor >= 34,
        compares_taints=minor >= 35 and gates.get("TaintTolerationComparisonOperators", False),
        preferred_first=is_next,
        compares_own_sizes=is_next,
        spreads_over_cores=is_next,
        takes_whole_caches_first=is_next,
        keeps_combinations=is_next,
        remainder_in_groups=is_next,
        spreads_like_hint=is_next,
        returns_undivided=is_next,
        restores_pods=is_next,
        counts_memory_of_init=is_next,
        restores_by_container=is_next,
        resize_names_mode=is_next,
        unmodelled=_unmodelled(settings),
    )


def _minor_in(version: str) -> int | None:
    matched = _VERSION.match(version)
    return int(matched[1]) if matched else None


def minor_of(version: str) -> int:
    """The minor version whose rules are replayed for a kubelet: the nearest one that replay models."""
    minor_in_settings = _minor_in(version)
    if minor_in_settings is None:
        minor_in_settings = _minor_in(DEFAULT_VERSION) or NEWEST_MINOR
    return min(max(minor_in_settings, OLDEST_MINOR), NEWEST_MINOR)


def is_newer(version: str) -> bool:
    """Whether the kubelet is newer than any release that replay models, and so has the rules of ``NEXT``."""
    return (_minor_in(version) or 0) > NEWEST_MINOR


def not_released(version: str) -> str:
    """The remark on a kubelet that ``is_newer``."""
    return (
        f"kubelet version {version[:40]}: the rules of v1.{NEWEST_MINOR} were replayed, "
        f"and those for pods of {NEXT}, which is not released"
    )


def _unmodelled(settings: KubeletSettings) -> tuple[str, ...]:
    minor_in_settings, minor = _minor_in(settings.version), minor_of(settings.version)
    remarks = []
    if is_newer(settings.version):
        remarks.append(not_released(settings.version))
    elif minor_in_settings != minor:
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
"""The minor version since which each gate cannot be turned off (kube_features.go: LockToDefault)."""


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
