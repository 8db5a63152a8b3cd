"""The file: one, with nothing to load, that says to a screen reader what it draws, whatever the cluster's texts are."""

from html.parser import HTMLParser
from xml.etree.ElementTree import Element, SubElement

import pytest
from tests.picture.drawn import html_of, svg_of, texts, titles
from verify.pictures.hostile import EVIL, NAMES, hostile_state

from topomend.picture.drawing.document import Drawing, Picture, Section, Table
from topomend.picture.drawing.page import written
from topomend.picture.form import HTML, PICTURES, SVG
from topomend.picture.machine.facts import Subject
from topomend.picture.machine.node import section_of


def drawing(words: str = "drawn") -> Drawing:
    element = Element("g")
    SubElement(element, "text").text = words
    return Drawing(element, 100, 50, "what it shows")


class Reader(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_a_page_has_a_language_a_title_one_first_heading_and_landmarks() -> None:
    reader = Reader(html_of(Section("one"), Section("two")))
    assert reader.all("html") == [{"lang": "en"}]
    assert [len(reader.all(tag)) for tag in ("title", "h1", "h2", "header", "nav", "main", "footer")] == [
        1, 1, 2, 1, 1, 1, 1,
    ]  # fmt: skip
    targets = {(link["href"] or "").lstrip("#") for link in reader.all("a")}
    assert targets <= {attributes["id"] for _, attributes in reader.tags if "id" in attributes}


def test_a_page_of_one_section_needs_no_second_heading_and_no_navigation() -> None:
    reader = Reader(html_of(Section("one")))
    assert (reader.all("h2"), reader.all("nav")) == ([], [])


def test_a_drawing_is_one_image_with_a_name_and_a_description_and_scrolls_by_keyboard() -> None:
    reader = Reader(html_of(Section("one", drawing()), Section("two", drawing())))
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for svg in reader.all("svg"):
        assert (svg["role"], svg["aria-labelledby"] in ids, svg["aria-describedby"] in ids) == ("img", True, True)
    regions = [attributes for attributes in reader.all("div") if attributes.get("role") == "region"]
    assert [(each["tabindex"], each["aria-label"]) for each in regions] == [
        ("0", "Drawing: one"),
        ("0", "Drawing: two"),
    ]


def test_a_table_has_a_caption_and_headings_of_columns_and_rows() -> None:
    reader = Reader(html_of(Section("one", tables=[Table("caption", ("a", "b"), [("1", "2")])])))
    assert [each["scope"] for each in reader.all("th")] == ["col", "col", "row"]
    assert len(reader.all("caption")) == len(reader.all("td")) == 1


def test_a_page_loads_nothing_and_has_no_script() -> None:
    page = html_of(section_of(Subject(hostile_state())))
    reader = Reader(page)
    [policy] = [each["content"] for each in reader.all("meta") if each.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert {tag for tag, _ in reader.tags} & {"script", "img", "link", "iframe", "object", "use", "image"} == set()
    assert [each for _, each in reader.tags if "src" in each or "style" in each or "onerror" in each] == []
    assert "url(" not in page
    assert "@import" not in page


@pytest.mark.parametrize("form", PICTURES)
def test_texts_of_the_cluster_are_texts_and_nothing_unprintable_is_left(form: str) -> None:
    file = written(Picture(EVIL, [section_of(Subject(hostile_state()))], NAMES), form)
    assert [letter for letter in file if not letter.isprintable() and letter != "\n"] == []
    assert "<script" not in file
    assert r"\x1b[2J\x00\u202e" in file
    file.encode()


def test_a_hostile_name_is_shown_whole_in_drawing_and_table() -> None:
    section = section_of(Subject(hostile_state()))
    assert f"CPU 2: {EVIL}/{EVIL} {EVIL}" in titles(svg_of(section))
    assert EVIL in "".join(Reader(html_of(section)).words)


def test_the_drawings_of_a_file_are_below_each_other() -> None:
    svg = svg_of(Section("one", drawing("first")), Section("none"), Section("two", drawing("second")))
    assert (svg.attrib["width"], svg.attrib["height"]) == ("126", "154")
    assert texts(svg) == ["first", "second"]
    assert "what it shows what it shows" in [element.text for element in svg]


def test_a_picture_without_a_drawing_is_its_words() -> None:
    file = written(Picture("title", [Section("No room", words=["nobody can go"])], ["said"]), SVG)
    assert all(words in file for words in ("title", "said", "No room", "nobody can go"))
    assert "nobody can go" in written(Picture("title", [Section("No room", words=["nobody can go"])]), HTML)
