"""Writes a picture as one SVG, or as one HTML page that a screen reader reads as well.

The page has no script, and its security policy forbids every request. What the cluster says is text in every element
and attribute: the serializer escapes it, and what is not printable is escaped before (``base.plain_text``).
"""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from topomend.base.plain_text import visible
from topomend.picture.drawing.blocks import FONT, TITLE, Area, column, shape, text
from topomend.picture.drawing.document import Drawing, Picture, Section, Table
from topomend.picture.drawing.theme import DRAWING_CSS, PAGE_CSS
from topomend.picture.form import SVG

_MARGIN, _BETWEEN = 12, 28

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def written(picture: Picture, form: str) -> str:
    """The picture as the text of a file in this format, without the last line break."""
    return _svg_file(picture) if form == SVG else _page(picture)


def _svg_file(picture: Picture) -> str:
    """The drawings below each other. A picture without any is its words."""
    drawings = [section.drawing for section in picture.sections if section.drawing] or [_words(picture)]
    width = max(drawing.width for drawing in drawings) + 2 * _MARGIN
    height = sum(drawing.height + _BETWEEN for drawing in drawings) - _BETWEEN + 2 * _MARGIN
    description = " ".join(drawing.description for drawing in drawings)
    root = _svg(width, height, picture.title, description, "picture")
    root.set("xmlns", "http://www.w3.org/2000/svg")
    SubElement(root, "style").text = DRAWING_CSS
    shape(root, "rect", "back", x=-1, y=-1, width=width + 2, height=height + 2)
    y = _MARGIN
    for drawing in drawings:
        root.append(_moved(drawing, _MARGIN, y))
        y += drawing.height + _BETWEEN
    return tostring(root, encoding="unicode")


def _words(picture: Picture) -> Drawing:
    """The words of a picture that has nothing to draw."""
    words = [*picture.words, *(line for section in picture.sections for line in (section.heading, *section.words))]
    block = column([text(picture.title, "title", size=TITLE), *(text(line, most=1200, size=FONT) for line in words)])
    element = Element("g")
    block.draw(element, Area(0, 0, block.width, block.height))
    return Drawing(element, block.width, block.height, " ".join(words))


def _svg(width: int, height: int, title: str, description: str, name: str) -> Element:
    """An SVG element that is one image to a screen reader, with a name and a description."""
    root = Element(
        "svg",
        {
            "width": str(width + 2),
            "height": str(height + 2),
            # Half of a line at the edge lies outside.
            "viewBox": f"-1 -1 {width + 2} {height + 2}",
            "role": "img",
            "aria-labelledby": f"{name}-title",
            "aria-describedby": f"{name}-description",
        },
    )
    SubElement(root, "title", {"id": f"{name}-title"}).text = visible(title)
    SubElement(root, "desc", {"id": f"{name}-description"}).text = visible(description)
    return root


def _moved(drawing: Drawing, x: int, y: int) -> Element:
    group = Element("g", {"transform": f"translate({x} {y})"})
    group.append(drawing.element)
    return group


def _page(picture: Picture) -> str:
    root = Element("html", {"lang": "en"})
    head = SubElement(root, "head")
    SubElement(head, "meta", {"charset": "utf-8"})
    SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": _POLICY})
    SubElement(head, "meta", {"name": "viewport", "content": "width=device-width,initial-scale=1"})
    SubElement(head, "meta", {"name": "color-scheme", "content": "light dark"})
    _put(head, "title", picture.title)
    SubElement(head, "style").text = DRAWING_CSS + PAGE_CSS
    body = SubElement(root, "body")
    _put(body, "a", "Skip to the answer", {"class": "skip", "href": "#answer"})
    header = SubElement(body, "header")
    _put(header, "h1", picture.title, {"id": "title"})
    for line in picture.words:
        _put(header, "p", line)
    if len(picture.sections) > 1:
        _navigation(body, picture.sections)
    main = SubElement(body, "main", {"id": "answer", "tabindex": "-1"})
    for number, section in enumerate(picture.sections):
        _section(main, section, f"s{number}", alone=len(picture.sections) == 1)
    _put(SubElement(body, "footer"), "p", "Drawn by topomend. The page loads nothing.", {"class": "muted"})
    return "<!doctype html>\n" + tostring(root, encoding="unicode", method="html")


def _put(parent: Element, tag: str, words: str, attributes: dict[str, str] | None = None) -> Element:
    element = SubElement(parent, tag, attributes or {})
    element.text = visible(words)
    return element


def _navigation(body: Element, sections: Sequence[Section]) -> None:
    entries = SubElement(SubElement(body, "nav", {"aria-label": "Sections"}), "ul")
    for number, section in enumerate(sections):
        _put(SubElement(entries, "li"), "a", section.heading, {"href": f"#s{number}"})


def _section(main: Element, section: Section, name: str, *, alone: bool) -> None:
    """A section; one that is ``alone`` needs no heading below that of the page."""
    element = SubElement(main, "section", {"aria-labelledby": "title" if alone else name})
    if not alone:
        _put(element, "h2", section.heading, {"id": name})
    for line in section.words:
        _put(element, "p", line)
    if section.drawing:
        _drawing(element, section.drawing, section.heading, f"{name}-drawing")
    for table in section.tables:
        _table(element, table)


def _drawing(parent: Element, drawing: Drawing, heading: str, name: str) -> None:
    """The drawing, which scrolls by keyboard too where the window is narrower."""
    svg = _svg(drawing.width, drawing.height, heading, drawing.description, name)
    svg.append(drawing.element)
    _scrolled(parent, f"Drawing: {heading}").append(svg)


def _scrolled(parent: Element, name: str) -> Element:
    return SubElement(parent, "div", {"class": "wide", "role": "region", "tabindex": "0", "aria-label": visible(name)})


def _table(parent: Element, table: Table) -> None:
    element = SubElement(_scrolled(parent, f"Table: {table.caption}"), "table")
    _put(element, "caption", table.caption)
    head = SubElement(SubElement(element, "thead"), "tr")
    for cell in table.heading:
        _put(head, "th", cell, {"scope": "col"})
    body = SubElement(element, "tbody")
    for first, *others in table.rows:
        row = SubElement(body, "tr")
        _put(row, "th", first, {"scope": "row"})
        for cell in others:
            _put(row, "td", cell)
