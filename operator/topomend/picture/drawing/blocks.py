"""Rectangles that know how large they must be and draw themselves where they are put: frames, rows, grids, texts.

Sizes are whole pixels. Text is measured by the number of its letters, since the fonts are of fixed width: no text is
wider than its block, and what does not fit is cut, with all of it in the element's title.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log
from typing import NamedTuple
from unicodedata import combining, east_asian_width
from xml.etree.ElementTree import Element, SubElement

from topomend.base.plain_text import visible
from topomend.picture.drawing.theme import MONO_EM

FONT, SMALL, MARK, TITLE = 11, 9, 12, 16
"""Sizes of fonts in pixels, as the style sheet has them."""

GAP, PAD = 4, 6

_ELLIPSIS = "…"


class Area(NamedTuple):
    """Where something is drawn, in pixels from the upper left."""

    x: int
    y: int
    width: int
    height: int


Draw = Callable[[Element, Area], None]
"""Draws into an element, in an area that is at least as large as the block."""


_Layout = tuple[int, int, list[int]]
"""The number of columns of a grid, its least width, and the heights of its rows."""


@dataclass(frozen=True)
class Block:
    """Something to draw that is at least so wide and high."""

    width: int
    height: int
    draw: Draw


def _nothing(parent: Element, area: Area) -> None:
    del parent, area


EMPTY = Block(0, 0, _nothing)


def text_width(text: str, size: int = FONT) -> int:
    """How wide a text is at most; letters of East Asia are two wide."""
    if text.isascii():
        return ceil(len(text) * size * MONO_EM)
    columns = sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)
    return ceil(columns * size * MONO_EM)


def cut(text: str, most: int, size: int = FONT) -> str:
    """``text``, or its beginning and an ellipsis, so that it is at most so wide."""
    if text_width(text, size) <= most:
        return text
    kept = ""
    for letter in text:
        if text_width(kept + letter + _ELLIPSIS, size) > most:
            break
        kept += letter
    return kept + _ELLIPSIS


def shape(parent: Element, tag: str, css: str, **numbers: int) -> Element:
    """A shape with this class and these attributes."""
    attributes = {name.rstrip("_").replace("_", "-"): str(number) for name, number in numbers.items()}
    return SubElement(parent, tag, {"class": css, **attributes} if css else attributes)


def put_text(parent: Element, x: int, y: int, text: str, css: str = "") -> Element:
    """A text whose baseline begins at x and y. What is not printable in it is escaped."""
    element = SubElement(
        parent, "text", {"class": css, "x": str(x), "y": str(y)} if css else {"x": str(x), "y": str(y)}
    )
    element.text = visible(text)
    return element


def explain(element: Element, words: str) -> None:
    """Give an element the words that a browser shows beside the pointer."""
    SubElement(element, "title").text = visible(words)


def text(words: str, css: str = "", *, size: int = FONT, most: int = 0) -> Block:
    """One line. At most so many pixels wide where ``most`` is given."""
    words = visible(words)
    shown = cut(words, most, size) if most else words

    def draw(parent: Element, area: Area) -> None:
        x, y, _, _ = area
        element = put_text(parent, x, y + size, shown, css)
        if shown != words:
            explain(element, words)

    return Block(text_width(shown, size), size + 4, draw)


def at_least(block: Block, width: int, height: int = 0) -> Block:
    """The block in a place of this size at least, at its upper left."""
    return Block(max(width, block.width), max(height, block.height), block.draw)


def column(blocks: Iterable[Block], gap: int = GAP) -> Block:
    """Blocks below each other, each as wide as the widest."""
    shown = [block for block in blocks if block.height]
    if not shown:
        return EMPTY

    def draw(parent: Element, area: Area) -> None:
        x, y, width, height = area
        last = y + height
        for block in shown:
            own = last - y if block is shown[-1] else block.height
            block.draw(parent, Area(x, y, width, own))
            y += block.height + gap

    return Block(max(block.width for block in shown), sum(block.height + gap for block in shown) - gap, draw)


def row(blocks: Iterable[Block], gap: int = GAP) -> Block:
    """Blocks beside each other, each with its own size, at the same middle."""
    shown = [block for block in blocks if block.width]
    if not shown:
        return EMPTY

    height = max(block.height for block in shown)

    def draw(parent: Element, area: Area) -> None:
        x, y, _, _ = area
        for block in shown:
            block.draw(parent, Area(x, y + (height - block.height) // 2, block.width, block.height))
            x += block.width + gap

    return Block(sum(block.width + gap for block in shown) - gap, height, draw)


def flow(blocks: Iterable[Block], most: int, gap: int = GAP) -> Block:
    """Rows of blocks, each as long as there is room."""
    rows: list[list[Block]] = [[]]
    for block in blocks:
        used = sum(each.width + gap for each in rows[-1])
        if rows[-1] and used + block.width > most:
            rows.append([])
        rows[-1].append(block)
    return column([row(each, gap) for each in rows], gap)


def grid(blocks: Sequence[Block], most: int, ratio: float = 2.0, gap: int = GAP) -> Block:
    """Blocks in a grid that is at most so wide and, of those, nearest to ``ratio`` of width to height.

    Blocks of a row become equally high, and those of all rows equally wide.
    """
    if not blocks:
        return EMPTY
    beside = max(1, (most + gap) // (max(block.width for block in blocks) + gap))
    layouts = [_layout(blocks, columns, gap) for columns in range(1, min(beside, len(blocks)) + 1)]
    return _in_layout(blocks, min(layouts, key=lambda layout: _ugliness(layout, len(blocks), ratio, gap)), gap)


def evenly(blocks: Sequence[Block], columns: int, gap: int = GAP) -> Block:
    """Blocks in so many columns, which share the room that there is."""
    return _in_layout(blocks, _layout(blocks, min(columns, len(blocks)), gap), gap) if blocks else EMPTY


def _in_layout(blocks: Sequence[Block], layout: _Layout, gap: int) -> Block:
    columns, least, heights = layout

    def draw(parent: Element, area: Area) -> None:
        x, y, width, height = area
        wide = (max(width, least) + gap) // columns - gap
        spare = max(0, height - _height(heights, gap)) // len(heights)
        for number, high in enumerate(heights):
            for position, block in enumerate(blocks[number * columns : (number + 1) * columns]):
                block.draw(parent, Area(x + position * (wide + gap), y, wide, high + spare))
            y += high + spare + gap

    return Block(least, _height(heights, gap), draw)


def _layout(blocks: Sequence[Block], columns: int, gap: int) -> _Layout:
    rows = [blocks[start : start + columns] for start in range(0, len(blocks), columns)]
    width = max(block.width for block in blocks)
    return columns, columns * (width + gap) - gap, [max(block.height for block in each) for each in rows]


def _height(heights: Sequence[int], gap: int) -> int:
    return sum(heights) + gap * (len(heights) - 1)


def _ugliness(layout: _Layout, number: int, ratio: float, gap: int) -> float:
    """How far a layout is from the ratio, and how much of its last row is empty."""
    columns, width, heights = layout
    holes = (columns * len(heights) - number) / number
    return abs(log(width / max(1, _height(heights, gap)) / ratio)) + 6 * holes


def framed(
    content: Block, css: str, label: str = "", *, gap: int = PAD, data: Mapping[str, str] | None = None
) -> Block:
    """``content`` in a box of this class under its label. ``data`` are attributes of the box's group."""
    title = text(label, "strong") if label else EMPTY
    head = title.height + GAP if label else 0
    inside = 2 * gap

    def draw(parent: Element, area: Area) -> None:
        x, y, width, height = area
        group = SubElement(parent, "g", dict(data or {}))
        shape(group, "rect", f"box {css}", x=x, y=y, width=width, height=height, rx=3)
        title.draw(group, Area(x + gap, y + gap - 2, title.width, title.height))
        content.draw(group, Area(x + gap, y + gap + head, width - inside, height - inside - head))

    return Block(max(content.width, title.width) + inside, content.height + inside + head, draw)


def hatched(parent: Element, area: Area) -> None:
    """Slanted lines over a rectangle, so that it differs from others without colour too."""
    x, y, width, height = area
    lines = []
    for start in range(-height + 5, width, 6):
        left, right = max(start, 0), min(start + height, width)
        if left < right:
            lines.append(f"M{x + left} {y + height - (left - start)}L{x + right} {y + height - (right - start)}")
    if lines:
        SubElement(parent, "path", {"class": "hatch", "d": "".join(lines)})


def chip(label: str, css: str, *, most: int = 420, words: str = "", hatch: bool = False) -> Block:
    """A small box around a text."""
    inner = text(label, most=most)
    height = FONT + 9

    def draw(parent: Element, area: Area) -> None:
        x, y, _, _ = area
        group = SubElement(parent, "g", {"class": "chip"})
        shape(group, "rect", f"box {css}", x=x, y=y, width=inner.width + 10, height=height, rx=3)
        if hatch:
            hatched(group, Area(x + inner.width + 10, y, 12, height))
        inner.draw(group, Area(x + 5, y + 3, inner.width, inner.height))
        if words:
            explain(group, words)

    return Block(inner.width + 10 + (12 if hatch else 0), height, draw)


@dataclass(frozen=True)
class Part:
    """A part of a bar: its size in any unit, its class, what is written into it where there is room, and in words."""

    size: float
    css: str
    label: str = ""
    words: str = ""
    hatch: bool = False


def bar(parts: Sequence[Part], width: int, height: int = 16, *, total: float = 0) -> Block:
    """Parts beside each other, together ``total`` long (default: their sum). Stretches to the room that it is given.

    Parts that are more than ``total`` end with the bar.
    """
    whole = total or sum(part.size for part in parts) or 1

    def draw(parent: Element, area: Area) -> None:
        x, y, wide, _ = area
        shape(parent, "rect", "box track", x=x, y=y, width=wide, height=height)
        before = 0.0
        for part in parts:
            start, end = (min(wide, round(size / whole * wide)) for size in (before, before + part.size))
            before += part.size
            if end > start:
                _draw_part(parent, part, Area(x + start, y, end - start, height))

    return Block(width, height, draw)


def _draw_part(parent: Element, part: Part, area: Area) -> None:
    x, y, width, height = area
    rectangle = shape(parent, "rect", f"box {part.css}", x=x, y=y, width=width, height=height)
    if part.words:
        explain(rectangle, part.words)
    fits = part.label and text_width(part.label) + 6 <= width
    if part.hatch and not fits:
        hatched(parent, area)
    elif part.hatch:
        beside = text_width(part.label) + 8
        hatched(parent, Area(x + beside, y, width - beside, height))
    if fits:
        put_text(parent, x + 4, y + height - 4, part.label)
