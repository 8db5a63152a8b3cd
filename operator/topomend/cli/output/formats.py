"""``-o``: how a command prints its answer. The same words on every command, as kubectl has them.

``table`` and ``wide`` are for people, ``name`` is for the next command. ``json`` and ``yaml`` print one document, whose
fields docs/reference.md lists: they stay as they are, and new ones may be added.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click
import yaml

from topomend.cli.output.console import echo, echo_data
from topomend.cli.output.table import column_widths, echo_row, visible_rows

TABLE, WIDE, JSON, YAML, NAME = "table", "wide", "json", "yaml", "name"

DOCUMENTS = (JSON, YAML)
"""The formats for programs."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


def output_option(*formats: str) -> Callable[[_Command], _Command]:
    """Give a command ``-o``, by default with every format; the value arrives as ``output``."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats or (TABLE, WIDE, JSON, YAML, NAME)),
        default=(formats or (TABLE,))[0],
        show_default=True,
        help="The format of the output.",
    )


watch_option = click.option(
    "-w", "--watch", is_flag=True, help="After the answer, print each change until interrupted (Ctrl-C)."
)


def echo_document(content: Any, output: str, *, more: bool = False) -> None:
    """Print ``content`` as JSON or YAML; ``more`` if it follows another document."""
    if more and output == YAML:
        echo_data("---")
    echo_data(document_text(content, output))


def document_text(content: Any, output: str) -> str:
    """``content`` as JSON or YAML."""
    if output == JSON:
        return json.dumps(content, indent=1)
    return yaml.safe_dump(content, sort_keys=False).rstrip("\n")


def object_name(api_version: str, kind: str, name: str) -> str:
    """``deployment.apps/web``: an object as ``-o name`` prints it and kubectl takes it."""
    group = api_version.rpartition("/")[0]
    return f"{kind.lower()}{f'.{group}' if group else ''}/{name}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of an answer: its cells, further cells for ``wide``, the record for programs, the object's name.

    ``key`` identifies the row: a row with the same key and another record has changed. Cells may age.
    """

    key: tuple[str, ...]
    cells: tuple[str, ...] = field(compare=False)
    record: Mapping[str, Any]
    name: str
    wide: tuple[str, ...] = field(default=(), compare=False)


@dataclass
class Printer:
    """Prints rows under headings in the format ``output``; afterwards only the rows that changed."""

    output: str
    heading: tuple[str, ...]
    wide: tuple[str, ...] = ()
    _printed: dict[tuple[str, ...], Row] = field(default_factory=dict)
    _widths: list[int] = field(default_factory=list)

    @property
    def for_people(self) -> bool:
        """Whether the format is one that people read: further lines may stand beside the rows."""
        return self.output in (TABLE, WIDE)

    def first(self, rows: Sequence[Row], document: Any) -> None:
        """Print all rows, or the whole ``document``."""
        self._printed = {row.key: row for row in rows}
        if self.output in DOCUMENTS:
            echo_document(document, self.output)
        elif self.output == NAME:
            self._echo_names(rows)
        else:
            self._echo_cells([self._headings, *map(self._cells, rows)])

    def next(self, rows: Sequence[Row]) -> None:
        """Print the rows that are new or other than when they were last printed, each a document of its own."""
        changed = [row for row in rows if self._printed.get(row.key) != row]
        self._printed = {row.key: row for row in rows}
        if self.output in DOCUMENTS:
            for row in changed:
                echo_document(row.record, self.output, more=True)
        elif self.output == NAME:
            self._echo_names(changed)
        else:
            self._echo_cells([self._cells(row) for row in changed])

    @property
    def _headings(self) -> tuple[str, ...]:
        return (*self.heading, *self.wide) if self.output == WIDE else self.heading

    def _cells(self, row: Row) -> tuple[str, ...]:
        return (*row.cells, *row.wide) if self.output == WIDE else row.cells

    def _echo_cells(self, lines: Sequence[Sequence[str]]) -> None:
        """Print lines whose columns are as wide as those printed before, at least."""
        lines = visible_rows(lines)
        self._widths = column_widths([["x" * width for width in self._widths], *lines] if self._widths else lines)
        for line in lines:
            echo_row(line, self._widths)

    @staticmethod
    def _echo_names(rows: Sequence[Row]) -> None:
        for name in dict.fromkeys(row.name for row in rows):
            echo(name)
