import pytest
from hypothesis import given
from hypothesis import strategies as st

from topomend.model.bitmask import MAX_ID, InvalidIDList, format_id_list, lowest, mask_of, members, parse_id_list


@given(st.sets(st.integers(0, 600)))
def test_a_set_survives_being_written_and_read(ids: set[int]) -> None:
    assert list(members(parse_id_list(format_id_list(mask_of(ids))))) == sorted(ids)


@pytest.mark.parametrize(
    ("text", "ids"),
    [("", []), ("0", [0]), ("0-3,8", [0, 1, 2, 3, 8]), ("8,0-1\n", [0, 1, 8]), ("2,2,1-2", [1, 2])],
)
def test_a_cpulist_is_read_as_the_kernel_writes_it(text: str, ids: list[int]) -> None:
    assert list(members(parse_id_list(text))) == ids


@pytest.mark.parametrize(
    "text", ["x", "1-", "-1", "3-1", "1-2-3", "0x1", "\u0661", "1e3", str(MAX_ID), "0-999999999999"]
)
def test_a_text_that_is_no_cpulist_is_refused_with_its_wrong_part(text: str) -> None:
    with pytest.raises(InvalidIDList, match=r"is not|is outside"):
        parse_id_list(text)


def test_runs_are_collapsed() -> None:
    assert format_id_list(mask_of([0, 1, 2, 5, 7, 8])) == "0-2,5,7-8"


def test_the_lowest_id_is_found_without_listing_the_set() -> None:
    assert lowest(mask_of([9, 4, 70])) == 4


def test_an_id_beyond_any_machine_is_refused() -> None:
    with pytest.raises(InvalidIDList, match="16384"):
        mask_of([MAX_ID])
