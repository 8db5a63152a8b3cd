"""Whether a kubelet starts with the state that an earlier one left in its root directory, and which file prevents it.

Owns the checks of each manager at its start. ``checkpoints`` reads the files. A kubelet checks each of them once, at
its start, and replaces it with every change: so it may run well with a file with which the next one would not start.
Source: cm/container_manager_linux.go:Start, cpumanager/state/state_checkpoint.go and policy_static.go:validateState,
the same of memorymanager, and allocation/allocation_manager.go:newStateImpl.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from posixpath import join

from topomend.model.bitmask import CPUSet, format_id_list
from topomend.model.machine import Machine
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.replay.container_manager import ContainerManager, start
from topomend.replay.cpu.static import StaticPolicy as CPUPolicy
from topomend.replay.gates import Gates, read_gates
from topomend.replay.options import quoted
from topomend.replay.qos import MEMORY
from topomend.replay.startup.state.checkpoint_json import GoError
from topomend.replay.startup.state.checkpoints import (
    Content,
    NullTable,
    check_claims,
    check_devices,
    check_pods,
    cloned,
    load_cpus,
    load_memory,
    parse_cpuset,
)

CPU_STATE, MEMORY_STATE = "cpu_manager_state", "memory_manager_state"
DEVICE_STATE = "device-plugins/kubelet_internal_checkpoint"
ALLOCATED_STATE, ACTUATED_STATE = "allocated_pods_state", "actuated_pods_state"
CLAIM_STATE = "dra_manager_state"

CRASH = "panic: runtime error: invalid memory address or nil pointer dereference"
"""What a kubelet says that reads through a pointer which the file leaves out."""

_UINT64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file with which a kubelet does not start: its path, and what the kubelet says before it ends."""

    path: str
    sentence: str

    def __str__(self) -> str:
        return (
            f"after a restart the kubelet would not start: {self.sentence}; "
            f"drain the node, stop the kubelet, delete {self.path}, then start it"
        )


@dataclass(frozen=True, slots=True)
class Restored:
    """The files with which a kubelet does not start, in the order in which it says so, and what it starts without."""

    refusals: tuple[Refusal, ...] = ()
    remarks: tuple[str, ...] = ()


def restore(files: Mapping[str, bytes], machine: Machine, settings: KubeletSettings, folder: str) -> Restored:
    """Start a kubelet with these settings on this machine in its root directory ``folder``, which has ``files``.

    ``files`` is the content by path below the folder; one that is absent is no hindrance. The result is empty if the
    kubelet would not start whatever the files say (``container_manager.start``).
    """
    kubelet = start(machine, settings)
    if isinstance(kubelet, str):
        return Restored()
    refusals = tuple(
        Refusal(join(folder, name), sentence)
        for name, sentence in _refused(files, machine, settings, kubelet, folder)
        if sentence
    )
    return Restored(refusals, tuple(_lost(files, folder)))


def _refused(
    files: Mapping[str, bytes], machine: Machine, settings: KubeletSettings, kubelet: ContainerManager, folder: str
) -> Iterator[tuple[str, str]]:
    """Each file that the kubelet reads, in its order, and what it says of it; an empty text if it goes on."""
    gates = read_gates(settings)
    if CLAIM_STATE in files and gates.restores_claims:
        yield CLAIM_STATE, restore_claims(files[CLAIM_STATE])
    if gates.resize:
        actuated = "failed to initialize actuated state checkpoint: " if gates.restores_actuated else ""
        for name, before in ((ACTUATED_STATE, actuated), (ALLOCATED_STATE, "")):
            if name in files:
                yield name, _prefixed(before, restore_pods(files[name], join(folder, name)))
    if CPU_STATE in files:
        path = join(folder, CPU_STATE)
        yield CPU_STATE, _prefixed("start cpu manager error: ", restore_cpus(files[CPU_STATE], settings, kubelet, path))
    if MEMORY_STATE in files and gates.memory_manager:
        path = join(folder, MEMORY_STATE)
        said = restore_memory(files[MEMORY_STATE], machine, settings, path)
        yield MEMORY_STATE, _prefixed("start memory manager error: ", said)


def _prefixed(prefix: str, said: str) -> str:
    return f"{prefix}{said}" if said and said != CRASH else said


def _lost(files: Mapping[str, bytes], folder: str) -> Iterator[str]:
    if said := restore_devices(files.get(DEVICE_STATE)):
        yield (
            f"after a restart the kubelet would have forgotten which devices its containers have, "
            f"and could allocate them twice: {join(folder, DEVICE_STATE)}: {said}; drain the node before it restarts"
        )


# Each file. An empty text means that the kubelet goes on.


def restore_claims(content: bytes) -> str:
    """What the DRA manager says of its file."""
    try:
        check_claims(content)
    except GoError as error:
        return str(error)
    return ""


def restore_pods(content: bytes, path: str) -> str:
    """What the kubelet says of a file of the amounts that pods have."""
    try:
        check_pods(content)
    except GoError as error:
        return _delete(str(error), "pod resource information", path)
    return ""


def restore_devices(content: bytes | None) -> str:
    """Why the device manager goes on without its file; empty if it can read it, or has none."""
    try:
        if content is not None:
            check_devices(content)
    except GoError as error:
        return str(error)
    return ""


def restore_cpus(content: bytes, settings: KubeletSettings, kubelet: ContainerManager, path: str) -> str:
    """What the CPU Manager says of its file."""
    try:
        loaded = load_cpus(content, kubelet.gates)
        state = _cpu_state(loaded, settings.cpu_manager_policy, kubelet.gates)
    except GoError as error:
        return _delete(str(error), "CPU manager", path)
    return "" if kubelet.cpu is None else _validate_cpus(state, kubelet.cpu)


def restore_memory(content: bytes, machine: Machine, settings: KubeletSettings, path: str) -> str:
    """What the Memory Manager says of its file."""
    gates, policy = read_gates(settings), settings.memory_manager_policy
    try:
        state = load_memory(content, gates)
        if state["PolicyName"] != policy:
            why = _other_policy(policy, state["PolicyName"])
            return _delete(f"[memorymanager] {why}", "memory manager", path)
        cloned(state)
    except GoError as error:
        return _delete(str(error), "memory manager", path)
    except NullTable:
        return CRASH
    return _validate_memory(state, machine, settings, gates) if policy == "Static" else ""


def _delete(why: str, of: str, path: str) -> str:
    return (
        f"could not restore state from checkpoint: {why}, please drain this node and delete the {of} checkpoint file "
        f"{quoted(path)} before restarting Kubelet"
    ).replace("delete the pod", "delete pod")


def _other_policy(configured: str, saved: str) -> str:
    return f"configured policy {quoted(configured)} differs from state checkpoint policy {quoted(saved)}"


# The CPU Manager


@dataclass(frozen=True, slots=True)
class _CPUState:
    """The shared pool, the CPUs of each container by pod and name, and those of pods."""

    pool: CPUSet
    containers: Mapping[str, Mapping[str, CPUSet]]
    pods: Mapping[str, CPUSet]


def _cpu_state(loaded: Content, policy: str, gates: Gates) -> _CPUState:
    """The state in a file. Raises GoError (cpumanager/state/state_checkpoint.go:restoreState)."""
    if loaded["PolicyName"] != policy:
        raise GoError(_other_policy(policy, loaded["PolicyName"]))
    kind = "CPU" if gates.checkpoints_in_data else "cpu"
    pool = _parsed(loaded["DefaultCPUSet"], f"could not parse default {kind} set {quoted(loaded['DefaultCPUSet'])}")
    containers = {
        pod: {
            name: _parsed(cpus, f"could not parse cpuset {quoted(cpus)} for {_of_pod(name, pod)}")
            for name, cpus in sorted((entries or {}).items())
        }
        for pod, entries in sorted((loaded["Entries"] or {}).items())
    }
    if gates.resize_exclusive_cpus and gates.checkpoints_in_data:
        _check_baselines(loaded)
    pods = {uid: entry["CPUSet"] for uid, entry in (loaded.get("PodEntries") or {}).items()}
    counted = gates.pod_level_resource_managers and gates.checkpoints_in_data
    return _CPUState(pool, containers, pods if counted else {})


def _check_baselines(loaded: Content) -> None:
    for pod, baselines in sorted((loaded.get("Baselines") or {}).items()):
        for name, baseline in sorted((baselines or {}).items()):
            cpus = baseline["Baseline"]
            _parsed(cpus, f"could not parse Baseline cpuset {quoted(cpus)} for {_of_pod(name, pod)}")


def _of_pod(container: str, pod: str) -> str:
    return f"container {quoted(container)} in pod {quoted(pod)}"


def _parsed(text: str, failed: str) -> CPUSet:
    try:
        return parse_cpuset(text)
    except GoError as error:
        raise GoError(f"{failed}: {error}") from error


def _validate_cpus(state: _CPUState, policy: CPUPolicy) -> str:
    """Source: cpumanager/policy_static.go:validateState."""
    pool, reserved = state.pool, policy.reserved
    if not pool:
        return "default cpuset cannot be empty" if state.containers else ""
    if policy.options.strict_reservation:
        if reserved & pool:
            return (
                f"some of strictly reserved cpus: {_listed(reserved & pool)} "
                f"are present in defaultCpuSet: {_listed(pool)}"
            )
    elif reserved & ~pool:
        return f"not all reserved cpus: {_listed(reserved)} are present in defaultCpuSet: {_listed(pool)}"
    known = pool
    for pod, containers in state.containers.items():
        for name, cpus in containers.items():
            if cpus & pool:
                return (
                    f"pod: {pod}, container: {name} cpuset: {_listed(cpus)} "
                    f"overlaps with default cpuset {_listed(pool)}"
                )
            known |= cpus
    for cpus in state.pods.values():
        known |= cpus
    if known != policy.pool:
        return f"current set of available CPUs {_listed(policy.pool)} doesn't match with CPUs in state {_listed(known)}"
    return ""


def _listed(cpus: CPUSet) -> str:
    return quoted(format_id_list(cpus))


# The Memory Manager

_DIFFERENT = "[memorymanager] the expected machine state is different from the real one"


def _validate_memory(state: Content, machine: Machine, settings: KubeletSettings, gates: Gates) -> str:
    """Source: memorymanager/policy_static.go:validateState."""
    saved, entries = state["MachineState"] or {}, state["Entries"] or {}
    if not saved:
        if entries:
            return "[memorymanager] machine state can not be empty when it has memory assignments"
        return ""
    expected = empty_machine(machine, settings)
    for pod, name, blocks in _blocks(state, gates):
        for block in blocks:
            if lacks := _reserve(expected, block):
                return (
                    f"[memorymanager] (pod: {pod}, container: {name}) the memory assignment uses {lacks} "
                    "that does not exist"
                )
    return _compared(saved, expected, gates)


def _blocks(state: Content, gates: Gates) -> Iterator[tuple[str, str, list[Content]]]:
    """The blocks of each pod, or of each of its containers, with both names."""
    of_pods = (state.get("PodEntries") or {}) if gates.pod_level_resource_managers else {}
    for pod, containers in sorted((state["Entries"] or {}).items()):
        if of_pod := of_pods.get(pod, {}).get("MemoryBlocks"):
            yield pod, "", of_pod
            continue
        for name, blocks in sorted((containers or {}).items()):
            yield pod, name, blocks or []


def empty_machine(machine: Machine, settings: KubeletSettings) -> dict[int, Content]:
    """The Memory Manager's state of the machine without pods (getDefaultMachineState), in the form of the files."""
    reserved = {(each.numa_node, each.resource): each.size for each in settings.reserved_memory}
    nodes: dict[int, Content] = {}
    for node in machine.numa_nodes:
        totals = {pages.resource: pages.size * pages.count for pages in node.hugepages}
        pages = sum(totals.values())
        tables = {
            resource: _table(total, 0, reserved.get((node.id, resource), 0)) for resource, total in totals.items()
        }
        tables[MEMORY] = _table(node.memory, pages, reserved.get((node.id, MEMORY), 0))
        nodes[node.id] = {"NumberOfAssignments": 0, "Cells": [node.id], "MemoryMap": tables}
    return nodes


def _table(total: int, pages: int, reserved: int) -> dict[str, int]:
    allocatable = (total - reserved - pages) & _UINT64
    return {
        "TotalMemSize": total,
        "SystemReserved": reserved,
        "Allocatable": allocatable,
        "Reserved": 0,
        "Free": allocatable,
    }


def _reserve(machine: dict[int, Content], block: Content) -> str:
    """Reserve a block as admission did; what it uses that is not there (updateExpectedMachineState)."""
    size = block["Size"]
    for number in block["NUMAAffinity"] or ():
        node = machine.get(number)
        if node is None:
            return "the NUMA"
        node["NumberOfAssignments"] += 1
        node["Cells"] = block["NUMAAffinity"]
        table = node["MemoryMap"].get(block["Type"])
        if table is None:
            return "memory resource"
        given = min(size, table["Free"])
        table["Reserved"] += given
        table["Free"] -= given
        size -= given
    return ""


def _compared(saved: Mapping[int, Content | None], expected: Mapping[int, Content], gates: Gates) -> str:
    """Source: memorymanager/policy_static.go:areMachineStatesEqual. The kubelet's order is by chance."""
    if len(saved) != len(expected):
        return _DIFFERENT
    for number in sorted(saved):
        node, other = saved[number], expected.get(number)
        if other is None:
            return _DIFFERENT
        if node is None:
            return CRASH
        if not _same_place(node, other):
            return _DIFFERENT
        for resource in sorted(node["MemoryMap"] or {}):
            if resource not in other["MemoryMap"] or not _same_table(node, other, resource, gates):
                return _DIFFERENT
            if gates.compares_memory_of_groups and (why := _compared_groups(saved, expected, node["Cells"], resource)):
                return why
    return ""


def _same_place(node: Content, other: Content) -> bool:
    return (
        node["NumberOfAssignments"] == other["NumberOfAssignments"]
        and sorted(node["Cells"] or ()) == sorted(other["Cells"])
        and len(node["MemoryMap"] or ()) == len(other["MemoryMap"])
    )


def _same_table(node: Content, other: Content, resource: str, gates: Gates) -> bool:
    names = ["TotalMemSize", "SystemReserved", "Allocatable"]
    names += [] if gates.compares_memory_of_groups else ["Reserved", "Free"]
    one, two = node["MemoryMap"][resource], other["MemoryMap"][resource]
    return all(one[name] == two[name] for name in names)


def _compared_groups(
    saved: Mapping[int, Content | None], expected: Mapping[int, Content], group: list[int], resource: str
) -> str:
    sums = []
    for machine in (saved, expected):
        tables = [((machine.get(number) or {}).get("MemoryMap") or {}).get(resource) for number in group or ()]
        if any(table is None for table in tables):
            return CRASH
        sums.append([sum(table[name] for table in tables if table) & _UINT64 for name in ("Free", "Reserved")])
    return "" if sums[0] == sums[1] else _DIFFERENT
