"""Every text can be read on what is behind it, light and dark (WCAG 2.2: 1.4.3, 1.4.11)."""

from collections.abc import Mapping

import pytest

from topomend.picture.drawing.theme import DARK, DRAWING_CSS, HOLDER_COLOURS, LIGHT, PAGE_CSS

HOLDERS = [f"h{number}" for number in range(HOLDER_COLOURS)]

BACKGROUNDS = ["page", "machine", "package", "numa", "cache", "core", "free", "reserved", "device", *HOLDERS]

TEXTS = [
    *(("text", behind) for behind in BACKGROUNDS),
    *(("muted", behind) for behind in ("page", "machine", "numa", "cache")),
    *((colour, behind) for colour in ("bad", "good") for behind in ("page", "numa")),
    ("link", "page"),
]


def luminance(colour: str) -> float:
    """The relative luminance of WCAG."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted([luminance(one), luminance(other)])
    return (lighter + 0.05) / (darker + 0.05)


def test_the_contrast_is_that_of_the_recommendation() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "behind"), TEXTS)
def test_a_text_can_be_read(colours: Mapping[str, str], text: str, behind: str) -> None:
    assert contrast(colours[text], colours[behind]) >= 4.5


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("behind", ["page", "machine", "numa", "cache", "free"])
def test_an_edge_can_be_seen(colours: Mapping[str, str], behind: str) -> None:
    assert contrast(colours["edge"], colours[behind]) >= 3


def test_both_themes_have_the_same_colours_and_the_style_sheet_names_no_other() -> None:
    assert LIGHT.keys() == DARK.keys()
    used = {part.partition(")")[0] for part in (DRAWING_CSS + PAGE_CSS).split("var(--")[1:]}
    assert used <= LIGHT.keys()
