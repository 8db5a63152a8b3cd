"""What a drawing shows, read out of its elements."""

from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from topomend.model.nodes.node_state import NodeState
from topomend.picture.drawing.document import Picture, Section, Table
from topomend.picture.drawing.page import written
from topomend.picture.form import HTML, SVG
from topomend.picture.machine.facts import Subject
from topomend.picture.machine.node import section_of

_SVG = "{http://www.w3.org/2000/svg}"


def svg_of(*sections: Section) -> Element:
    """The file as a reader of SVG sees it."""
    return ElementTree.fromstring(written(Picture("title", sections), SVG))  # noqa: S314 - our own text


def html_of(*sections: Section) -> str:
    """The page."""
    return written(Picture("title", sections), HTML)


def svg_of_node(state: NodeState) -> Element:
    """The drawing of a node."""
    return svg_of(section_of(Subject(state)))


def of_class(root: Element, name: str) -> list[Element]:
    """The elements of a class."""
    return [element for element in root.iter() if name in element.get("class", "").split()]


def texts(root: Element) -> list[str]:
    """The texts of a drawing in their order."""
    return [element.text or "" for element in root.iter(f"{_SVG}text")]


def titles(root: Element) -> list[str]:
    """What is shown beside the pointer."""
    return [element.text or "" for element in root.iter(f"{_SVG}title")]


def table_of(section: Section, beginning: str) -> Table:
    """The table whose caption begins so."""
    return next(each for each in section.tables if each.caption.startswith(beginning))
