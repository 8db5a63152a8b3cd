"""Options are parsed and printed as Go does."""

import pytest

from topomend.replay.options import InvalidOption, go_map, parse_bool


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_a_switch_is_on(text: str) -> None:
    assert parse_bool("full-pcpus-only", text)


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_a_switch_is_off(text: str) -> None:
    assert not parse_bool("full-pcpus-only", text)


@pytest.mark.parametrize("text", ["", "yes", "tRUE", "2", " true"])
def test_anything_else_is_no_switch(text: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_bool("full-pcpus-only", text)
    assert str(caught.value) == (
        f'bad value for option "full-pcpus-only": strconv.ParseBool: parsing "{text}": invalid syntax'
    )


def test_a_map_is_written_in_the_order_of_its_names() -> None:
    assert go_map({"b": "1", "a": "2"}) == "map[a:2 b:1]"
