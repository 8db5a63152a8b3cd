"""One node as lstopo draws a machine, and who holds which CPU, memory and device of it.

Package, die, NUMA node, L3 cache and core are boxes, each CPU is a cell with its number and the letter of its holder.
Owns how they look. Leaves who holds what to ``facts``, the same facts in words to ``node_tables``, and sizes to
``blocks``.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from xml.etree.ElementTree import Element

from topomend.model.bitmask import CPUSet, format_id_list, members
from topomend.model.machine import CoreKind, NUMANode
from topomend.model.quantity import format_bytes
from topomend.picture.drawing.blocks import (
    EMPTY,
    GAP,
    MARK,
    SMALL,
    TITLE,
    Area,
    Block,
    Part,
    bar,
    chip,
    column,
    evenly,
    explain,
    flow,
    framed,
    grid,
    put_text,
    row,
    shape,
    text,
    text_width,
)
from topomend.picture.drawing.document import Drawing, Section
from topomend.picture.holders import RESERVED, Holder
from topomend.picture.machine.boxes import Box, Level, cpus_text, label_of, walk
from topomend.picture.machine.devices import devices_at
from topomend.picture.machine.facts import SEVERAL, Facts, Subject
from topomend.picture.machine.memory import MemoryOnNode
from topomend.picture.machine.node_tables import tables_of
from topomend.replay.remarks import unmodelled

WIDTH = 1240
"""The most pixels of a drawing's width."""

CELL_WIDTH, CELL_HEIGHT = 28, 24

MOST_BESIDE = 8
"""So many threads of a core are beside each other."""

MOST_DISTANCES = 16
"""Of so many NUMA nodes the distances are drawn; the table has them all."""

_LEAST_BAR = 150


def section_of(subject: Subject) -> Section:
    """The drawing of a node, and its tables."""
    facts = Facts(subject)
    kubelet, machine = subject.state.kubelet, subject.state.machine
    words = [
        f"Topology Manager {kubelet.topology_manager_policy}, scope {kubelet.topology_manager_scope}.",
        f"CPU Manager {kubelet.cpu_manager_policy}, Memory Manager {kubelet.memory_manager_policy}.",
        f"{facts.size_words}.",
        *([f"CPUs {format_id_list(machine.offline)} are offline."] if machine.offline else []),
        *([f"CPUs {format_id_list(machine.isolated)} are isolated."] if machine.isolated else []),
        *(f"Not modelled by replay: {feature}." for feature in unmodelled(machine, kubelet)),
        *([subject.problem] if subject.problem else []),
    ]
    block = _Drawing(facts).block()
    element = Element("g", {"class": "node"})
    block.draw(element, Area(0, 0, block.width, block.height))
    drawing = Drawing(element, block.width, block.height, facts.description)
    return Section(f"Node {subject.state.name}", drawing, words, [*tables_of(facts)])


class _Drawing:
    """The node while it is drawn."""

    def __init__(self, facts: Facts) -> None:
        self._facts, self._machine = facts, facts.machine

    def block(self) -> Block:
        """The whole drawing."""
        kubelet = self._facts.state.kubelet
        settings = (
            f"{kubelet.topology_manager_policy} / {kubelet.topology_manager_scope} · "
            f"cpu={kubelet.cpu_manager_policy} · mem={kubelet.memory_manager_policy} · {self._facts.size_words}"
        )
        inside = WIDTH - 2 * GAP
        blocks = [self._box(box, inside) for box in self._facts.boxes.outermost]
        body = [grid(blocks, inside, ratio=1.9, gap=8), self._without_cpus(inside), self._elsewhere(inside)]
        machine = framed(column(body, 8), "machine", data={"class": "machine-box"})
        return column(
            [
                text(self._facts.state.name, "title", size=TITLE, most=WIDTH),
                text(settings, "muted", most=WIDTH),
                machine,
                self._legend(max(machine.width, 480)),
                self._distances(),
            ],
            8,
        )

    def _box(self, box: Box, most: int) -> Block:
        if box.level is Level.CORE:
            return self._core(box)
        inside = most - 4 * GAP
        content = self._content(box, inside)
        if box.level is Level.NUMA and box.id is not None:
            content = column([content, *self._of_numa_node(box.id, max(content.width, _LEAST_BAR))], 6)
        return framed(content, _CSS[box.level], self._label(box), data={"class": f"b-{box.level.name.lower()}"})

    def _content(self, box: Box, most: int) -> Block:
        if not box.inside:
            return self._cells(box.cpus)
        cores = [inner for inner in box.inside if inner.level is Level.CORE]
        others = [self._box(inner, most) for inner in box.inside if inner.level is not Level.CORE]
        by_kind = [(kind, list(its)) for kind, its in groupby(cores, key=self._kind_of)]
        return column([*(self._cores(*each, most) for each in by_kind), grid(others, most, ratio=2.4, gap=8)], 6)

    def _cores(self, kind: CoreKind | None, cores: Sequence[Box], most: int) -> Block:
        drawn = grid([self._core(core) for core in cores], most, ratio=2.6)
        return column([text(_kind_words(kind), "muted"), drawn]) if kind else drawn

    def _kind_of(self, core: Box) -> CoreKind | None:
        kinds = self._machine.hardware.core_kinds
        return next((kind for kind in kinds if len(kinds) > 1 and kind.cpus & core.cpus), None)

    def _label(self, box: Box) -> str:
        if box.level is not Level.NUMA:
            return label_of(box)
        free = (box.cpus & ~self._facts.taken).bit_count()
        return f"{label_of(box)} · {free} of {box.cpus.bit_count()} CPUs free"

    def _core(self, box: Box) -> Block:
        return framed(self._cells(box.cpus), "core", gap=3, data={"class": "b-core"})

    def _cells(self, cpus: CPUSet) -> Block:
        return evenly([self._cell(cpu) for cpu in members(cpus)], MOST_BESIDE, 2)

    def _cell(self, cpu: int) -> Block:
        look = self._facts.of_cpu(cpu)
        mark, css, words = look.mark, look.css, look.words
        if self._machine.isolated >> cpu & 1:
            css, words = f"{css} isolated", f"{words}, isolated"

        def draw(parent: Element, area: Area) -> None:
            x, y, width, _ = area
            rectangle = shape(parent, "rect", f"box pu {css}", x=x, y=y, width=width, height=CELL_HEIGHT)
            put_text(parent, x + 3, y + 9, str(cpu), "no")
            if mark:
                explain(rectangle, f"CPU {cpu}: {words}")
                put_text(parent, x + width - 3 - text_width(mark, MARK), y + CELL_HEIGHT - 4, mark, "mark")

        return Block(max(CELL_WIDTH, text_width(str(cpu), SMALL) + 6), CELL_HEIGHT, draw)

    def _of_numa_node(self, numa_node: int, width: int) -> Iterator[Block]:
        """Memory and devices of a NUMA node, at least so wide."""
        for memory in self._facts.memory:
            if memory.numa_node == numa_node:
                yield self._memory_bar(memory, width)
        yield from devices_at(self._facts, numa_node, width)

    def _memory_bar(self, memory: MemoryOnNode, width: int) -> Block:
        words = f"{memory.resource} {format_bytes(memory.total)}"
        if not memory.managed:
            return text(words)
        words += f", {format_bytes(memory.free)} free"
        parts = [Part(memory.reserved, "reserved", RESERVED, f"{format_bytes(memory.reserved)} reserved")]
        parts += [
            Part(size, self._facts.css_of(holder), holder.mark, f"{holder.name}: {format_bytes(size)}")
            for holder, size in memory.held
        ]
        parts.append(self._spanning(memory))
        return column([text(words), bar(parts, max(width, text_width(words)), total=memory.total)], 2)

    def _spanning(self, memory: MemoryOnNode) -> Part:
        """The part of blocks over several NUMA nodes, with the marks of all who have one here."""
        bit = 1 << memory.numa_node
        marks = [
            holder.mark
            for holder in self._facts.holders
            if any(
                block.resource == memory.resource and bit & block.numa_nodes and block.numa_nodes != bit
                for block in holder.memory
            )
        ]
        words = f"{format_bytes(memory.spanning)} of blocks over several NUMA nodes"
        return Part(memory.spanning, "several", f"{' '.join(marks)} {SEVERAL}".strip(), words, hatch=True)

    def _without_cpus(self, most: int) -> Block:
        """The NUMA nodes that have memory alone."""
        drawn = {box.id for box in walk(self._facts.boxes.outermost) if box.level is Level.NUMA}
        return flow([self._memory_only(node) for node in self._machine.numa_nodes if node.id not in drawn], most, 8)

    def _memory_only(self, node: NUMANode) -> Block:
        what = f"memory of GPU {node.gpu}" if node.gpu else "no CPUs"
        label = f"NUMA {node.id} · {what}"
        content = column(self._of_numa_node(node.id, max(_LEAST_BAR, text_width(label))), 6)
        return framed(content, "numa", label, data={"class": "b-numa"})

    def _elsewhere(self, most: int) -> Block:
        """Offline CPUs, devices that are near no NUMA node or several, and boxes that do not nest."""
        blocks = list(devices_at(self._facts, None, most))
        if blocks:
            blocks = [framed(column(blocks, 6), "numa", "near no NUMA node or several")]
        if self._machine.offline:
            cells = flow([_offline(cpu) for cpu in members(self._machine.offline)], most - 40, 2)
            blocks.append(framed(cells, "numa", "offline CPUs"))
        crossing = [f"{label_of(box) or 'a core'}: {cpus_text(box.cpus)}" for box in self._facts.boxes.crossing]
        if crossing:
            lines = column([text(line, most=most - 40) for line in crossing], 0)
            blocks.append(framed(lines, "numa", "boxes that Linux reports across others"))
        return flow(blocks, most, 8)

    def _legend(self, most: int) -> Block:
        marks = {self._facts.of_cpu(cpu).mark for cpu in members(self._machine.cpus)}
        entries = [chip("free", "free")]
        entries += [chip(f"{RESERVED} reserved for the system", "reserved")] if RESERVED in marks else []
        entries += [chip(f"{SEVERAL} shared by several", "several")] if SEVERAL in marks else []
        if any(memory.spanning for memory in self._facts.memory):
            entries.append(chip(f"{SEVERAL} in memory: over several NUMA nodes", "several", hatch=True))
        entries += [chip("dashed: isolated", "free isolated")] if self._machine.isolated else []
        entries += [self._entry(holder) for holder in self._facts.holders]
        return flow(entries, most, 6)

    def _entry(self, holder: Holder) -> Block:
        goes = " · has to go" if self._facts.is_going(holder) else ""
        words = f"{holder.mark} {holder.name}{goes}"
        return chip(words, self._facts.css_of(holder))

    def _distances(self) -> Block:
        nodes = self._machine.numa_nodes
        if not 1 < len(nodes) <= MOST_DISTANCES or any(len(node.distances) != len(nodes) for node in nodes):
            return EMPTY
        head = row([_number("distance", "", 70), *(_number(str(node.id), "strong") for node in nodes)], 0)
        rows = [
            row([_number(f"NUMA {node.id}", "strong", 70), *(_distance(each) for each in node.distances)], 0)
            for node in nodes
        ]
        return column([head, *rows], 0)


_CSS = {
    Level.PACKAGE: "package",
    Level.DIE: "cache",
    Level.NUMA: "numa",
    Level.L3: "cache",
    Level.CLUSTER: "cache",
}


def _kind_words(kind: CoreKind) -> str:
    """``cores of kind atom, of capacity 810``, as far as it is known."""
    words = [
        f"of kind {kind.name}" if kind.name else "",
        "" if kind.capacity is None else f"of capacity {kind.capacity}",
    ]
    return f"cores {', '.join(filter(None, words)) or 'of another kind'}"


def _offline(cpu: int) -> Block:
    def draw(parent: Element, area: Area) -> None:
        x, y, _, _ = area
        rectangle = shape(parent, "rect", "box off offline", x=x, y=y, width=CELL_WIDTH, height=CELL_HEIGHT)
        explain(rectangle, f"CPU {cpu}: offline")
        put_text(parent, x + 3, y + 9, str(cpu), "no")
        put_text(parent, x + CELL_WIDTH - 11, y + CELL_HEIGHT - 4, "-", "mark")

    return Block(CELL_WIDTH, CELL_HEIGHT, draw)


def _number(words: str, css: str, width: int = 34) -> Block:
    inner = text(words, css)

    def draw(parent: Element, area: Area) -> None:
        x, y, wide, height = area
        inner.draw(parent, Area(x + wide - inner.width - 6, y + 2, inner.width, height))

    return Block(width, 18, draw)


def _distance(distance: int) -> Block:
    """A cell of the matrix; beyond the local 10 it is shaded."""
    inner = text(str(distance))

    def draw(parent: Element, area: Area) -> None:
        x, y, width, height = area
        shape(parent, "rect", f"box {'free' if distance <= 10 else 'package'}", x=x, y=y, width=width, height=height)
        inner.draw(parent, Area(x + width - inner.width - 6, y + 2, inner.width, height))

    return Block(34, 18, draw)
