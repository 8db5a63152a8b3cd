"""The parts of a discovery put together: the node's state, its conditions, and the figures behind the columns.

Owns what fits together and what does not. A contradiction is named in a condition and nothing is guessed from it; the
node is Ready only when host, configuration and allocations are all known and agree.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_
from typing import Any

from topomend.discover.allocations import Allocations, PodName
from topomend.discover.kubelet_config import KubeletConfig
from topomend.discover.state_files import CPU_STATE, MEMORY_STATE
from topomend.model.bitmask import CPUSet, format_id_list, mask_of
from topomend.model.kubelet import KubeletSettings
from topomend.model.machine import HugePages, Machine, NUMANode
from topomend.model.node_state import NodeState, free_cpus
from topomend.model.quantity import format_bytes
from topomend.replay.admission import book_of, release, shared_pool
from topomend.replay.container_manager import ContainerManager, start
from topomend.wire.bounded import bounded
from topomend.wire.node_topology import Condition, Summary, node_topology, status_of

MAX_MESSAGE = 1000
"""What the column Status can hold."""

MAX_NAMED = 6


@dataclass(frozen=True)
class Host:
    """The machine, what is wrong with the reading of it, and what is only worth saying."""

    machine: Machine
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Discovery:
    """Everything that is published of a node. ``pods`` names all that are active, whether they hold anything or not."""

    state: NodeState
    summary: Summary
    conditions: tuple[Condition, ...]
    pods: tuple[PodName, ...] = ()

    @cached_property
    def status(self) -> dict[str, Any]:
        """The object's status, conditions without times: one and the same object for one discovery."""
        return status_of(self.state, self.summary, self.conditions)

    @cached_property
    def published(self) -> Mapping[str, Any]:
        """The status as it is published: the same, or what there is room for."""
        return bounded(self.status)

    def node_topology(self) -> dict[str, Any]:
        """The NodeTopology object."""
        return node_topology(self.state.name, self.status)


def assemble(name: str, host: Host, config: KubeletConfig, held: Allocations) -> Discovery:
    """One NodeState out of what each source says, and conditions that say how far it can be trusted."""
    machine, restarted = _as_the_kubelet_started(host.machine, config.settings, held)
    settings, contradictions = _settings(config, machine, held)
    state = NodeState(
        name, machine, settings, held.devices, (*held.pods, *held.stale), held.memory, _pool(settings, held)
    )
    for pod in held.stale:
        state = release(state, pod.namespace, pod.name)
    if state.cpu_pool == shared_pool(replace(state, cpu_pool=None)):
        state = replace(state, cpu_pool=None)
    kubelet = start(machine, settings)
    if not config.reason and (why := _why_not_started(machine, config.settings, kubelet)):
        contradictions = (*contradictions, f"a kubelet with this configuration would not start on this machine: {why}")
    if not held.reason and (impossible := "; ".join(_impossible(state))):
        held = replace(held, reason="Contradicted", problem=impossible)
    conditions = _conditions(replace(host, remarks=(*host.remarks, *restarted)), config, contradictions, held)
    return Discovery(state, _summary(state, kubelet, conditions[0].message), conditions, held.listed)


def _pool(settings: KubeletSettings, held: Allocations) -> CPUSet | None:
    return held.cpu_pool if settings.cpu_manager_policy == "static" else None


# What contradicts what


def _as_the_kubelet_started(
    machine: Machine, settings: KubeletSettings, held: Allocations
) -> tuple[Machine, tuple[str, ...]]:
    """The machine with the memory that the kubelet counted when it started and goes on deciding with."""
    totals = held.memory_totals or _counted_memory(machine, settings, held)
    remarks = []

    def counted(node: NUMANode, resource: str, now: int) -> int:
        total = totals.get((node.id, resource), now)
        if total != now:
            remarks.append(
                f"NUMA node {node.id} has {format_bytes(now)} of {resource}, the kubelet counted {format_bytes(total)} "
                "when it started and decides by that"
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


def _counted_memory(machine: Machine, settings: KubeletSettings, held: Allocations) -> Mapping[tuple[int, str], int]:
    """What the kubelet counted, as far as it follows from what it can give; by NUMA node and resource, in bytes.

    Memory that can be given is what was there without huge pages and without what is reserved; what cannot be given at
    all is not listed (memorymanager/policy_static.go:getDefaultMachineState, GetAllocatableMemory).
    """
    allocatable = held.allocatable_memory or {}
    totals: dict[tuple[int, str], int] = {}
    if settings.memory_manager_policy != "Static" or not allocatable:
        return totals
    reserved = Counter[tuple[int, str]]()
    for one in settings.reserved_memory:
        reserved[one.numa_node, one.resource] += one.size
    for node in machine.numa_nodes:
        pages = {(node.id, pool.resource): allocatable.get((node.id, pool.resource), 0) for pool in node.hugepages}
        totals |= pages
        memory = (node.id, "memory")
        if memory in allocatable:
            totals[memory] = allocatable[memory] + reserved[memory] + sum(pages.values())
    return totals


def _settings(config: KubeletConfig, machine: Machine, held: Allocations) -> tuple[KubeletSettings, tuple[str, ...]]:
    """The settings in force, and where the running kubelet shows others than the configuration says."""
    settings = config.settings
    contradictions = [] if config.reason else list(_other_policies(settings, held))
    if not config.reason and settings.cpu_manager_policy == "none" and held.allocatable_cpus:
        # Under that policy it would name none (cpumanager/policy_none.go:GetAllocatableCPUs).
        contradictions.append(
            "the kubelet gives out CPUs exclusively, cpuManagerPolicy is none: is it the kubelet's own?"
        )
    if settings.cpu_manager_policy != "static" or not held.allocatable_cpus:
        return settings, tuple(contradictions)
    unknown = held.allocatable_cpus & ~machine.cpus
    if unknown:
        contradictions.append(f"the kubelet can give CPUs {format_id_list(unknown)}, which this machine does not have")
    reserved = machine.cpus & ~held.allocatable_cpus
    if settings.reserved_cpus is not None and settings.reserved_cpus != reserved:
        contradictions.append(
            f"reservedSystemCPUs is {format_id_list(settings.reserved_cpus)}, "
            f"the kubelet keeps {format_id_list(reserved)}: is the configuration the kubelet's own?"
        )
    return replace(settings, reserved_cpus=reserved), tuple(contradictions)


def _other_policies(settings: KubeletSettings, held: Allocations) -> Iterator[str]:
    configured = {CPU_STATE: settings.cpu_manager_policy, MEMORY_STATE: settings.memory_manager_policy}
    for file, running in (held.policies or {}).items():
        if running != configured[file]:
            yield (
                f"{file} is of policy {running[:40]}, the configuration says {configured[file]}: "
                "is it the kubelet's own?"
            )


def _why_not_started(machine: Machine, configured: KubeletSettings, kubelet: ContainerManager | str) -> str:
    """Empty where one would start. CPUs to reserve are looked up under every policy (server.go:getReservedCPUs)."""
    if isinstance(kubelet, str):
        return kubelet
    unknown = (configured.reserved_cpus or 0) & ~machine.cpus
    return f"reservedSystemCPUs names CPUs {format_id_list(unknown)}, which are not there" if unknown else ""


def _impossible(state: NodeState) -> Iterator[str]:
    """What no kubelet gives out on this machine: the reading of the one or of the other is wrong."""
    seen, reserved = 0, state.kubelet.reserved_cpus or 0
    for pod in state.pods:
        name = f"pod {pod.namespace}/{pod.name}"
        cpus = reduce(or_, (container.cpus for container in pod.containers), pod.cpus)
        if unknown := cpus & ~state.machine.cpus:
            yield f"{name} holds CPUs {format_id_list(unknown)}, which this machine does not have"
        if kept := cpus & reserved:
            yield f"{name} holds CPUs {format_id_list(kept)}, which are reserved"
        if twice := cpus & seen:
            yield f"{name} holds CPUs {format_id_list(twice)}, which another pod holds"
        seen |= cpus
        blocks = (*pod.memory, *(block for container in pod.containers for block in container.memory))
        if unknown := reduce(or_, (block.numa_nodes for block in blocks), 0) & ~state.machine.numa_mask:
            yield f"{name} holds memory of NUMA nodes {format_id_list(unknown)}, which this machine does not have"
    if state.memory is not None and mask_of(each.numa_node for each in state.memory) != state.machine.numa_mask:
        known = format_id_list(mask_of(each.numa_node for each in state.memory))
        yield f"{MEMORY_STATE} is of NUMA nodes {known}, this machine has {format_id_list(state.machine.numa_mask)}"


# Conditions


def _conditions(
    host: Host, config: KubeletConfig, contradictions: Sequence[str], held: Allocations
) -> tuple[Condition, ...]:
    parts = (
        _condition(
            "HostDiscovered", "HostUnreadable" if host.problems else "", host.problems, "Discovered", host.remarks
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
            held.reason,
            (held.problem,),
            "PodResourcesOnly" if held.remark else "Read",
            (held.remark,) if held.remark else (),
        ),
    )
    missing = [part for part in parts if part.status != "True"]
    reason = missing[0].reason if missing else "Ready"
    known = ("host, configuration and allocations are known", *((held.remark,) if held.remark else ()))
    message = _sentence([part.message for part in missing] or known)
    return (Condition("Ready", "False" if missing else "True", reason, message), *parts)


def _condition(
    kind: str, reason: str, problems: Sequence[str], otherwise: str, remarks: Sequence[str] = ()
) -> Condition:
    if reason:
        return Condition(kind, "False", reason, _sentence(problems))
    return Condition(kind, "True", otherwise, _sentence(remarks))


def _sentence(parts: Sequence[str]) -> str:
    """In one line, for it is shown in a column: what a configuration holds may be quoted in it as it is written."""
    named = "; ".join(parts[:MAX_NAMED])
    more = len(parts) - MAX_NAMED
    text = " ".join((f"{named}; and {more} more" if more > 0 else named).split())
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 3]}..."


# The figures behind the columns


def _summary(state: NodeState, kubelet: ContainerManager | str, status: str) -> Summary:
    devices = sum(device.healthy for device in state.devices)
    if isinstance(kubelet, str):
        return Summary(devices=devices, status=status)
    return Summary(_free_cpus(state, kubelet), _free_memory(state, kubelet), devices, status)


def _free_cpus(state: NodeState, kubelet: ContainerManager) -> str:
    """CPUs that can still be given exclusively, a number for each NUMA node; empty where none ever are."""
    if kubelet.cpu is None:
        return ""
    free = free_cpus(state, kubelet.cpu.reserved)
    return ",".join(str(free.get(node.id, 0)) for node in state.machine.numa_nodes)


def _free_memory(state: NodeState, kubelet: ContainerManager) -> str:
    """Memory in Gi that can still be pinned, for each NUMA node; empty where none ever is."""
    if kubelet.memory is None:
        return ""
    free = book_of(kubelet.memory, state).free("memory")
    return ",".join(f"{size / (1 << 30):.1f}".removesuffix(".0") for size in free.values())
