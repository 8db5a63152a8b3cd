"""Tables as kubectl prints them: no lines, columns three spaces apart, the heading in capitals."""

from collections.abc import Sequence

import click


def echo_table(rows: Sequence[Sequence[str]]) -> None:
    """Print ``rows``, the first of which is the heading, each column as wide as its widest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        click.echo("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
