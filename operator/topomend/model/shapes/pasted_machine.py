"""A machine from what ``lscpu -e`` and ``numactl -H`` print on it, pasted into one text in either order.

``lscpu -e`` has the place of each CPU, ``numactl -H`` memory and distances (util-linux: sys-utils/lscpu.c; numactl:
numactl.c:hardware). Neither has huge pages or devices: lines of a shape's words ``device:`` and ``dra:`` add devices.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from topomend.model.bitmask import MAX_ID, CPUSet, format_id_list, mask_of
from topomend.model.layout import LogicalCPU, assemble
from topomend.model.machine import Machine, NUMANode
from topomend.model.nodes.node_state import Device
from topomend.model.shapes.shape import DEVICE_KEYS, MAX_CPUS, MAX_NUMA_NODES, InvalidShape, read_devices

BEGINNING = re.compile(r"^[ \t]*CPU[ \t].*\bCORE\b|^[ \t]*available: \d+ nodes? ", re.MULTILINE)
"""The heading of lscpu -e, or numactl's first line: what tells such a text from others."""

_AVAILABLE = re.compile(r"available: \d+ nodes? \(.*\)", re.ASCII)
_NODE = re.compile(r"node (\d{1,4}) (cpus|size|free):(.*)", re.ASCII)
_DISTANCES = re.compile(r"node distances:|node(?:\s+\d+)+|No distance information available\.", re.ASCII)
_DISTANCE = re.compile(r"(\d{1,4}):((?:\s+\d{1,3})+)", re.ASCII)
_MEBIBYTES = re.compile(r"\s*(\d{1,9}) MB\s*", re.ASCII)
_COMMAND = re.compile(r"[#$>]|.*[#$>]\s*\(?\s*(?:sudo )?(?:lscpu|numactl)\b|(?!node \d).*[#$>]$")
"""A comment, or a prompt: before one of the programs, or alone."""

Value = TypeVar("Value")

NEEDED = ("CPU", "SOCKET", "CORE", "ONLINE")
"""The columns of lscpu -e without which CPUs have no place. On a machine without NUMA it prints no NODE."""


class InvalidPaste(ValueError):
    """A text that is not what the two programs print. The message names the line, and what to do."""


@dataclass(frozen=True)
class PastedMachine:
    """The machine, the devices of plugins on it, and those that claims provide.

    ``problems`` are what of a recorded machine could not be read.
    """

    machine: Machine
    devices: tuple[Device, ...] = ()
    claimable: tuple[Device, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass
class _Read:
    """What the lines have said so far. ``columns`` is the heading of lscpu; empty before it."""

    columns: list[str] = field(default_factory=list)
    cpus: list[LogicalCPU] = field(default_factory=list)
    offline: CPUSet = 0
    cpus_of_node: dict[int, CPUSet] = field(default_factory=dict)
    memory: dict[int, int] = field(default_factory=dict)
    distances: dict[int, tuple[int, ...]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)


def read_pasted_machine(text: str) -> PastedMachine:
    """Read the text. Raises InvalidPaste."""
    read = _Read()
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or _COMMAND.match(stripped):
            continue
        try:
            _read_line(read, stripped)
        except ValueError as error:
            raise InvalidPaste(f"line {number}: {error}") from error
    for words in _wrong(read):
        raise InvalidPaste(words)
    return _machine(read)


# Lines


def _read_line(read: _Read, line: str) -> None:
    words = line.split()
    node, distance = _NODE.fullmatch(line), _DISTANCE.fullmatch(line)
    if words[0] == "CPU":
        _read_heading(read, words)
    elif node:
        _read_node(read, int(node[1]), node[2], node[3])
    elif distance:
        _once(read.distances, int(distance[1]), tuple(map(int, distance[2].split())), "row of distances")
    elif words[0].isdigit():
        _read_cpu(read, words)
    elif words[0].partition(":")[0] in DEVICE_KEYS:
        read.words += words
    elif not (_AVAILABLE.fullmatch(line) or _DISTANCES.fullmatch(line)):
        raise ValueError(f"{line[:60]!r} is of neither lscpu -e nor numactl -H; remove it or begin it with #")


def _read_heading(read: _Read, words: list[str]) -> None:
    missing = [name for name in NEEDED if name not in words]
    if missing:
        raise ValueError(f"the heading has no {', '.join(missing)}; print the table with lscpu -e and no column names")
    if read.columns:
        raise ValueError("a second heading of lscpu; keep the output of one machine")
    read.columns = words


def _read_cpu(read: _Read, words: list[str]) -> None:
    """A row of lscpu. An offline CPU has dashes for its place, and fewer columns where some are empty.

    Languages have their own words for yes and no. A CPU that is online may have a dash as well, where the firmware of
    a virtual machine tells no socket: what that one is, the user must say.
    """
    if not read.columns:
        raise ValueError("a row of lscpu before its heading, which begins with CPU; paste the heading as well")
    row = dict(zip(read.columns, words, strict=False))
    online = row.get("ONLINE")
    if online == "no" or (online != "yes" and row.get("CORE") == row.get("SOCKET") == "-"):
        read.offline |= mask_of([_number(row, "CPU")])
        return
    if len(words) != len(read.columns):
        raise ValueError(f"{len(words)} columns; the heading has {len(read.columns)}: {' '.join(read.columns)}")
    node = _number(row, "NODE") if "NODE" in row else 0
    read.cpus.append(
        LogicalCPU(_number(row, "CPU"), node, _number(row, "SOCKET"), _number(row, "CORE"), _l3_cache(row))
    )


def _l3_cache(row: Mapping[str, str]) -> int | None:
    """The id in a column such as ``L1d:L1i:L2:L3``; None where the machine has no L3 cache."""
    for heading, text in row.items():
        names, ids = heading.split(":"), text.split(":")
        if "L3" in names and len(names) == len(ids) and ids[names.index("L3")].isdigit():
            return int(ids[names.index("L3")])
    return None


def _read_node(read: _Read, node: int, what: str, text: str) -> None:
    if what == "cpus":
        words = text.split()
        wrong = next((word for word in words if not (word.isascii() and word.isdigit() and len(word) <= 5)), None)
        if wrong is not None:
            raise ValueError(f"{wrong[:20]!r} is no CPU")
        _once(read.cpus_of_node, node, mask_of(map(int, words)), "list of CPUs")
    elif what == "size":
        size = _MEBIBYTES.fullmatch(text)
        if size is None:
            raise ValueError(f"the size of node {node} is {text.strip()[:20]!r}; numactl prints it as 64000 MB")
        _once(read.memory, node, int(size[1]) << 20, "size")


def _once(values: dict[int, Value], node: int, value: Value, what: str) -> None:
    if node in values:
        raise ValueError(f"a second {what} of node {node}; keep the output of one machine")
    values[node] = value


def _number(row: Mapping[str, str], column: str) -> int:
    text = row[column]
    if text == "-":
        raise ValueError(
            f"{column} of CPU {row['CPU'][:5]} is -, so lscpu does not know it; write its number there, such as 0 for "
            "every CPU of a machine that has one"
        )
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise ValueError(f"{column} is {text[:20]!r}, which is no number")
    if int(text) >= MAX_ID:
        raise ValueError(f"{column} {text} is outside 0 to {MAX_ID - 1}")
    return int(text)


# What does not fit together


def _wrong(read: _Read) -> Iterator[str]:
    if not read.cpus:
        yield "no online CPU of lscpu -e; run it on the machine and paste what it prints"
    if not read.memory:
        yield "no size of a NUMA node; run numactl -H on the machine and paste what it prints beside lscpu -e"
    yield from _wrong_cpus(read)
    yield from _wrong_nodes(read)


def _wrong_cpus(read: _Read) -> Iterator[str]:
    ids = [cpu.id for cpu in read.cpus]
    if len(ids) > MAX_CPUS:
        yield f"{len(ids)} CPUs; at most {MAX_CPUS} are read"
    if len(set(ids)) < len(ids) or read.offline & mask_of(ids):
        twice = sorted(cpu for cpu in ids if ids.count(cpu) > 1 or read.offline >> cpu & 1)
        yield f"lscpu has CPU {twice[0]} twice; keep the output of one machine"
    nodes_of_core: dict[tuple[int, int], int] = {}
    for cpu in read.cpus:
        if nodes_of_core.setdefault((cpu.socket, cpu.core), cpu.numa_node) != cpu.numa_node:
            yield f"core {cpu.core} of lscpu has CPUs on two NUMA nodes, {cpu.id} among them"


def _wrong_nodes(read: _Read) -> Iterator[str]:
    if len(read.memory) > MAX_NUMA_NODES:
        yield f"{len(read.memory)} NUMA nodes; the kubelet supports at most {MAX_NUMA_NODES}"
    by_lscpu: dict[int, CPUSet] = dict.fromkeys(read.memory, 0)
    for cpu in read.cpus:
        by_lscpu[cpu.numa_node] = by_lscpu.get(cpu.numa_node, 0) | 1 << cpu.id
    for node, cpus in by_lscpu.items():
        if node not in read.memory:
            yield f"lscpu has CPUs on node {node}, and numactl has no size of it; paste both whole"
        listed = read.cpus_of_node.get(node, 0) & ~read.offline
        if listed != cpus:
            of_lscpu, by_numactl = (format_id_list(each) or "none" for each in (cpus, listed))
            yield (
                f"node {node} has CPUs {of_lscpu} by lscpu and {by_numactl} by numactl; paste both from one machine, "
                "run at one time"
            )
    if set(read.distances) - set(read.memory):
        yield f"distances of node {min(set(read.distances) - set(read.memory))}, of which numactl has no size"
    for node in read.memory if read.distances else ():
        given = len(read.distances.get(node, ()))
        if given != len(read.memory):
            yield f"node {node} has {given} distances; it needs {len(read.memory)}, one for each NUMA node"


def _machine(read: _Read) -> PastedMachine:
    nodes = tuple(
        NUMANode(node, memory, distances=read.distances.get(node, ())) for node, memory in sorted(read.memory.items())
    )
    try:
        devices, claimable = read_devices(read.words)
    except InvalidShape as error:
        raise InvalidPaste(str(error)) from error
    elsewhere = next(
        (each for each in (*devices, *claimable) if not set(each.numa_nodes or ()) <= set(read.memory)), None
    )
    if elsewhere is not None:
        raise InvalidPaste(f"device {elsewhere.resource} is on a NUMA node that numactl does not have")
    return PastedMachine(assemble(read.cpus, nodes, offline=read.offline), devices, claimable)
