"""Tables for a terminal, without rules: one as kubectl prints lists, one with right-aligned figures."""

from collections.abc import Sequence

from topomend.base.plain_text import visible
from topomend.cli.output.console import echo, echo_lines


def echo_table(rows: Sequence[Sequence[str]]) -> None:
    """Print ``rows`` as kubectl does, the first being the heading, with three spaces between columns."""
    echo_lines(kubectl_rows(rows))


def echo_row(row: Sequence[str], widths: Sequence[int]) -> None:
    """Print one row of a table whose columns have these widths."""
    echo(_row(row, widths))


def _row(row: Sequence[str], widths: Sequence[int]) -> str:
    return "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def kubectl_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines that ``echo_table`` prints."""
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
