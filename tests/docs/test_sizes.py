"""One subject a page: no page is longer than a reader takes in, and the pages for users can be read in an afternoon."""

from pathlib import Path

import pytest
from tests.clusters import ROOT

DOCS = ROOT / "docs"

GENERATED = {DOCS / "reference.md", *(DOCS / "reference" / f"{name}.md" for name in ("alerts", "checks", "machines"))}
"""Pages to look things up in, as long as the code has names; tests/verify/reference compares them with the code."""

PAGES = sorted({ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")} - GENERATED)

DOORS_OF_USERS = ("try", "run", "understand")

WORDS_OF_A_PAGE, WORDS_FOR_USERS = 1_200, 12_000


def words(page: Path) -> int:
    """As ``wc -w`` counts them, tables and examples included."""
    return len(page.read_text().split())


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_a_page_is_short(page: Path) -> None:
    assert words(page) <= WORDS_OF_A_PAGE, "split it by subject, or move figures to docs/contribute/measurements.md"


def test_the_pages_for_users_are_short_together() -> None:
    lengths = {
        str(page.relative_to(DOCS)): words(page) for door in DOORS_OF_USERS for page in (DOCS / door).rglob("*.md")
    }
    assert sum(lengths.values()) <= WORDS_FOR_USERS, lengths


def test_every_page_is_behind_a_door() -> None:
    """A page elsewhere would escape the limit for users."""
    doors = {*DOORS_OF_USERS, "security", "contribute", "decisions", "reference"}
    elsewhere = {page for page in PAGES if page.is_relative_to(DOCS) and page.relative_to(DOCS).parts[0] not in doors}
    assert elsewhere == {DOCS / "README.md"}
