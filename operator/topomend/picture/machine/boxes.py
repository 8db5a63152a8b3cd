"""A machine as boxes in boxes, as hwloc has it: package, die, NUMA node, L3 cache, cluster, core, by their CPUs.

Which box is in which is told by the CPUs alone: on one machine a package has several NUMA nodes, on another a NUMA node
has several packages. Owns the order. Leaves how they look to ``node``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from topomend.model.bitmask import CPUSet, format_id_list, lowest, members
from topomend.model.machine import Machine


class Level(IntEnum):
    """What a box is. Of boxes with the same CPUs the higher level is inside."""

    PACKAGE = 0
    DIE = 1
    NUMA = 2
    L3 = 3
    CLUSTER = 4
    CORE = 5


@dataclass(frozen=True)
class Box:
    """A box with the online CPUs ``cpus``. ``id`` is Linux' number of a package, a NUMA node or an L3 cache.

    ``inside`` are the boxes in it, ascending by their lowest CPU.
    """

    level: Level
    id: int | None
    cpus: CPUSet
    inside: tuple["Box", ...] = ()


@dataclass(frozen=True)
class Boxes:
    """The outermost boxes, and those that share CPUs with another without being in it: Linux contradicts itself."""

    outermost: tuple[Box, ...]
    crossing: tuple[Box, ...]


def boxes_of(machine: Machine) -> Boxes:
    """The boxes of a machine. NUMA nodes without CPUs have none."""
    ordered = sorted(
        (box for box in _flat(machine) if box.cpus),
        key=lambda box: (-box.cpus.bit_count(), box.level, lowest(box.cpus)),
    )
    inside: dict[int, list[int]] = {}
    innermost: dict[int, int] = {}
    crossing: list[Box] = []
    for number, box in enumerate(ordered):
        # Larger boxes were there before: this one is in another if all its CPUs have the same innermost box so far.
        hosts = {innermost.get(cpu, _MACHINE) for cpu in members(box.cpus)}
        if len(hosts) > 1:
            crossing.append(box)
            continue
        inside.setdefault(hosts.pop(), []).append(number)
        innermost.update(dict.fromkeys(members(box.cpus), number))
    return Boxes(tuple(_trees(ordered, inside, _MACHINE)), tuple(crossing))


_MACHINE = -1
"""The machine, in the place of a box that others are in."""


def _flat(machine: Machine) -> Iterator[Box]:
    """Each box once. Linux' own grouping counts, where the kubelet's is another."""
    hardware = machine.hardware
    if hardware.sockets:
        yield from (Box(Level.PACKAGE, None, cpus) for cpus in hardware.sockets)
    else:
        yield from (Box(Level.PACKAGE, number, cpus) for number, cpus in machine.cpus_of_socket.items())
    yield from (Box(Level.DIE, None, cpus) for cpus in hardware.dies)
    yield from (Box(Level.NUMA, number, cpus) for number, cpus in machine.cpus_of_numa_node.items())
    yield from _caches(machine)
    yield from (Box(Level.CLUSTER, None, cpus) for cpus in hardware.clusters)
    cores = hardware.cores or tuple(core.threads for core in machine.cores)
    yield from (Box(Level.CORE, None, cpus) for cpus in dict.fromkeys(cores))


def _caches(machine: Machine) -> Iterator[Box]:
    """The L3 caches: all that Linux knows, or those that the kubelet considers where no more is published."""
    known = {core.l3_cache for core in machine.cores if core.l3_cache is not None}
    by_id = {number: cpus for number, cpus in machine.cpus_of_l3_cache.items() if number in known}
    ids = {cpus: number for number, cpus in by_id.items()}
    for cpus in machine.hardware.l3_caches or by_id.values():
        yield Box(Level.L3, ids.get(cpus), cpus)


def _trees(ordered: Sequence[Box], inside: Mapping[int, Sequence[int]], host: int) -> list[Box]:
    """The boxes in the box of the number ``host``, each with those that are in it."""
    grown = [replace(ordered[number], inside=tuple(_trees(ordered, inside, number))) for number in inside.get(host, ())]
    return sorted(grown, key=lambda box: lowest(box.cpus))


def walk(boxes: Iterable[Box]) -> Iterator[Box]:
    """Every box, outer ones before what is in them."""
    for box in boxes:
        yield box
        yield from walk(box.inside)


def label_of(box: Box) -> str:
    """``Package 0``, ``NUMA 1``, ``L3``; empty for a core."""
    names = {Level.PACKAGE: "Package", Level.DIE: "Die", Level.NUMA: "NUMA", Level.L3: "L3", Level.CLUSTER: "Cluster"}
    if box.level not in names:
        return ""
    return names[box.level] + ("" if box.id is None else f" {box.id}")


def cpus_text(cpus: CPUSet) -> str:
    """``CPUs 0-3,8``."""
    return f"CPUs {format_id_list(cpus)}" if cpus else "no CPUs"
