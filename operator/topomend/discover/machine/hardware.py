"""The processors as Linux groups them, beside the grouping that the kubelet computes with.

Owns the sibling lists in /sys/devices/system/cpu/cpuN/{topology,cache}, core kinds, and nohz_full. The kubelet sees
cores, sockets and caches through cadvisor, which groups them by their ids; ``sysfs`` does the same.
"""

import re
from collections.abc import Callable, Iterable

from topomend.discover.host_files import Root
from topomend.model.bitmask import CPUSet, format_id_list, lowest, members
from topomend.model.machine import CoreKind, Hardware, Machine

CPUS = "sys/devices/system/cpu"
KINDS = ("core", "atom", "lowpower")
"""The kernel's names for kinds of cores on x86: /sys/devices/cpu_core and so on (arch/x86/events/intel)."""

_CACHE = re.compile(r"index\d{1,3}", re.ASCII)
_STRONGEST = 1024
MOST_KINDS = 16
"""No processor has more than three or four kinds of cores; beyond this the numbers differ by single CPUs."""


def read_hardware(root: Root, machine: Machine, online: CPUSet) -> Hardware:
    """Read the processors as Linux groups them. A grouping that differs from the kubelet's becomes a remark."""
    root = root.beside()
    cores = _groups(root, "a core", online, lambda cpu: _cpus_of_core(root, cpu))
    sockets = _groups(root, "a socket", online, lambda cpu: _siblings(root, cpu, "package_cpus", "core_siblings"))
    dies = _groups(root, "a die", online, lambda cpu: _siblings(root, cpu, "die_cpus"))
    clusters = _groups(root, "a cluster", online, lambda cpu: _siblings(root, cpu, "cluster_cpus"))
    coarser = {*cores, *sockets, *dies}
    return Hardware(
        cores=_if_different(root, "cores", cores, (core.threads for core in machine.cores)),
        sockets=_if_different(root, "sockets", sockets, machine.cpus_of_socket.values()),
        # Without dies in the firmware the kernel makes each CPU a die (include/linux/topology.h: topology_die_cpumask).
        dies=() if set(dies) <= {*cores, *sockets} else dies,
        clusters=tuple(cluster for cluster in clusters if cluster not in coarser),
        l3_caches=_groups(root, "an L3 cache", online, lambda cpu: _cpus_of_l3_cache(root, cpu)),
        core_kinds=_core_kinds(root, online),
        nohz_full=_nohz_full(root) & online,
    )


def _groups(root: Root, kind: str, online: CPUSet, of: Callable[[int], CPUSet]) -> tuple[CPUSet, ...]:
    """The sets that ``of`` returns, each read from its lowest CPU alone; a CPU without a set is in no group.

    A set that shares CPUs with an earlier one contradicts it. It is left out, with a remark.
    """
    groups = []
    grouped, remaining = 0, online
    while remaining:
        cpu = lowest(remaining)
        group = of(cpu) & online
        if group & grouped or (group and not group >> cpu & 1):
            root.remark(f"{CPUS}/cpu{cpu}", f"has {kind} of CPUs {format_id_list(group)}, other CPUs say otherwise")
            group = 0
        if group:
            groups.append(group)
        grouped |= group
        remaining &= ~(group | 1 << cpu)
    return tuple(groups)


def _siblings(root: Root, cpu: int, *names: str) -> CPUSet:
    """The CPUs in the first of these topology files that exists; older kernels use other names."""
    candidates = (root.id_map(f"{CPUS}/cpu{cpu}/topology/{name}") for name in names)
    return next((cpus for cpus in candidates if cpus is not None), 0)


def _cpus_of_core(root: Root, cpu: int) -> CPUSet:
    return _siblings(root, cpu, "core_cpus", "thread_siblings")


def _if_different(
    root: Root, kind: str, groups: tuple[CPUSet, ...], of_kubelet: Iterable[CPUSet]
) -> tuple[CPUSet, ...]:
    """``groups`` if they differ from the kubelet's, with a remark on the first difference; empty otherwise."""
    differing = sorted(set(groups) ^ set(of_kubelet), key=lambda cpus: (lowest(cpus), cpus))
    if not groups or not differing:
        return ()
    example = format_id_list(next((cpus for cpus in differing if cpus in groups), differing[0]))
    root.remark(
        CPUS, f"has {kind} that the kubelet groups otherwise, CPUs {example} among them: it goes by the ids there"
    )
    return groups


def _cpus_of_l3_cache(root: Root, cpu: int) -> CPUSet:
    for name in root.names(f"{CPUS}/cpu{cpu}/cache", _CACHE):
        folder = f"{CPUS}/cpu{cpu}/cache/{name}"
        if root.integer(f"{folder}/level") == 3:
            # An empty map, as on Itanium, means that the core has the cache to itself.
            return root.id_map(f"{folder}/shared_cpu_map") or _cpus_of_core(root, cpu)
    return 0


def _nohz_full(root: Root) -> CPUSet:
    """CPUs without a timer tick while they run one task; kernels write ``(null)`` if there are none."""
    name = f"{CPUS}/nohz_full"
    return 0 if root.text(name) in (None, "(null)") else root.id_list(name) or 0


def _core_kinds(root: Root, online: CPUSet) -> tuple[CoreKind, ...]:
    """CPUs by the kernel's name of their kind and by capacity; empty if all cores are alike."""
    names: dict[int, str] = {}
    for kind in KINDS:
        for cpu in members((root.id_list(f"sys/devices/cpu_{kind}/cpus") or 0) & online):
            names.setdefault(cpu, kind)
    capacities = _capacities(root, online)
    kinds: dict[tuple[str, int | None], CPUSet] = {}
    for cpu in members(online):
        kind_and_capacity = names.get(cpu, ""), capacities.get(cpu)
        kinds[kind_and_capacity] = kinds.get(kind_and_capacity, 0) | 1 << cpu
    if len(kinds) > MOST_KINDS:
        root.remark(CPUS, f"has CPUs of {len(kinds)} capacities, which are not distinguished")
    if not 2 <= len(kinds) <= MOST_KINDS:
        return ()
    ordered = sorted(kinds.items(), key=lambda item: (-(item[0][1] or 0), lowest(item[1])))
    return tuple(CoreKind(cpus, name, capacity) for (name, capacity), cpus in ordered)


def _capacities(root: Root, online: CPUSet) -> dict[int, int]:
    """The capacity of each CPU, 1024 for the strongest; empty unless every CPU has one.

    arm64 has ``cpu_capacity`` (Documentation/scheduler/sched-capacity.rst). Elsewhere firmware reports each CPU's
    sustained performance, nominal_perf (Documentation/admin-guide/acpi/cppc_sysfs.rst). highest_perf would not do: it
    also differs between equal cores of which firmware prefers some.
    """
    for file in ("cpu_capacity", "acpi_cppc/nominal_perf"):
        numbers: dict[int, int] = {}
        for cpu in members(online):
            number = root.integer(f"{CPUS}/cpu{cpu}/{file}")
            if number is None or number <= 0:
                break
            numbers[cpu] = number
        if numbers and len(numbers) == online.bit_count():
            strongest = max(numbers.values())
            return {cpu: number * _STRONGEST // strongest for cpu, number in numbers.items()}
    return {}
