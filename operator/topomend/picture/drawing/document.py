"""What a picture consists of, before it is written as SVG or HTML: drawings, and the same facts in words and tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element


@dataclass(frozen=True)
class Drawing:
    """A group of SVG elements of this size in pixels, and what it shows in one sentence."""

    element: Element
    width: int
    height: int
    description: str


@dataclass(frozen=True)
class Table:
    """``rows`` are as wide as ``heading``; the first cell of a row names it."""

    caption: str
    heading: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    """A heading, sentences, at most one drawing, and tables."""

    heading: str
    drawing: Drawing | None = None
    words: Sequence[str] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Picture:
    """The whole file. ``title`` is that of the window."""

    title: str
    sections: Sequence[Section]
    words: Sequence[str] = ()
