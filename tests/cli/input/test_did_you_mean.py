"""The end of an error about a mistyped name."""

import pytest

from topomend.cli.input.did_you_mean import did_you_mean


@pytest.mark.parametrize(
    ("name", "words"),
    [("trian-9", ": did you mean train-9?"), ("train-", ": did you mean train-9?"), ("web", ""), ("", "")],
)
def test_the_nearest_name_is_suggested_unless_none_is_near(name: str, words: str) -> None:
    assert did_you_mean(name, ("train-9", "build", "train-over-night")) == words


def test_where_there_are_no_names_nothing_is_suggested() -> None:
    assert did_you_mean("train", ()) == ""
