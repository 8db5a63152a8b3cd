"""Tables for a terminal, without rules: one as kubectl prints lists, one with right-aligned figures."""

from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from types import MappingProxyType
from typing import Any

from topomend.base.plain_text import visible
from topomend.cli.output.console import echo_marked
from topomend.cli.output.terminal import Mark, Style

_GAP = "   "
_NONE: Mapping[Any, Style] = MappingProxyType({})


def echo_table(rows: Sequence[Sequence[str]], styles: Sequence[Mapping[str, Style]] = ()) -> None:
    """Print ``rows`` as kubectl does, the first being the heading, with three spaces between columns.

    ``styles`` are those of cells on a terminal, by their headings: for each row below the heading, or for none.
    """
    rows = visible_rows(rows)
    widths = column_widths(rows)
    for row, its in zip(rows, chain([_NONE], styles, repeat(_NONE)), strict=False):
        echo_row(row, widths, {rows[0].index(heading): style for heading, style in its.items()})


def echo_row(row: Sequence[str], widths: Sequence[int], styles: Mapping[int, Style] = _NONE) -> None:
    """Print one row of a table whose columns have these widths, and some cells, by their positions, a style."""
    begins = [sum(widths[:position]) + len(_GAP) * position for position in range(len(row))]
    marks = [Mark(begins[each], begins[each] + len(row[each]), styles[each]) for each in sorted(styles)]
    echo_marked(_row(row, widths), marks)


def _row(row: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def kubectl_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines that ``echo_table`` prints, without styles."""
    rows = visible_rows(rows)
    widths = column_widths(rows)
    return [_row(row, widths) for row in rows]


def aligned_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """One line per row: the first column left-aligned, the others right-aligned, two spaces apart."""
    rows = visible_rows(rows)
    widths = column_widths(rows)
    return ["  ".join((row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:]))).rstrip() for row in rows]


def visible_rows(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The rows as they are printed: each cell in one line, and escaped before its width is known."""
    return [[visible(cell) for cell in row] for row in rows]


def column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column; none where there are no rows."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]
