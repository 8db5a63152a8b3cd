"""The processors as Linux itself groups them, beside the grouping that the kubelet computes with.

Owns /sys/devices/system/cpu/cpuN/{topology,cache} as lists of siblings, core kinds, and nohz_full. The kubelet sees
cores, sockets and caches through cadvisor, which goes by their numbers; next door reads them so.
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
"""No processor has more than three or four; beyond this the numbers tell of single CPUs."""


def read_hardware(root: Root, machine: Machine, online: CPUSet) -> Hardware:
    """What Linux tells of the processors; where it groups them otherwise than the kubelet does, that is a remark."""
    root = root.beside()
    cores = _groups(root, "a core", online, lambda cpu: _cpus_of_core(root, cpu))
    sockets = _groups(root, "a socket", online, lambda cpu: _siblings(root, cpu, "package_cpus", "core_siblings"))
    dies = _groups(root, "a die", online, lambda cpu: _siblings(root, cpu, "die_cpus"))
    clusters = _groups(root, "a cluster", online, lambda cpu: _siblings(root, cpu, "cluster_cpus"))
    known = {*cores, *sockets, *dies}
    return Hardware(
        cores=_other(root, "cores", cores, (core.threads for core in machine.cores)),
        sockets=_other(root, "sockets", sockets, machine.cpus_of_socket.values()),
        # Where firmware knows no dies, the kernel calls each CPU one (include/linux/topology.h: topology_die_cpumask).
        dies=() if set(dies) <= {*cores, *sockets} else dies,
        clusters=tuple(cluster for cluster in clusters if cluster not in known),
        l3_caches=_groups(root, "an L3 cache", online, lambda cpu: _cpus_of_l3_cache(root, cpu)),
        core_kinds=_core_kinds(root, online),
        nohz_full=_nohz_full(root) & online,
    )


def _groups(root: Root, what: str, online: CPUSet, of: Callable[[int], CPUSet]) -> tuple[CPUSet, ...]:
    """The sets that ``of`` tells for CPUs, each asked of its lowest CPU alone; CPUs that know no set are in none.

    A set that shares CPUs with an earlier one contradicts it and is left out, with a remark.
    """
    groups = []
    seen, left = 0, online
    while left:
        cpu = lowest(left)
        group = of(cpu) & online
        if group & seen or (group and not group >> cpu & 1):
            root.remark(f"{CPUS}/cpu{cpu}", f"has {what} of CPUs {format_id_list(group)}, other CPUs say otherwise")
            group = 0
        if group:
            groups.append(group)
        seen |= group
        left &= ~(group | 1 << cpu)
    return tuple(groups)


def _siblings(root: Root, cpu: int, *names: str) -> CPUSet:
    """The CPUs in the topology file of the first of these names that there is; older kernels have other names."""
    found = (root.id_map(f"{CPUS}/cpu{cpu}/topology/{name}") for name in names)
    return next((cpus for cpus in found if cpus is not None), 0)


def _cpus_of_core(root: Root, cpu: int) -> CPUSet:
    return _siblings(root, cpu, "core_cpus", "thread_siblings")


def _other(root: Root, what: str, groups: tuple[CPUSet, ...], of_kubelet: Iterable[CPUSet]) -> tuple[CPUSet, ...]:
    """``groups`` where they are not the kubelet's, and a remark on the first that is not."""
    differing = sorted(set(groups) ^ set(of_kubelet), key=lambda cpus: (lowest(cpus), cpus))
    if not groups or not differing:
        return ()
    example = format_id_list(next((cpus for cpus in differing if cpus in groups), differing[0]))
    root.remark(
        CPUS, f"has {what} that the kubelet groups otherwise, CPUs {example} among them: it goes by the ids there"
    )
    return groups


def _cpus_of_l3_cache(root: Root, cpu: int) -> CPUSet:
    for name in root.names(f"{CPUS}/cpu{cpu}/cache", _CACHE):
        folder = f"{CPUS}/cpu{cpu}/cache/{name}"
        if root.integer(f"{folder}/level") == 3:
            # Where the map is empty, as on Itanium, the cache is its core's own.
            return root.id_map(f"{folder}/shared_cpu_map") or _cpus_of_core(root, cpu)
    return 0


def _nohz_full(root: Root) -> CPUSet:
    """CPUs without a timer tick while they run one task; kernels write ``(null)`` where there are none."""
    name = f"{CPUS}/nohz_full"
    return 0 if root.text(name) in (None, "(null)") else root.id_list(name) or 0


def _core_kinds(root: Root, online: CPUSet) -> tuple[CoreKind, ...]:
    """CPUs by their kernel name and capacity; empty on a machine whose cores are all alike."""
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
        root.remark(CPUS, f"has CPUs of {len(kinds)} capacities: they are not told apart")
    if not 2 <= len(kinds) <= MOST_KINDS:
        return ()
    ordered = sorted(kinds.items(), key=lambda item: (-(item[0][1] or 0), lowest(item[1])))
    return tuple(CoreKind(cpus, name, capacity) for (name, capacity), cpus in ordered)


def _capacities(root: Root, online: CPUSet) -> dict[int, int]:
    """What each CPU gets done relative to the strongest, where they differ and all of them tell.

    arm64 tells it in ``cpu_capacity`` (Documentation/scheduler/sched-capacity.rst); elsewhere firmware tells each
    CPU's sustained performance (Documentation/admin-guide/acpi/cppc_sysfs.rst: nominal_perf; highest_perf also
    differs between equal cores of which some are preferred).
    """
    for file in ("cpu_capacity", "acpi_cppc/nominal_perf"):
        known: dict[int, int] = {}
        for cpu in members(online):
            number = root.integer(f"{CPUS}/cpu{cpu}/{file}")
            if number is None or number <= 0:
                break
            known[cpu] = number
        if known and len(known) == online.bit_count():
            strongest = max(known.values())
            return {cpu: number * _STRONGEST // strongest for cpu, number in known.items()}
    return {}
