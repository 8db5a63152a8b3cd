"""How running containers are aligned: where each has its CPUs, memory and devices, or how many are how well aligned.

Leaves the judgement to ``alignment``.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import islice
from operator import or_
from xml.etree.ElementTree import Element

from topomend.alignment.container import CPU, Alignment, ContainerAlignment, Tally
from topomend.alignment.running import RunningContainer
from topomend.model.bitmask import members
from topomend.picture.drawing.blocks import (
    TITLE,
    Area,
    Block,
    Part,
    at_least,
    bar,
    chip,
    column,
    evenly,
    flow,
    row,
    shape,
    text,
)
from topomend.picture.drawing.document import Drawing, Section, Table

MOST_DRAWN = 200
"""So many containers are drawn; the table has all."""

MOST_COLUMNS = 16
"""So many NUMA nodes have a column; the table has all."""

_NAME, _BAR = 330, 800

_CSS: Mapping[Alignment, str] = {
    Alignment.NUMA_NODE: "h3",
    Alignment.SOCKET: "h5",
    Alignment.SPLIT: "h4",
    Alignment.FLOATING: "h7",
    Alignment.UNPINNED: "reserved",
    Alignment.UNKNOWN: "free",
}

_HATCHED = (Alignment.SPLIT, Alignment.UNKNOWN)


def section_of_containers(containers: Sequence[RunningContainer], table: Table) -> Section:
    """A row for each container, with a column for each NUMA node."""
    numa_nodes = _columns(containers)
    rows = [_container(each, numa_nodes) for each in containers[:MOST_DRAWN]]
    more = [text(f"and {len(containers) - MOST_DRAWN} more: the table has them", "muted")]
    head = _line("container on node", [text(f"NUMA {number}", "strong") for number in numa_nodes], "alignment")
    block = column(
        [
            text("Running containers", "title", size=TITLE),
            head,
            column(rows, 2),
            *(more if len(containers) > MOST_DRAWN else []),
            text("C: CPUs, M: memory or huge pages, D: devices, ·: shared CPUs alone", "muted"),
        ],
        8,
    )
    return _section("Running containers", block, _counted(containers), table)


def section_of_groups(groups: Iterable[tuple[str, Tally]], table: Table) -> Section:
    """A bar for each workload or node: how many containers are how well aligned."""
    rows = [_group(name, tally) for name, tally in groups]
    keys = [chip(each.value, _CSS[each], hatch=each in _HATCHED) for each in Alignment]
    title = text("Containers by alignment", "title", size=TITLE)
    return _section("Containers by alignment", column([title, *rows, flow(keys, _NAME + _BAR, 6)], 8), "", table)


def _section(heading: str, block: Block, counted: str, table: Table) -> Section:
    element = Element("g", {"class": "aligned"})
    block.draw(element, Area(0, 0, block.width, block.height))
    description = f"{heading}{counted}. The table says the same."
    return Section(heading, Drawing(element, block.width, block.height, description), tables=[table])


def _counted(containers: Sequence[RunningContainer]) -> str:
    counts = {each: sum(one.aligned.alignment is each for one in containers) for each in Alignment}
    return ": " + ", ".join(f"{number} {each.value}" for each, number in counts.items() if number)


def _columns(containers: Iterable[RunningContainer]) -> Sequence[int]:
    """The NUMA nodes with a column: all up to the highest in use, or of many those in use."""
    used = reduce(or_, (each.aligned.numa_nodes for each in containers), 1)
    return range(used.bit_length()) if used.bit_length() <= MOST_COLUMNS else [*islice(members(used), MOST_COLUMNS)]


def _container(running: RunningContainer, numa_nodes: Sequence[int]) -> Block:
    pod, aligned = running.pod.pod, running.aligned
    name = f"{pod.namespace}/{pod.name} {running.container.name} on {running.pod.node}"
    cells = [_cell(aligned, number) for number in numa_nodes]
    distance = "" if aligned.distance is None else f" distance {aligned.distance}"
    why = running.unknown or running.shared_cpus
    words = f"{aligned.alignment.value}{distance}{f' {why.reason}' if why else ''}"
    return _line(name, cells, words)


def _line(name: str, cells: Sequence[Block], words: str) -> Block:
    label = text(name, most=_NAME - 8)
    return row(
        [
            at_least(label, _NAME),
            evenly([at_least(cell, 64) for cell in cells], len(cells), 2),
            text(words),
        ],
        8,
    )


def _cell(aligned: ContainerAlignment, numa_node: int) -> Block:
    """What the container has on this NUMA node, as letters."""
    here = [each for each in aligned.allocated if each.numa_nodes >> numa_node & 1]
    letters = [
        "C" if any(each.resource == CPU for each in here) else "",
        "M" if any(not each.devices and each.resource != CPU for each in here) else "",
        "D" if any(each.devices for each in here) else "",
    ]
    floating = aligned.alignment is Alignment.FLOATING and aligned.numa_nodes >> numa_node & 1
    shown = "".join(letters) or ("·" if floating else "")
    inner = text(shown, "strong")
    css = _CSS[aligned.alignment] if shown else "track"

    def draw(parent: Element, area: Area) -> None:
        shape(parent, "rect", f"box {css}", x=area.x, y=area.y, width=area.width, height=20)
        inner.draw(parent, Area(area.x + 6, area.y + 3, inner.width, inner.height))

    return Block(64, 20, draw)


def _group(name: str, tally: Tally) -> Block:
    parts = [
        Part(number, _CSS[each], f"{each.value} {number}", f"{number} {each.value}", hatch=each in _HATCHED)
        for each in Alignment
        if (number := tally.counts[each])
    ]
    label = text(name, "strong", most=_NAME - 8)
    return row([at_least(label, _NAME), bar(parts, _BAR, 20)], 8)
