"""A pool of nodes: each node small, and how fragmented what is free on them is.

Owns what is shown. Leaves the figures to ``decide.pools``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement

from topomend.decide.pools.pools import Pool, PoolResource
from topomend.explain.explanation import is_bytes
from topomend.model.bitmask import CPUSet, members
from topomend.model.nodes.node_state import NodeState, unavailable_cpus
from topomend.model.quantity import format_bytes
from topomend.picture.drawing.blocks import (
    TITLE,
    Area,
    Block,
    Part,
    at_least,
    bar,
    chip,
    column,
    explain,
    flow,
    framed,
    row,
    text,
)
from topomend.picture.drawing.document import Drawing, Section, Table
from topomend.picture.machine.node import WIDTH
from topomend.replay.admission import reserved_cpus

DOT, DOT_GAP = 6, 1
"""The sizes of a CPU in a small node, in pixels."""

_DOTS_BESIDE = 16

_BAR, _NAME = 420, 190


@dataclass(frozen=True)
class PoolSubject:
    """A pool, the states of its nodes that are known, and what is said of it in words."""

    pool: Pool
    states: Sequence[NodeState]
    words: Sequence[str] = ()


def section_of(subject: PoolSubject, tables: Sequence[Table] = ()) -> Section:
    """The drawing of a pool, and its tables; ``tables`` come first."""
    pool, states = subject.pool, subject.states
    block = column(
        [
            text(f"Pool {pool.name}", "title", size=TITLE, most=WIDTH),
            *map(_resource, pool.resources),
            *([_key_of_bars()] if pool.resources else []),
            _key_of_dots(),
            flow(map(_small, states), WIDTH, 8),
        ],
        10,
    )
    element = Element("g", {"class": "pool"})
    block.draw(element, Area(0, 0, block.width, block.height))
    drawing = Drawing(element, block.width, block.height, _description(subject))
    return Section(f"Pool {pool.name}", drawing, subject.words, [*tables, _nodes(pool, states)])


def _description(subject: PoolSubject) -> str:
    shares = [f"{each.name} {each.fragmented.share or 0:.0%}" for each in subject.pool.resources if each.fragmented]
    fragmented = f"of what is free typical pods cannot use: {', '.join(shares)}" if shares else "no share is known"
    return f"Pool {subject.pool.name} of {len(subject.states)} nodes; {fragmented}. The tables say the same."


def amount_text(resource: str, amount: float) -> str:
    """``3.5``, ``18Gi``."""
    return format_bytes(round(amount)) if is_bytes(resource) else f"{amount:.1f}".removesuffix(".0")


def _resource(resource: PoolResource) -> Block:
    """A bar of what is free: the part that typical pods can use, and hatched the one that they cannot."""
    name, fragmented = resource.name, resource.fragmented
    unusable = fragmented.unusable if fragmented else 0
    words = f"{amount_text(name, resource.free)} free"
    if fragmented:
        words += f", {amount_text(name, unusable)} of it unusable: {fragmented.share or 0:.0%} fragmented"
    parts = [
        Part(resource.free - unusable, "h3", "usable", f"{amount_text(name, resource.free - unusable)} usable"),
        Part(unusable, "reserved", "unusable", f"{amount_text(name, unusable)} unusable", hatch=True),
    ]
    label = at_least(text(name, "strong", most=_NAME), _NAME)
    return row([label, bar(parts, _BAR), text(words)], 8)


def _key_of_bars() -> Block:
    return flow(
        [chip("free and usable", "h3"), chip("free, but typical pods are refused", "reserved", hatch=True)], WIDTH
    )


def _key_of_dots() -> Block:
    entries = [("free", 0, 1), ("held exclusively", 1, 0), ("reserved", 0, 0)]
    return flow([row([_dots(*_sets(free, held)), text(name)], 6) for name, held, free in entries], WIDTH, 16)


def _sets(free: int, held: int) -> tuple[CPUSet, CPUSet, CPUSet]:
    return 1, 1 if free else 0, 1 if held else 0


def _small(state: NodeState) -> Block:
    """A node as dots in boxes, one box a NUMA node."""
    reserved = reserved_cpus(state) or state.kubelet.reserved_cpus or 0
    held = unavailable_cpus(state) & ~reserved
    free = state.machine.cpus & ~held & ~reserved
    boxes = [framed(_dots(cpus, free, held), "numa", gap=3) for cpus in state.machine.cpus_of_numa_node.values()]
    words = f"{free.bit_count()} of {state.machine.cpus.bit_count()} CPUs free"
    beside = 2 if len(boxes) > 1 else 1
    width = max(beside * (_DOTS_BESIDE * (DOT + DOT_GAP) + 10), 150)
    content = column([text(state.name, "strong", most=width), flow(boxes, width), text(words, "muted")])
    whole = framed(content, "machine")

    def draw(parent: Element, area: Area) -> None:
        group = SubElement(parent, "g", {"class": "small"})
        explain(group, f"{state.name}: {words}")
        whole.draw(group, area)

    return Block(whole.width, whole.height, draw)


def _dots(cpus: CPUSet, free: CPUSet, held: CPUSet) -> Block:
    """A dot for each CPU: an empty square is free, a full one held, a flat one reserved."""
    number, step = cpus.bit_count(), DOT + DOT_GAP
    rows = -(-number // _DOTS_BESIDE)

    def draw(parent: Element, area: Area) -> None:
        paths: dict[str, list[str]] = {"free": [], "taken": [], "flat": []}
        for position, cpu in enumerate(members(cpus)):
            down, across = divmod(position, _DOTS_BESIDE)
            x, y = area.x + across * step, area.y + down * step
            kind = "free" if free >> cpu & 1 else "taken" if held >> cpu & 1 else "flat"
            if kind == "flat":
                paths[kind].append(f"M{x} {y + 4}h{DOT - 1}v1h-{DOT - 1}z")
            else:
                paths[kind].append(f"M{x} {y}h{DOT - 1}v{DOT - 1}h-{DOT - 1}z")
        for kind, parts in paths.items():
            if parts:
                css = "box free" if kind == "free" else "taken"
                SubElement(parent, "path", {"class": css, "d": "".join(parts), "data-cpus": str(len(parts))})

    return Block(min(number, _DOTS_BESIDE) * step, rows * step, draw)


def _nodes(pool: Pool, states: Sequence[NodeState]) -> Table:
    heading = ("Node", "CPUs", "Free CPUs", "Free by NUMA node", "Free devices")
    return Table(f"Nodes of pool {pool.name}", heading, [_node_row(state) for state in states])


def _node_row(state: NodeState) -> tuple[str, ...]:
    taken = unavailable_cpus(state) | reserved_cpus(state)
    free = state.machine.cpus & ~taken
    by_node = ", ".join(
        f"NUMA {node}: {(cpus & free).bit_count()}" for node, cpus in state.machine.cpus_of_numa_node.items()
    )
    devices = ", ".join(_free_devices(state)) or "-"
    return state.name, str(state.machine.cpus.bit_count()), str(free.bit_count()), by_node, devices


def _free_devices(state: NodeState) -> Iterator[str]:
    taken = {
        (devices.resource, name)
        for pod in state.pods
        for container in pod.containers
        for devices in container.devices
        for name in devices.ids
    }
    for resource in dict.fromkeys(device.resource for device in state.devices):
        its = [device for device in state.devices if device.resource == resource]
        free = sum((resource, device.id) not in taken and device.healthy for device in its)
        yield f"{resource} {free} of {len(its)}"
