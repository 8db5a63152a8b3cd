"""The pictures of the documentation are those that the commands draw now, byte for byte, and small."""

from xml.etree import ElementTree

import pytest
from tests.clusters import ROOT
from tests.picture.drawn import of_class
from verify.pictures.examples import EXAMPLES, Example, drawn

from topomend.picture.form import HTML, SVG

PICTURES = ROOT / "docs" / "pictures"

BY_NAME = {example.name: example for example in EXAMPLES}

EACH = pytest.mark.parametrize("example", EXAMPLES, ids=list(BY_NAME))


@EACH
def test_a_picture_is_what_its_command_draws(example: Example) -> None:
    """``make generate`` draws them again."""
    assert (PICTURES / f"{example.name}.svg").read_text() == drawn(example, SVG)


def test_there_is_no_picture_that_nobody_draws() -> None:
    assert {path.stem for path in PICTURES.iterdir()} == set(BY_NAME)
    assert len(BY_NAME) == 10


@EACH
def test_the_page_has_the_drawing_of_the_file_and_tables_beside_it(example: Example) -> None:
    page = drawn(example, HTML)
    svg = ElementTree.fromstring((PICTURES / f"{example.name}.svg").read_text())  # noqa: S314 - our own text
    for text in (element.text or "" for element in svg.iter("{http://www.w3.org/2000/svg}text")):
        assert text.replace("&", "&amp;") in page
    assert "<table>" in page


def test_the_largest_machine_is_drawn_whole_in_200_kilobytes() -> None:
    example = BY_NAME["node-256-cpus"]
    svg = drawn(example, SVG)
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own text
    assert [len(of_class(root, name)) for name in ("pu", "b-core", "b-numa", "b-package")] == [256, 128, 8, 2]
    assert max(len(svg.encode()), len(drawn(example, HTML).encode())) <= 200_000
