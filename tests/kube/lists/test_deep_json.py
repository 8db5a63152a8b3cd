"""JSON is decoded as by Python's decoder, but for what is too deep for that."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kube.lists.test_list_stream import JSON

from topomend.kube.lists import deep_json
from topomend.kube.lists.deep_json import MAX_LEVELS, decode, loads, without_depths

LEVELS = 2
"""In the place of MAX_LEVELS in a test of shallow values."""


def cut(value: Any, level: int = 0) -> Any:
    """What has to be left of a value."""
    if isinstance(value, list | dict) and level == LEVELS:
        return None
    if isinstance(value, list):
        return [cut(each, level + 1) for each in value]
    return {name: cut(each, level + 1) for name, each in value.items()} if isinstance(value, dict) else value


@given(st.lists(JSON, max_size=3) | st.dictionaries(st.text(), JSON, max_size=3), st.sampled_from([None, 1]), st.text())
def test_what_is_too_deep_is_null_and_all_else_as_it_was(value: Any, indent: int | None, rest: str) -> None:
    text = json.dumps(value, indent=indent, separators=(",", ":"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep_json, "MAX_LEVELS", LEVELS)
        shallow, end = without_depths(f" {text}{rest}", 1)
    assert json.loads(shallow) == cut(value)
    assert end == len(text) + 1


@given(st.lists(JSON, max_size=3), st.data())
def test_a_list_that_is_cut_short_does_not_end(value: list[Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    with pytest.raises(json.JSONDecodeError):
        without_depths(text[: data.draw(st.integers(1, len(text) - 1))], 0)


@pytest.mark.parametrize("levels", [MAX_LEVELS, 5_000, 200_000])
def test_an_object_of_so_many_levels_is_decoded(levels: int) -> None:
    text = '{"name":"]}[","deep":' + "[" * levels + '"\\""' + "]" * levels + ',"last":1}'
    value, end = decode(f"{text},", 0)
    assert (value["name"], value["last"], end) == ("]}[", 1, len(text))
    assert loads(f" {text}\n".encode()) == value
    left = MAX_LEVELS if levels == MAX_LEVELS else MAX_LEVELS - 1  # the object itself is a level
    inmost = '"\\""' if levels == MAX_LEVELS else "null"
    assert json.dumps(value["deep"]) == "[" * left + inmost + "]" * left


def test_what_follows_a_deep_value_is_not_ignored() -> None:
    with pytest.raises(json.JSONDecodeError):
        loads("[" * 5_000 + "]" * 5_000 + " 1")
