"""What a pod asks for, and why each node does not fit: the amounts that are free on each NUMA node beside it.

Owns the drawing. Leaves what a node lacks, the nearest amounts and the remedies to ``decide`` and ``explain``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from topomend.explain.refused_merge import refused_merge
from topomend.explain.trace_text import amount_text
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Container, Pod
from topomend.model.quantity import MilliQuantity, as_int64, exact_bytes, exact_thousandths
from topomend.model.verdict import ResourceTrace
from topomend.picture.drawing.blocks import (
    FONT,
    TITLE,
    Area,
    Block,
    at_least,
    chip,
    column,
    flow,
    framed,
    put_text,
    row,
    shape,
    text,
    text_width,
)
from topomend.picture.drawing.document import Drawing, Section, Table
from topomend.picture.machine.node import WIDTH
from topomend.replay import qos
from topomend.replay.admission import admit

MOST_DRAWN = 12
"""So many nodes that do not fit are drawn, as many that would admit the pod are named; the tables have all."""

_BAR = 220


@dataclass(frozen=True)
class Reply:
    """A node's answer. ``admits`` is None where it is not known; ``words`` say where, or why not.

    ``amounts`` are what the pod asks for and what each NUMA node has of it (``amounts_of``); empty where that is not
    why. ``remedy`` is what would be admitted.
    """

    node: str
    admits: bool | None
    words: str
    amounts: tuple[ResourceTrace, ...] = ()
    remedy: str = ""


@dataclass(frozen=True)
class Asked:
    """The pod, how it is called, and the answers: candidates first, then those that lack least first."""

    pod: Pod
    heading: str
    replies: Sequence[Reply]
    words: Sequence[str] = ()
    tables: Sequence[Table] = ()


def section_of(asked: Asked) -> Section:
    """The drawing of the answers, and their tables."""
    refusing = [reply for reply in asked.replies if not reply.admits]
    admitting = [reply for reply in asked.replies if reply.admits]
    block = column(
        [
            text(asked.heading, "title", size=TITLE, most=WIDTH),
            framed(column([_container(each) for each in asked.pod.containers], 6), "package", "asks for"),
            *(_admitting(reply) for reply in admitting[:MOST_DRAWN]),
            *_more(len(admitting), "admit it"),
            *(_refusing(reply) for reply in refusing[:MOST_DRAWN]),
            *_more(len(refusing), "do not"),
        ],
        8,
    )
    element = Element("g", {"class": "refusal"})
    block.draw(element, Area(0, 0, block.width, block.height))
    drawing = Drawing(element, block.width, block.height, _description(asked, len(admitting)))
    return Section(asked.heading, drawing, asked.words, [_requests(asked.pod), *_answers(asked), *asked.tables])


def _description(asked: Asked, admitting: int) -> str:
    count = f"{admitting} of {len(asked.replies)} nodes would admit it"
    return f"What {asked.pod.name} asks for, and what each node has of that; {count}. The tables say the same."


def _more(number: int, what: str) -> Iterator[Block]:
    if number > MOST_DRAWN:
        yield text(f"and {number - MOST_DRAWN} more nodes {what}: the table has them", "muted")


def _container(container: Container) -> Block:
    chips = [chip(f"{resource} {amount}", "free") for resource, amount in _amounts(container)]
    name = text(f"{container.name}{_kind(container)}", "strong", most=220)
    return row([name, flow(chips or [chip("nothing exclusive", "free")], WIDTH - 260)], 10)


def _kind(container: Container) -> str:
    return "" if container.kind.value == "app" else f" ({container.kind.value})"


def _amounts(container: Container) -> Iterator[tuple[str, str]]:
    for resource, amount in sorted(container.resources.requests.items()):
        yield resource, _quantity(resource, amount)


def _quantity(resource: str, amount: MilliQuantity) -> str:
    whole = as_int64(amount)
    return exact_bytes(whole) if whole is not None and qos.is_memory(resource) else exact_thousandths(amount)


def _admitting(reply: Reply) -> Block:
    return framed(
        row([text(reply.node, "strong", most=320), text("✓ admits it", "good"), text(reply.words, most=800)], 12),
        "numa",
    )


def _refusing(reply: Reply) -> Block:
    verdict = "? not known" if reply.admits is None else "✗ does not admit it"
    head = row([text(reply.node, "strong", most=320), text(verdict, "bad")], 12)
    lines = [text(reply.words, most=WIDTH - 40)]
    if reply.remedy:
        lines.append(text(f"→ {reply.remedy}", "strong", most=WIDTH - 40))
    bars = [column([*map(_bars, reply.amounts), text("│ is what is asked", "muted")], 6)] if reply.amounts else []
    return framed(column([head, *bars, *lines], 6), "numa")


def amounts_of(state: NodeState, pod: Pod) -> tuple[ResourceTrace, ...]:
    """The resources of the merge that the node's kubelet refuses, with what is free on each NUMA node; none without."""
    verdict, _ = admit(state, pod)
    merge = refused_merge(verdict)
    return tuple(trace for trace in merge.resources if trace.free) if merge else ()


def _bars(trace: ResourceTrace) -> Block:
    """A bar for each NUMA node: what is free, and a line where what is asked would end."""
    name = text(trace.resource, "strong", most=180)
    label = at_least(name, 190)
    asked = text(f"asks {amount_text(trace, trace.requested)}")
    scale = max([trace.requested, *(amount for _, amount in trace.free)]) or 1
    bars = [_bar(trace, node, amount, scale) for node, amount in trace.free]
    return row([label, at_least(asked, 110), flow(bars, WIDTH - 380, 10)], 8)


def _bar(trace: ResourceTrace, node: int, amount: int, scale: int) -> Block:
    enough = amount >= trace.requested
    missing = "" if enough else f", lacks {amount_text(trace, trace.requested - amount)}"
    words = f"{'✓' if enough else '✗'} NUMA {node}: {amount_text(trace, amount)} free{missing}"

    def draw(parent: Element, area: Area) -> None:
        x, y, _, _ = area
        put_text(parent, x, y + FONT, words, "good" if enough else "bad")
        top = y + FONT + 5
        shape(parent, "rect", "box track", x=x, y=top, width=_BAR, height=10)
        shape(parent, "rect", "box h0", x=x, y=top, width=round(amount / scale * _BAR), height=10)
        end = x + round(trace.requested / scale * _BAR)
        shape(parent, "line", "line", x1=end, x2=end, y1=top - 3, y2=top + 13)

    return Block(max(_BAR, text_width(words)), FONT + 20, draw)


def _requests(pod: Pod) -> Table:
    rows = [
        (
            f"{container.name}{_kind(container)}",
            ", ".join(f"{name} {amount}" for name, amount in _amounts(container)) or "-",
        )
        for container in pod.containers
    ]
    return Table(f"What {pod.name} asks for", ("Container", "Requests"), rows)


def _answers(asked: Asked) -> Iterator[Table]:
    heading = ("Node", "Admits", "Where, or why not", "Free on NUMA nodes", "What would help")
    said = {True: "yes", False: "no", None: "not known"}
    rows = [
        (
            reply.node,
            said[reply.admits],
            reply.words,
            "; ".join(map(_free, reply.amounts)) or "-",
            reply.remedy or "-",
        )
        for reply in asked.replies
    ]
    if rows:
        yield Table(f"What each node answers to {asked.pod.name}", heading, rows)


def _free(trace: ResourceTrace) -> str:
    free = ", ".join(f"{amount_text(trace, amount)} on NUMA {node}" for node, amount in trace.free)
    return f"{trace.resource}: asked {amount_text(trace, trace.requested)}, free {free}"
