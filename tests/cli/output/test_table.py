"""Columns of a terminal's tables."""

import click
import pytest

from topomend.cli.output.table import aligned_rows, echo_table
from topomend.cli.output.terminal import BAD


def test_a_list_has_its_columns_three_spaces_apart_and_no_space_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    echo_table([("NAME", "STATE", "WHY"), ("train-9", "up", "")])
    assert capsys.readouterr().out == "NAME      STATE   WHY\ntrain-9   up\n"


def test_a_cell_is_painted_in_its_own_row_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with click.Context(click.Command("c"), color=True):
        echo_table([("NAME", "STATE"), ("a", "0"), ("b", "0"), ("c", "0")], [{}, {"STATE": BAD}])
    assert capsys.readouterr().out == f"NAME   STATE\na      0\nb      {click.style('0', fg='red')}\nc      0\n"


def test_figures_are_aligned_on_the_right_of_their_columns() -> None:
    assert aligned_rows([("", "asked", "free"), ("cpu", "3", "12")]) == ["     asked  free", "cpu      3    12"]


def test_a_table_without_rows_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    echo_table([])
    assert capsys.readouterr().out == ""
    assert aligned_rows([]) == []
