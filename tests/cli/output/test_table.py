"""Columns of a terminal's tables."""

import pytest

from topomend.cli.output.table import aligned_rows, echo_table


def test_a_list_has_its_columns_three_spaces_apart_and_no_space_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    echo_table([("NAME", "STATE", "WHY"), ("train-9", "up", "")])
    assert capsys.readouterr().out == "NAME      STATE   WHY\ntrain-9   up\n"


def test_figures_are_aligned_on_the_right_of_their_columns() -> None:
    assert aligned_rows([("", "asked", "free"), ("cpu", "3", "12")]) == ["     asked  free", "cpu      3    12"]


def test_a_table_without_rows_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    echo_table([])
    assert capsys.readouterr().out == ""
    assert aligned_rows([]) == []
