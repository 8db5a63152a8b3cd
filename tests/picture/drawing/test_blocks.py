"""Blocks: how large they are, that what they draw stays in them, and that texts never leave their boxes."""

from xml.etree.ElementTree import Element

import pytest

from topomend.picture.drawing.blocks import (
    EMPTY,
    Area,
    Block,
    Part,
    bar,
    chip,
    column,
    cut,
    evenly,
    flow,
    framed,
    grid,
    hatched,
    row,
    shape,
    text,
    text_width,
)


def square(side: int) -> Block:
    def draw(parent: Element, area: Area) -> None:
        shape(parent, "rect", "box", x=area.x, y=area.y, width=area.width, height=area.height)

    return Block(side, side, draw)


def areas(block: Block, width: int = 0, height: int = 0) -> list[Area]:
    """Where the rectangles of a block are."""
    root = Element("svg")
    block.draw(root, Area(0, 0, max(width, block.width), max(height, block.height)))
    return [Area(*(int(rect.attrib[name]) for name in Area._fields)) for rect in root.iter("rect")]


def test_a_text_is_cut_to_its_room_and_keeps_all_of_it_as_its_title() -> None:
    root = Element("svg")
    text("a-long-name-of-a-pod", most=80).draw(root, Area(0, 0, 80, 15))
    [drawn] = root
    assert (drawn.text or "").endswith("…")
    assert text_width(drawn.text or "") <= 80
    assert [title.text for title in drawn] == ["a-long-name-of-a-pod"]
    assert cut("short", 80) == "short"


@pytest.mark.parametrize(("words", "columns"), [("ab", 2), ("漢字", 4), ("e\u0301", 1)])
def test_letters_of_east_asia_are_two_wide_and_accents_take_no_room(words: str, columns: int) -> None:
    assert text_width(words) == text_width("x" * columns)


def test_what_is_not_printable_is_escaped_before_it_is_measured() -> None:
    assert text("\x1b[2J\u202e").width == text_width(r"\x1b[2J\u202e")


def test_a_column_is_as_wide_as_its_widest_and_a_row_has_one_middle() -> None:
    assert (column([square(10), square(30)], 4).width, column([square(10), square(30)], 4).height) == (30, 44)
    assert [area.y for area in areas(row([square(10), square(30)], 4))] == [10, 0]
    assert column([]) is EMPTY
    assert row([EMPTY]) is EMPTY


def test_a_flow_begins_a_new_row_where_there_is_no_room() -> None:
    assert [(area.x, area.y) for area in areas(flow([square(10)] * 3, 25, 5))] == [(0, 0), (15, 0), (0, 15)]


def test_a_grid_has_no_hole_where_another_has_none_and_never_exceeds_its_width() -> None:
    assert len({area.y for area in areas(grid([square(10)] * 8, 100))}) == 2
    assert grid([square(10)] * 8, 100).width <= 100
    assert len({area.x for area in areas(grid([square(10)] * 8, 12))}) == 1


def test_blocks_of_a_grid_share_the_room_that_there_is() -> None:
    assert [area.width for area in areas(evenly([square(10)] * 2, 2, 4), width=64)] == [30, 30]
    assert areas(grid([square(10)] * 2, 12, gap=4), height=44)[1] == (0, 24, 10, 20)


def test_a_frame_is_around_its_content_and_its_label() -> None:
    outer, inner = areas(framed(square(40), "numa", "NUMA 0"))
    assert outer.x < inner.x
    assert inner.y + inner.height < outer.y + outer.height
    assert outer.width >= text_width("NUMA 0")


def test_the_parts_of_a_bar_are_as_long_as_their_shares_and_what_is_nothing_is_not_drawn() -> None:
    track, first, second = areas(bar([Part(1, "h0"), Part(0, "h1"), Part(2, "h2")], 100, total=4))
    assert (track.width, first.width, second.width) == (100, 25, 50)
    assert second.x == 25


def test_parts_that_are_more_than_the_whole_end_with_the_bar() -> None:
    track, *parts = areas(bar([Part(3, "h0"), Part(3, "h1"), Part(3, "h2")], 100, total=4))
    assert [part.x + part.width for part in parts] == [75, 100]
    assert track.width == 100


def test_a_part_has_its_label_where_there_is_room_and_is_hatched_beside_it() -> None:
    root = Element("svg")
    bar([Part(1, "h0", "label", "words", hatch=True)], 200).draw(root, Area(0, 0, 200, 16))
    bar([Part(1, "h0", "label", "words")], 10).draw(root, Area(0, 0, 10, 16))
    assert [each.text for each in root.iter("text")] == ["label"]
    assert [each.text for each in root.iter("title")] == ["words", "words"]
    assert len(list(root.iter("path"))) == 1


@pytest.mark.parametrize("area", [Area(3, 4, 50, 16), Area(0, 0, 2, 16), Area(0, 0, 50, 3)])
def test_a_hatch_stays_in_its_area(area: Area) -> None:
    root = Element("svg")
    hatched(root, area)
    for path in root:
        points = [point.split() for point in path.attrib["d"].replace("L", "M").split("M")[1:]]
        assert all(area.x <= int(x) <= area.x + area.width for x, _ in points)
        assert all(area.y <= int(y) <= area.y + area.height for _, y in points)


def test_a_chip_is_as_wide_as_its_text_needs_and_says_more_beside_the_pointer() -> None:
    root = Element("svg")
    block = chip("gpu-0", "free", words="vendor.com/gpu gpu-0: free")
    block.draw(root, Area(0, 0, block.width, block.height))
    assert block.width >= text_width("gpu-0")
    assert [each.text for each in root.iter("title")] == ["vendor.com/gpu gpu-0: free"]
