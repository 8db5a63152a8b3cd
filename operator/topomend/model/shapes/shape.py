"""Synthetic machines as a line: ``sockets:2 numa:2 cores:8 threads:2 memory:64Gi device:vendor.com/gpu@0=2,1=2``.

Owns the text's grammar; a line may begin with the name of a known machine. The numbers of CPUs are those of
``numbering``, files for a machine are the sandbox's business.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topomend.model.bitmask import CPUSet, InvalidIDList, format_id_list, parse_id_list
from topomend.model.layout import LogicalCPU, assemble
from topomend.model.machine import HugePages, Machine, NUMANode
from topomend.model.nodes.node_state import Device
from topomend.model.quantity import InvalidQuantity, format_bytes, parse_quantity, value
from topomend.model.shapes.known_machines import MACHINES, find_machine
from topomend.model.shapes.numbering import NUMBERINGS, NumberedCPU, number_cpus

DISTANCE_TO_ITSELF, DISTANCE_WITHIN_SOCKET, DISTANCE_ACROSS = 10, 12, 32
LEAST_DISTANCE, MOST_DISTANCE = 10, 255
"""ACPI reserves distances below 10; 255 says that one NUMA node cannot reach another (System Locality Information)."""

MAX_CPUS = 4096
MAX_NUMA_NODES = 64

MAX_DIGITS = 7
"""Of a number in a word, as of huge pages. Python reads none of more than some thousand digits."""

_REPEATED = re.compile(r"(\d{1,2})x(.*)", re.ASCII)

Counts = tuple[tuple[int, int], ...]
"""How many there are on each NUMA node that has any."""


class InvalidShape(ValueError):
    """A shape that is not of the grammar, or names a machine that cannot be."""


@dataclass(frozen=True)
class Shape:
    """The numbers of a machine; ``numa`` is per socket, ``cores``, ``ecores``, ``l3`` and ``hugepages`` per NUMA node.

    - ``ecores``: cores of one thread, beside ``cores`` of ``threads`` threads. ``l3``: 0 for one cache a socket.
    - ``memory``: one amount for every NUMA node with CPUs, or one for each. ``cpuless``: the amounts of the NUMA nodes
      without CPUs, numbered after the others.
    - ``near``, ``far``: distances within a socket and beyond. ``distances``: all of them, a row for each NUMA node;
      empty where ``near`` and ``far`` say them.
    - ``devices`` are those of device plugins, ``claimable`` those of DRA drivers: counts by NUMA node, by resource.
    """

    sockets: int = 1
    numa: int = 1
    cores: int = 1
    threads: int = 1
    ecores: int = 0
    l3: int = 1
    memory: tuple[int, ...] = (8 << 30,)
    cpuless: tuple[int, ...] = ()
    numbering: frozenset[str] = frozenset()
    offline: CPUSet = 0
    isolated: CPUSet = 0
    near: int = DISTANCE_WITHIN_SOCKET
    far: int = DISTANCE_ACROSS
    distances: tuple[tuple[int, ...], ...] = ()
    hugepages: Counts = ()
    devices: tuple[tuple[str, Counts], ...] = ()
    claimable: tuple[tuple[str, Counts], ...] = ()

    @property
    def numa_with_cpus(self) -> int:
        """How many NUMA nodes have CPUs, online or not. The others follow them."""
        return self.sockets * self.numa

    @property
    def numa_memory(self) -> tuple[int, ...]:
        """The memory of every NUMA node."""
        same = len(self.memory) == 1
        return (self.memory * self.numa_with_cpus if same else self.memory) + self.cpuless

    @property
    def cpus(self) -> CPUSet:
        """Every CPU, offline ones included."""
        return (1 << self.numa_with_cpus * (self.cores * self.threads + self.ecores)) - 1

    def machine(self) -> Machine:
        """The machine as Linux numbers it and as discovery reads it."""
        numbered = number_cpus(self.numa_with_cpus, self.cores, self.threads, self.ecores, self.numbering)
        online = (self._place(cpu) for cpu in numbered if not self.offline >> cpu.id & 1)
        nodes = tuple(map(self._numa_node, range(len(self.numa_memory))))
        return assemble(online, nodes, offline=self.offline, isolated=self.isolated)

    def offered_devices(self) -> tuple[Device, ...]:
        """The devices of plugins, named ``<resource's last part>-<numa>-<index>``."""
        return _named(self.devices)

    def claimable_devices(self) -> tuple[Device, ...]:
        """The devices that only claims provide (dynamic resource allocation), named alike."""
        return _named(self.claimable)

    def _place(self, cpu: NumberedCPU) -> LogicalCPU:
        in_node = self.cores + self.ecores
        kind = "" if not self.ecores else "core" if cpu.core < self.cores else "atom"
        return LogicalCPU(
            cpu.id,
            cpu.numa_node,
            socket=cpu.numa_node // self.numa,
            core=cpu.numa_node * in_node + cpu.core,
            l3_cache=cpu.numa_node * self.l3 + cpu.core * self.l3 // in_node if self.l3 else cpu.numa_node // self.numa,
            kind=kind,
        )

    def _numa_node(self, node: int) -> NUMANode:
        memory, total = self.numa_memory[node], len(self.numa_memory)
        has_pages = node < self.numa_with_cpus
        return NUMANode(
            id=node,
            memory=memory,
            # Linux offers each size on every NUMA node with memory, if with no pages.
            hugepages=tuple(HugePages(size, count * has_pages) for size, count in self.hugepages if memory),
            distances=tuple(self._distance(node, other) for other in range(total)),
        )

    def _distance(self, node: int, other: int) -> int:
        if self.distances:
            return self.distances[node][other]
        if node == other:
            return DISTANCE_TO_ITSELF
        both_have_cpus = max(node, other) < self.numa_with_cpus
        return self.near if both_have_cpus and node // self.numa == other // self.numa else self.far


def _named(devices: Iterable[tuple[str, tuple[tuple[int, int], ...]]]) -> tuple[Device, ...]:
    return tuple(
        Device(resource, f"{resource.rpartition('/')[2]}-{node}-{index}", (node,))
        for resource, counts in devices
        for node, count in counts
        for index in range(count)
    )


def parse_shape(text: str) -> Shape:
    """Read a shape. Raises InvalidShape, which names the wrong word and a valid form."""
    words = text.split()
    named: dict[str, Any] = {}
    if words and ":" not in words[0]:
        known = find_machine(words[0])
        if known is None:
            raise InvalidShape(
                f"{words[0][:60]!r} is neither KEY:VALUE, such as numa:2, nor one of the {len(MACHINES)} machines that "
                "topomend machines lists"
            )
        named, words = _read_words(known.shape.split()), words[1:]
    fields = _merged(named, _read_words(words))
    for name in _BY_NAME:
        fields[name] = tuple(sorted(fields[name].items()) if name == "hugepages" else fields[name].items())
    shape = Shape(**fields)
    _check(shape)
    return shape


def _read_words(words: Iterable[str]) -> dict[str, Any]:
    """The fields of Shape that the words give; those of _BY_NAME as dictionaries, to be merged."""
    fields: dict[str, Any] = {name: {} for name in _BY_NAME}
    given: set[str] = set()
    for word in words:
        key, colon, rest = word.partition(":")
        if not colon or not rest:
            raise InvalidShape(f"{word[:60]!r} is not KEY:VALUE, such as numa:2")
        if key in given:
            raise InvalidShape(f"{key!r} is given twice")
        if key in _READERS:
            given.add(key)
            fields |= _READERS[key](word, rest)
        elif key.startswith("hugepages-"):
            fields["hugepages"][_bytes(word, key.removeprefix("hugepages-"))] = _count(word, rest, least=0)
        elif key in DEVICE_KEYS:
            _add_device(fields, word, key, rest)
        else:
            known = ", ".join([*_READERS, "hugepages-SIZE", *DEVICE_KEYS])
            raise InvalidShape(f"{key[:60]!r} is unknown; a shape has {known}")
    return fields


def _merged(named: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A known machine's fields, with those that were given in their place."""
    fields = {**named, **given}
    for name in _BY_NAME:
        fields[name] = {**named.get(name, {}), **given[name]}
    return fields


def read_devices(words: Sequence[str]) -> tuple[tuple[Device, ...], tuple[Device, ...]]:
    """The devices of words ``device:...`` and ``dra:...``: of plugins, and of claims. Raises InvalidShape."""
    fields = _read_words(words)
    return _named(fields["devices"].items()), _named(fields["claimable"].items())


# What cannot be


def _check(shape: Shape) -> None:
    for rule in (_wrong_size, _wrong_memory, _wrong_cpus, _wrong_distances, _wrong_devices):
        for words in rule(shape):
            raise InvalidShape(words)


def _wrong_size(shape: Shape) -> Iterator[str]:
    nodes = shape.numa_with_cpus + len(shape.cpuless)
    cpus = shape.numa_with_cpus * (shape.cores * shape.threads + shape.ecores)
    if nodes > MAX_NUMA_NODES:
        yield f"{nodes} NUMA nodes; the kubelet supports at most {MAX_NUMA_NODES}"
    if cpus > MAX_CPUS:
        yield f"{cpus} CPUs; a shape has at most {MAX_CPUS}"
    if shape.l3 > shape.cores + shape.ecores:
        yield f"l3:{shape.l3} is more than the {shape.cores + shape.ecores} cores of a NUMA node"


def _wrong_memory(shape: Shape) -> Iterator[str]:
    if len(shape.memory) not in (1, shape.numa_with_cpus):
        yield (
            f"memory has {len(shape.memory)} amounts; give one for all {shape.numa_with_cpus} NUMA nodes with CPUs, or "
            "one for each"
        )
    pages = sum(size * count for size, count in shape.hugepages)
    with_cpus = shape.numa_memory[: shape.numa_with_cpus]
    if not any(with_cpus):
        yield "no NUMA node with CPUs has memory; memory needs an amount above 0, such as 64Gi"
    too_small = next((memory for memory in with_cpus if 0 < memory < pages), None)
    if too_small:
        yield f"the huge pages are larger than the memory of a NUMA node, {format_bytes(too_small)}"


def _wrong_cpus(shape: Shape) -> Iterator[str]:
    for name, cpus in (("offline", shape.offline), ("isolated", shape.isolated)):
        if missing := cpus & ~shape.cpus:
            there = format_id_list(shape.cpus)
            yield f"{name} has CPUs {format_id_list(missing)[:60]}; the machine has {there}"
    if shape.offline == shape.cpus:
        yield "offline has every CPU; leave one online"


def _wrong_distances(shape: Shape) -> Iterator[str]:
    total = len(shape.numa_memory)
    rows = shape.distances
    if rows and len(rows) != total:
        yield f"distances has {len(rows)} rows; the machine has {total} NUMA nodes, and each needs one"
    for node, row in enumerate(rows):
        if len(row) != total:
            yield f"row {node} of distances has {len(row)} numbers; it needs {total}, one for each NUMA node"
        elif row[node] != DISTANCE_TO_ITSELF:
            yield f"row {node} of distances has {row[node]} at its own place; a NUMA node is at 10 from itself"
    for distance in (shape.near, shape.far, *(distance for row in rows for distance in row)):
        if not LEAST_DISTANCE <= distance <= MOST_DISTANCE:
            yield f"distance {distance} is outside {LEAST_DISTANCE} to {MOST_DISTANCE}"


def _wrong_devices(shape: Shape) -> Iterator[str]:
    last = len(shape.numa_memory) - 1
    for resource, counts in (*shape.devices, *shape.claimable):
        for node, _ in counts:
            if node > last:
                yield f"device {resource} is on NUMA node {node}; the machine's last one is {last}"


# Words


def _count(word: str, text: str, least: int = 1) -> int:
    is_number, digits = text.isascii() and text.isdigit(), text.lstrip("0") or "0"
    if is_number and len(digits) > MAX_DIGITS:
        limits = f"a shape has at most {MAX_CPUS} CPUs and {MAX_NUMA_NODES} NUMA nodes"
        raise InvalidShape(f"{word[:60]!r} has a number of more than {MAX_DIGITS} digits; {limits}")
    if not is_number or int(digits) < least:
        raise InvalidShape(f"{word[:60]!r} needs a whole number of at least {least}")
    return int(digits)


def _bytes(word: str, text: str) -> int:
    try:
        size = value(parse_quantity(text))
    except InvalidQuantity as error:
        raise InvalidShape(f"{word[:60]!r}: {error}") from error
    if size <= 0:
        raise InvalidShape(f"{word[:60]!r} needs a size above 0, such as 64Gi")
    return size


def _amounts(word: str, text: str) -> tuple[int, ...]:
    """Bytes, one after the other: ``64Gi,0`` or ``4x16Gi``."""
    amounts: list[int] = []
    for part in text.split(","):
        repeated = _REPEATED.fullmatch(part)
        times, amount = (_count(word, repeated[1]), repeated[2]) if repeated else (1, part)
        amounts += [0 if amount == "0" else _bytes(word, amount)] * times
    return tuple(amounts)


def _numbering(word: str, text: str) -> frozenset[str]:
    how = text.split(",")
    if not set(how) <= set(NUMBERINGS):
        raise InvalidShape(f"{word[:60]!r} is not {' or '.join(NUMBERINGS)}, or both with a comma between them")
    return frozenset(how)


def _cpulist(word: str, text: str) -> CPUSet:
    try:
        return parse_id_list(text)
    except InvalidIDList as error:
        raise InvalidShape(f"{word[:60]!r}: {error}; a list of CPUs is 3,8-11") from error


def _distances(word: str, text: str) -> dict[str, Any]:
    """``NEAR,FAR``, or a row for each NUMA node with slashes between them."""
    rows = tuple(tuple(_count(word, number) for number in row.split(",")) for row in text.split("/"))
    if len(rows) > 1:
        return {"distances": rows}
    if len(rows[0]) != 2:
        raise InvalidShape(f"{word[:60]!r} is neither NEAR,FAR nor a row for each NUMA node: distances:10,21/21,10")
    return {"near": rows[0][0], "far": rows[0][1], "distances": ()}


def _add_device(fields: Mapping[str, dict[str, Counts]], word: str, key: str, text: str) -> None:
    resource, at, places = text.partition("@")
    domain, slash, name = resource.partition("/")
    if not (at and slash and domain and name) or "/" in name:
        raise InvalidShape(f"{word[:60]!r} is not {key}:DOMAIN/NAME@NUMA=COUNT,..., such as {key}:vendor.com/gpu@0=2")
    if any(resource in fields[field] for field in DEVICE_KEYS.values()):
        raise InvalidShape(f"device {resource!r} is given twice")
    counts: dict[int, int] = {}
    for place in places.split(","):
        node, _, count = place.partition("=")
        counts[_count(word, node, least=0)] = _count(word, count, least=0)
    fields[DEVICE_KEYS[key]][resource] = tuple(sorted(counts.items()))


DEVICE_KEYS = {"device": "devices", "dra": "claimable"}
"""The words for devices, and the field of each."""

_BY_NAME = ("hugepages", *DEVICE_KEYS.values())


def _field(name: str, read: Callable[[str, str], Any]) -> Callable[[str, str], dict[str, Any]]:
    return lambda word, text: {name: read(word, text)}


_READERS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    **{name: _field(name, _count) for name in ("sockets", "numa", "cores", "threads", "ecores")},
    "l3": _field("l3", lambda word, text: 0 if text == "socket" else _count(word, text)),
    "memory": _field("memory", _amounts),
    "cpuless": _field("cpuless", _amounts),
    "numbering": _field("numbering", _numbering),
    "offline": _field("offline", _cpulist),
    "isolated": _field("isolated", _cpulist),
    "distances": _distances,
}
