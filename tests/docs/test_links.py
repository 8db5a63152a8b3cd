"""Every link between the pages leads to a file, and to a heading in it. Every file that a page names exists."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clusters import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])

LINK = re.compile(r"\]\(([^)\s]+)\)")

MODULE = re.compile(r"`((?:\w+/)+\w+\.py)`")

ABOVE = [ROOT, ROOT / "operator" / "topomend", ROOT / "verify"]
"""Pages name a module from one of these folders on."""

ABSENT = {"operator/__init__.py"}
"""What pages name because it must not exist."""


def links(path: Path) -> Iterator[str]:
    """The targets of a page's links into this repository."""
    for target in LINK.findall(path.read_text()):
        if "://" not in target:
            yield target


def anchors(path: Path) -> set[str]:
    """What the forge makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_each_link_leads_to_a_file_and_to_a_heading_in_it(page: Path) -> None:
    dead = []
    for target in links(page):
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            dead.append(target)
    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_each_module_that_a_page_names_exists(page: Path) -> None:
    named = {*MODULE.findall(page.read_text())} - ABSENT
    assert [name for name in sorted(named) if not any((folder / name).exists() for folder in ABOVE)] == []


def test_the_index_leads_to_every_page() -> None:
    """Each page of ``docs`` can be reached from its index, by links alone."""
    index = ROOT / "docs" / "README.md"
    reached, ahead = {index}, [index]
    while ahead:
        page = ahead.pop()
        found = {(page.parent / target.partition("#")[0]).resolve() for target in links(page)} & set(PAGES)
        ahead += found - reached
        reached |= found
    pages = [page for page in PAGES if page.is_relative_to(ROOT / "docs")]
    assert [str(page.relative_to(ROOT)) for page in pages if page not in reached] == []
