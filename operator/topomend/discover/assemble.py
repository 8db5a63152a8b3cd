"""Combine the sources into one discovery: the node's state, its conditions and the summary columns.

Owns which facts contradict each other. A condition names a contradiction, and nothing is guessed from it. What replay
says that a correct kubelet does on this machine is none. The node is Ready only if host, configuration and allocations
are all known and agree. Reading the sources is left to the modules
beside this one, writing the object to ``publish``.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from topomend.base.plain_text import plain
from topomend.discover.allocations import Allocations
from topomend.discover.host import Host
from topomend.discover.kubelet_config import KubeletConfig
from topomend.discover.kubelet_settings import FLAGS_UNSEEN
from topomend.discover.pod_names import PodName
from topomend.model.bitmask import CPUSet, format_id_list, mask_of
from topomend.model.condition import WOULD_NOT_START_AGAIN, Condition, Summary
from topomend.model.devices.claimed_device import ContainerClaim
from topomend.model.machine import HugePages, Machine, NUMANode
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node_state import NodeState, PodAllocation, free_cpus
from topomend.model.quantity import format_bytes
from topomend.replay.admission import machine_state_of, release, shared_pool
from topomend.replay.container_manager import ContainerManager, start, why_not_started
from topomend.replay.startup.state.restore import CPU_STATE, MEMORY_STATE, Restored, restore

MAX_MESSAGE = 1000
"""Letters that the column Status can show."""

MAX_NAMED = 6

CPUS_CHANGED = "the machine's CPUs have changed since the kubelet started: restart the kubelet"
"""It counts the CPUs that are online once, at its start (cpumanager/topology/topology.go:Discover)."""

HOST_DISCOVERED = "HostDiscovered"
"""The condition that says whether the machine could be read completely."""


@dataclass(frozen=True)
class Discovery:
    """What was discovered of a node. ``pods`` names all active pods, also those without exclusive resources.

    ``claims`` are the devices that containers have by resource claims.
    """

    state: NodeState
    summary: Summary
    conditions: tuple[Condition, ...]
    pods: tuple[PodName, ...] = ()
    claims: tuple[ContainerClaim, ...] = ()


@dataclass(frozen=True)
class _Findings:
    """What assembling found that leaves the node known.

    ``restart`` is what a restarted kubelet would make of its state files, ``predicted`` what looks impossible and is
    what this kubelet does.
    """

    restart: Restored
    predicted: tuple[str, ...]


def assemble(name: str, host: Host, config: KubeletConfig, allocations: Allocations) -> Discovery:
    """Combine the sources into a NodeState, with conditions that say how far it can be trusted. Never raises."""
    machine, restarted = _as_the_kubelet_started(host.machine, config.settings, allocations)
    settings, contradictions = _settings(config, machine, allocations)
    state = NodeState(
        name,
        machine,
        settings,
        allocations.devices,
        (*allocations.pods, *allocations.stale),
        allocations.memory,
        _pool(settings, allocations),
    )
    for pod in allocations.stale:
        state = release(state, pod.namespace, pod.name)
    if state.cpu_pool == shared_pool(replace(state, cpu_pool=None)):
        state = replace(state, cpu_pool=None)
    kubelet = start(machine, settings)
    if not config.reason and (why := why_not_started(machine, config.settings, kubelet)):
        contradictions = (*contradictions, f"a kubelet with this configuration would not start on this machine: {why}")
    predicted, torn = _twice_held(state, kubelet)
    if not allocations.reason and (impossible := "; ".join((*_impossible(state), *torn))):
        allocations = replace(allocations, reason="Contradicted", problem=impossible)
    restart = _restarted(host.machine, config, allocations)
    host = replace(host, remarks=(*host.remarks, *restarted))
    conditions = _conditions(host, config, contradictions, allocations, _Findings(restart, predicted))
    summary = _summary(state, kubelet, conditions[0].message)
    return Discovery(state, summary, conditions, allocations.listed, allocations.claims)


def _restarted(machine: Machine, config: KubeletConfig, allocations: Allocations) -> Restored:
    """What a kubelet that started now would say of the state files: with the machine and the configuration of now."""
    if config.reason:
        return Restored()
    files = allocations.files
    return restore(files.content, machine, config.after_restart or config.settings, files.folder)


def _pool(settings: KubeletSettings, allocations: Allocations) -> CPUSet | None:
    return allocations.cpu_pool if settings.cpu_manager_policy == "static" else None


# What contradicts what


def _as_the_kubelet_started(
    machine: Machine, settings: KubeletSettings, allocations: Allocations
) -> tuple[Machine, tuple[str, ...]]:
    """The machine with the memory that the kubelet counted at its start, by which it still decides; and remarks."""
    totals = allocations.memory_totals or _counted_memory(machine, settings, allocations)
    remarks = []

    def counted(node: NUMANode, resource: str, now: int) -> int:
        total = totals.get((node.id, resource), now)
        if total != now:
            remarks.append(
                f"NUMA node {node.id} has {format_bytes(now)} of {resource}, the kubelet counted {format_bytes(total)} "
                "at its start and still uses that"
            )
        return total

    nodes = tuple(
        replace(
            node,
            memory=counted(node, "memory", node.memory),
            hugepages=tuple(
                HugePages(pool.size, counted(node, pool.resource, pool.size * pool.count) // pool.size)
                for pool in node.hugepages
            ),
        )
        for node in machine.numa_nodes
    )
    return (replace(machine, numa_nodes=nodes), tuple(remarks)) if remarks else (machine, ())


def _counted_memory(
    machine: Machine, settings: KubeletSettings, allocations: Allocations
) -> Mapping[tuple[int, str], int]:
    """The totals that the kubelet counted, derived from its allocatable memory: bytes by NUMA node and resource.

    Allocatable memory is the total without huge pages and reservations. Resources with nothing allocatable are not
    listed (memorymanager/policy_static.go:getDefaultMachineState, GetAllocatableMemory).
    """
    allocatable = allocations.allocatable_memory or {}
    totals: dict[tuple[int, str], int] = {}
    if settings.memory_manager_policy != "Static" or not allocatable:
        return totals
    reserved = Counter[tuple[int, str]]()
    for reservation in settings.reserved_memory:
        reserved[reservation.numa_node, reservation.resource] += reservation.size
    for node in machine.numa_nodes:
        pages = {(node.id, pool.resource): allocatable.get((node.id, pool.resource), 0) for pool in node.hugepages}
        totals |= pages
        memory = (node.id, "memory")
        if memory in allocatable:
            totals[memory] = allocatable[memory] + reserved[memory] + sum(pages.values())
    return totals


def _settings(
    config: KubeletConfig, machine: Machine, allocations: Allocations
) -> tuple[KubeletSettings, tuple[str, ...]]:
    """The settings in force, and the contradictions between the configuration and the running kubelet."""
    settings = config.settings
    contradictions = [] if config.reason else list(_other_policies(settings, allocations))
    if not config.reason and settings.cpu_manager_policy == "none" and allocations.allocatable_cpus:
        # Under policy none the kubelet lists no allocatable CPUs (cpumanager/policy_none.go:GetAllocatableCPUs).
        contradictions.append(
            "the kubelet allocates exclusive CPUs, but cpuManagerPolicy is none; "
            "check that the configuration is the kubelet's own"
        )
    if settings.cpu_manager_policy != "static" or not allocations.allocatable_cpus:
        return settings, tuple(contradictions)
    unknown = allocations.allocatable_cpus & ~machine.cpus
    if unknown:
        contradictions.append(
            f"the kubelet can allocate CPUs {format_id_list(unknown)}, which this machine does not have; {CPUS_CHANGED}"
        )
    reserved = machine.cpus & ~allocations.allocatable_cpus
    if settings.reserved_cpus is not None and settings.reserved_cpus != reserved:
        contradictions.append(
            f"reservedSystemCPUs is {format_id_list(settings.reserved_cpus)}, "
            f"but the kubelet reserves {format_id_list(reserved)}; check that the configuration is the kubelet's own"
        )
    # Flags that cannot be seen may reserve another amount than the file.
    is_told = not (config.reason or unknown or FLAGS_UNSEEN in config.remarks)
    if is_told and settings.reserved_cpus is None:
        contradictions.extend(_other_amount(settings, reserved))
    return replace(settings, reserved_cpus=reserved), tuple(contradictions)


def _other_amount(settings: KubeletSettings, reserved: CPUSet) -> Iterator[str]:
    """The kubelet reserves exactly as many CPUs as its amounts say (cpumanager/policy_static.go:NewStaticPolicy).

    A CPU that has gone offline since may be one of them, and one that has come online is none, but looks like one.
    """
    amount = -(-settings.reserved_cpu_millis // 1000)
    if reserved.bit_count() != amount:
        yield (
            f"kubeReserved and systemReserved amount to {amount} CPUs, but the kubelet cannot allocate "
            f"{reserved.bit_count()} of this machine's ({format_id_list(reserved) or 'none'}); {CPUS_CHANGED}, "
            "or check that the configuration is its own"
        )


def _other_policies(settings: KubeletSettings, allocations: Allocations) -> Iterator[str]:
    configured = {CPU_STATE: settings.cpu_manager_policy, MEMORY_STATE: settings.memory_manager_policy}
    for file, running in (allocations.policies or {}).items():
        if running != configured[file]:
            yield (
                f"{file} is of policy {running[:40]}, but the configuration says {configured[file]}; "
                "check that it is the kubelet's own"
            )


def _impossible(state: NodeState) -> Iterator[str]:
    """Allocations that no kubelet makes on this machine: either the machine or the allocations were misread."""
    if unknown := (state.cpu_pool or 0) & ~state.machine.cpus:
        yield f"{CPU_STATE} has CPUs {format_id_list(unknown)}, which this machine does not have; {CPUS_CHANGED}"
    for pod in state.pods:
        if unknown := _cpus_of(pod) & ~state.machine.cpus:
            yield f"{_named(pod)} holds CPUs {format_id_list(unknown)}, which this machine does not have"
        blocks = (*pod.memory, *(block for container in pod.containers for block in container.memory))
        if unknown := reduce(or_, (block.numa_nodes for block in blocks), 0) & ~state.machine.numa_mask:
            numa_nodes = format_id_list(unknown)
            yield f"{_named(pod)} holds memory of NUMA nodes {numa_nodes}, which this machine does not have"
    if state.memory is not None and mask_of(node.numa_node for node in state.memory) != state.machine.numa_mask:
        listed = format_id_list(mask_of(node.numa_node for node in state.memory))
        numa_nodes = format_id_list(state.machine.numa_mask)
        yield f"{MEMORY_STATE} is of NUMA nodes {listed}, but this machine has {numa_nodes}"


def _twice_held(state: NodeState, kubelet: ContainerManager | str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """CPUs that have two uses at once: as remarks if this kubelet allocates so, otherwise as contradictions.

    A kubelet counts a core, socket or cache as free that has as many free CPUs as the average one, and then allocates
    all of its CPUs (cpumanager/cpu_assignment.go:takeFullCores). Where they are of different sizes, as on hybrid
    processors or with one thread of a core offline, some of these CPUs are reserved or another pod's.
    """
    found = tuple(_uses(state))
    if found and not isinstance(kubelet, str) and kubelet.cpu is not None and not kubelet.cpu.topology.is_even:
        why = "on this machine its kubelet counts cores as free that are not, because they are of different sizes"
        return (*found, why), ()
    return (), found


def _uses(state: NodeState) -> Iterator[str]:
    taken, reserved, pool = 0, state.kubelet.reserved_cpus or 0, state.cpu_pool or 0
    for pod in state.pods:
        cpus = _cpus_of(pod)
        if reserved_cpus := cpus & reserved:
            yield f"{_named(pod)} holds CPUs {format_id_list(reserved_cpus)}, which are reserved"
        if shared := cpus & taken:
            yield f"{_named(pod)} holds CPUs {format_id_list(shared)}, which another pod holds"
        if shared := cpus & pool:
            yield f"{_named(pod)} holds CPUs {format_id_list(shared)}, which are in the shared pool of {CPU_STATE}"
        if shared := _shared_in(pod):
            yield f"{_named(pod)} holds CPUs {format_id_list(shared)} in two containers"
        taken |= cpus


def _shared_in(pod: PodAllocation) -> CPUSet:
    """CPUs of two containers of a pod. Those of init containers are used again, and those of a pod are divided."""
    taken = shared = 0
    for container in () if pod.cpus else pod.containers:
        if not container.init:
            shared |= container.cpus & taken
            taken |= container.cpus
    return shared


def _cpus_of(pod: PodAllocation) -> CPUSet:
    return reduce(or_, (container.cpus for container in pod.containers), pod.cpus)


def _named(pod: PodAllocation) -> str:
    return f"pod {pod.namespace}/{pod.name}"


# Conditions


def _conditions(
    host: Host, config: KubeletConfig, contradictions: Sequence[str], allocations: Allocations, findings: _Findings
) -> tuple[Condition, ...]:
    refusals = list(map(str, findings.restart.refusals))
    parts = (
        _condition(
            HOST_DISCOVERED, "HostUnreadable" if host.problems else "", host.problems, "Discovered", host.remarks
        ),
        _condition(
            "KubeletConfigRead",
            config.reason or ("Contradicted" if contradictions else ""),
            (*config.problems, *contradictions),
            config.source,
            config.remarks,
        ),
        _condition(
            "AllocationsRead",
            allocations.reason,
            (allocations.problem, *refusals),
            WOULD_NOT_START_AGAIN if refusals else "PodResourcesOnly" if allocations.remark else "Read",
            [
                *refusals,
                *findings.predicted,
                *findings.restart.remarks,
                *(words for words in (allocations.remark, allocations.omitted) if words),
            ],
        ),
    )
    return (_ready(parts, [*refusals, *findings.predicted], allocations.remark), *parts)


def _ready(parts: Sequence[Condition], findings: Sequence[str], remark: str) -> Condition:
    missing = [part for part in parts if part.status != "True"]
    if missing:
        said = [part.message for part in missing]
        return Condition("Ready", "False", missing[0].reason, _sentence([*said, *_unsaid(findings, said)]))
    known = "host, configuration and allocations are known"
    reason = WOULD_NOT_START_AGAIN if parts[-1].reason == WOULD_NOT_START_AGAIN else "Ready"
    return Condition("Ready", "True", reason, _sentence([*findings, known, *([remark] if remark else ())]))


def _unsaid(findings: Sequence[str], said: Sequence[str]) -> list[str]:
    return [finding for finding in findings if not any(finding in message for message in said)]


def _condition(
    kind: str, reason: str, problems: Sequence[str], otherwise: str, remarks: Sequence[str] = ()
) -> Condition:
    if reason:
        return Condition(kind, "False", reason, _sentence(problems))
    return Condition(kind, "True", otherwise, _sentence(remarks))


def _sentence(parts: Sequence[str]) -> str:
    """One line for a column. Parts may quote a configuration, a kubelet or a device plugin."""
    named = "; ".join(parts[:MAX_NAMED])
    more = len(parts) - MAX_NAMED
    return plain(f"{named}; and {more} more" if more > 0 else named, MAX_MESSAGE)


# The figures behind the columns


def _summary(state: NodeState, kubelet: ContainerManager | str, status: str) -> Summary:
    devices = sum(device.healthy for device in state.devices)
    if isinstance(kubelet, str):
        return Summary(devices=devices, status=status)
    return Summary(_free_cpus(state, kubelet), _free_memory(state, kubelet), devices, status)


def _free_cpus(state: NodeState, kubelet: ContainerManager) -> str:
    """Free exclusive CPUs of each NUMA node, comma-separated; empty if the policy has no exclusive CPUs."""
    if kubelet.cpu is None:
        return ""
    free = free_cpus(state, kubelet.cpu.reserved)
    return ",".join(str(free.get(node.id, 0)) for node in state.machine.numa_nodes)


def _free_memory(state: NodeState, kubelet: ContainerManager) -> str:
    """Memory of each NUMA node that can still be pinned, in Gi, comma-separated; empty if the policy pins none."""
    if kubelet.memory is None:
        return ""
    free = machine_state_of(kubelet.memory, state).free("memory")
    return ",".join(f"{size / (1 << 30):.1f}".removesuffix(".0") for size in free.values())
