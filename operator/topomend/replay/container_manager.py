"""Start a kubelet's managers: options, topology, reserved CPUs and memory, or the reason why it does not start.

Source: pkg/kubelet/cm/container_manager_linux.go:NewContainerManager, topologymanager/topology_manager.go:NewManager,
cpumanager/cpu_manager.go:NewManager, memorymanager/memory_manager.go:NewManager.
"""

from dataclasses import dataclass, replace

from topomend.base.bounded_dict import BoundedDict
from topomend.model.bitmask import format_id_list
from topomend.model.machine import Machine
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.replay import gates as gate
from topomend.replay.cpu import static as cpu_static
from topomend.replay.cpu.topology import discover
from topomend.replay.gates import Gates, read_gates
from topomend.replay.memory import static as memory_static
from topomend.replay.options import InvalidOption, go_map
from topomend.replay.topology import policy_names
from topomend.replay.topology.distances import has_gaps
from topomend.replay.topology.merge import NUMAInfo
from topomend.replay.topology.options import TopologyOptions, read_options, remark


@dataclass(frozen=True)
class ContainerManager:
    """The part of a kubelet that does not change while it runs.

    ``cpu`` and ``memory`` are None under policies that allocate nothing exclusively. ``strategy`` is that of
    the Topology Manager's options. ``unmodelled`` are remarks on what replay does not model.
    """

    gates: Gates
    numa: NUMAInfo
    cpu: cpu_static.StaticPolicy | None
    memory: memory_static.StaticPolicy | None
    strategy: str
    unmodelled: tuple[str, ...]


def start(machine: Machine, settings: KubeletSettings) -> ContainerManager | str:
    """Start the kubelet with these settings on this machine. Returns the kubelet's error if it does not start.

    The machine keeps it, so that nodes that share a machine and have equal settings share it.
    """
    kubelets = machine.kept(_Started)
    started = kubelets.get(settings.digest)
    if started is None:
        started = kubelets[settings.digest] = _start(machine, settings)
    return started


def why_not_started(machine: Machine, configured: KubeletSettings, kubelet: ContainerManager | str) -> str:
    """Why a kubelet with these settings would not start, in its own words; empty if it would.

    It resolves reserved CPUs under every policy, before it starts its managers (server.go:getReservedCPUs).
    """
    reserved = configured.reserved_cpus or 0
    if machine.cpus and reserved & ~machine.cpus:
        online = format_id_list(machine.cpus)
        return f"reserved-cpus: {format_id_list(reserved)} is not a subset of online-cpus: {online}"
    return kubelet if isinstance(kubelet, str) else ""


MAX_SETTINGS = 16
"""For how many settings a machine's kubelet is cached: its own, and those that explanations try."""


class _Started(BoundedDict[bytes, ContainerManager | str]):
    """The kubelets of one machine, by the digest of their settings."""

    def __init__(self) -> None:
        super().__init__(MAX_SETTINGS)


def _start(machine: Machine, settings: KubeletSettings) -> ContainerManager | str:
    gates = read_gates(settings)
    try:
        _check_option_gates(settings, gates)
        options = _topology_options(settings, gates)
        numa = replace(_topology_manager(machine, settings, options), preferred_first=gates.preferred_first)
        cpu = _cpu_manager(machine, settings, gates)
        memory = _memory_manager(machine, settings, gates)
    except InvalidOption as error:
        return str(error)
    unmodelled = (
        *gates.unmodelled,
        *_over_reserved(memory),
        *_unread_distances(numa, settings),
        *map(remark, options.proposed),
    )
    return ContainerManager(gates, numa, cpu, memory, options.strategy, unmodelled)


def _check_option_gates(settings: KubeletSettings, gates: Gates) -> None:
    """Source: cmd/kubelet/app/server.go:run, before any manager is built."""
    options = settings.cpu_manager_policy_options
    if options and not gates.cpu_options:
        raise InvalidOption(
            f"CPU Manager policy options {go_map(options)} require feature gates "
            f'"CPUManager", "{gate.CPU_POLICY_OPTIONS}" enabled'
        )
    options = settings.topology_manager_policy_options
    if options and not gates.topology_options:
        raise InvalidOption(
            f"topology manager policy options {go_map(options)} require feature gates "
            f'"{gate.TOPOLOGY_POLICY_OPTIONS}" enabled'
        )


def _topology_options(settings: KubeletSettings, gates: Gates) -> TopologyOptions:
    """Source: topology_manager.go:NewManager, which ignores all options under policy none."""
    if settings.topology_manager_policy == policy_names.NONE:
        return TopologyOptions()
    return read_options(settings.topology_manager_policy_options, gates)


def _topology_manager(machine: Machine, settings: KubeletSettings, options: TopologyOptions) -> NUMAInfo:
    """Source: topology_manager.go:NewManager, which checks nothing under policy none."""
    policy = settings.topology_manager_policy
    if policy == policy_names.NONE:
        return NUMAInfo(machine.numa_mask)
    if options.prefer_closest and any(not node.distances for node in machine.numa_nodes):
        raise InvalidOption("cannot discover NUMA topology: error getting NUMA distances from cadvisor")
    if len(machine.numa_nodes) > options.max_numa_nodes:
        raise InvalidOption(f"unsupported on machines with more than {options.max_numa_nodes} NUMA Nodes")
    if policy not in policy_names.POLICIES:
        raise InvalidOption(f'unknown policy: "{policy}"')
    if settings.topology_manager_scope not in ("container", "pod"):
        raise InvalidOption(f'unknown scope: "{settings.topology_manager_scope}"')
    distances = {node.id: node.distances for node in machine.numa_nodes} if options.prefer_closest else None
    return NUMAInfo(machine.numa_mask, distances)


def _cpu_manager(machine: Machine, settings: KubeletSettings, gates: Gates) -> cpu_static.StaticPolicy | None:
    policy, options = settings.cpu_manager_policy, settings.cpu_manager_policy_options
    topology = discover(machine)
    if isinstance(topology, str) and (policy == "static" or gates.discovers_cpus_always):
        raise InvalidOption(topology)
    if policy == "none":
        if options:
            raise InvalidOption(f"new none policy error: None policy: received unsupported options={go_map(options)}")
        return None
    if policy != "static" or isinstance(topology, str):
        raise InvalidOption(f'unknown policy: "{policy}"')
    return cpu_static.start(settings, topology, settings.topology_manager_policy, gates)


def _memory_manager(machine: Machine, settings: KubeletSettings, gates: Gates) -> memory_static.StaticPolicy | None:
    if not gates.memory_manager or not memory_static.check_policy(settings.memory_manager_policy, gates):
        return None
    return memory_static.start(settings, machine, gates)


def _over_reserved(memory: memory_static.StaticPolicy | None) -> tuple[str, ...]:
    if memory is None or not memory.over_reserved:
        return ()
    return (f"more memory is reserved than NUMA nodes {format_id_list(memory.over_reserved)} have",)


def _unread_distances(numa: NUMAInfo, settings: KubeletSettings) -> tuple[str, ...]:
    """Warn that the kubelet may panic: which masks it compares depends on the random order of Go's maps."""
    if numa.distances is None or settings.topology_manager_policy == policy_names.SINGLE_NUMA_NODE:
        return ()
    if not has_gaps(numa.distances):
        return ()
    return ("prefer-closest-numa-nodes where NUMA ids have gaps: the kubelet may panic",)
