"""``-o``: how a command prints its answer. The same words on every command, as kubectl has them.

``table`` and ``wide`` are for people, ``name`` is for the next command. ``json`` and ``yaml`` print one document, whose
fields docs/reference.md lists: they stay as they are, and new ones may be added. ``svg`` and ``html`` are one file with
the answer as a picture, on the commands that draw.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from topomend.cli.output.console import echo, echo_data
from topomend.cli.output.failures import BadInput
from topomend.cli.output.table import column_widths, echo_row, visible_rows
from topomend.cli.output.terminal import Style
from topomend.picture.form import PICTURES

TABLE, WIDE, JSON, YAML, NAME = "table", "wide", "json", "yaml", "name"

DOCUMENTS = (JSON, YAML)
"""The formats for programs."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


def output_option(*formats: str, pictures: bool = False) -> Callable[[_Command], _Command]:
    """Give a command ``-o``, by default with every format but pictures; the value arrives as ``output``."""
    formats = formats or (TABLE, WIDE, JSON, YAML, NAME)
    return click.option(
        "-o",
        "--output",
        type=click.Choice((*formats, *PICTURES) if pictures else formats),
        default=formats[0],
        show_default=True,
        help="The format of the output; svg and html are a picture, as one file."
        if pictures
        else "The format of the output.",
    )


watch_option = click.option(
    "-w", "--watch", is_flag=True, help="After the answer, print each change until interrupted (Ctrl-C)."
)


def check_watch(output: str, *, watch: bool) -> None:
    """Raise BadInput for a picture that is to follow what changes."""
    if watch and output in PICTURES:
        raise BadInput(f"--watch with -o {output}: a picture is one file, which does not change; leave --watch out")


def echo_document(content: Any, output: str, *, more: bool = False) -> None:
    """Print ``content`` as JSON or YAML; ``more`` if it follows another document."""
    if more and output == YAML:
        echo_data("---")
    echo_data(document_text(content, output))


def document_text(content: Any, output: str) -> str:
    """``content`` as JSON or YAML."""
    if output == JSON:
        return json.dumps(content, indent=1)
    from topomend.cli.output.yaml_text import yaml_text  # noqa: PLC0415  slow to import

    return yaml_text(content).rstrip("\n")


def object_name(api_version: str, kind: str, name: str) -> str:
    """``deployment.apps/web``: an object as ``-o name`` prints it and kubectl takes it."""
    group = api_version.rpartition("/")[0]
    return f"{kind.lower()}{f'.{group}' if group else ''}/{name}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of an answer: its cells, further cells for ``wide``, the record for programs, the object's name.

    ``key`` identifies the row: a row with the same key and another record has changed. Cells may age. ``styles`` are
    those of cells on a terminal, by their headings.
    """

    key: tuple[str, ...]
    cells: tuple[str, ...] = field(compare=False)
    record: Mapping[str, Any]
    name: str
    wide: tuple[str, ...] = field(default=(), compare=False)
    styles: Mapping[str, Style] = field(default_factory=dict, compare=False)


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
            self._echo_cells([self._headings, *map(self._cells, rows)], [{}, *map(self._styles, rows)])

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
            self._echo_cells([*map(self._cells, changed)], [*map(self._styles, changed)])

    @property
    def _headings(self) -> tuple[str, ...]:
        return (*self.heading, *self.wide) if self.output == WIDE else self.heading

    def _cells(self, row: Row) -> tuple[str, ...]:
        return (*row.cells, *row.wide) if self.output == WIDE else row.cells

    def _styles(self, row: Row) -> dict[int, Style]:
        """The styles of its cells by their positions."""
        return {self._headings.index(heading): style for heading, style in row.styles.items()}

    def _echo_cells(self, lines: Sequence[Sequence[str]], styles: Sequence[Mapping[int, Style]]) -> None:
        """Print lines whose columns are as wide as those printed before, at least."""
        lines = visible_rows(lines)
        self._widths = column_widths([["x" * width for width in self._widths], *lines] if self._widths else lines)
        for line, its in zip(lines, styles, strict=True):
            echo_row(line, self._widths, its)

    @staticmethod
    def _echo_names(rows: Sequence[Row]) -> None:
        for name in dict.fromkeys(row.name for row in rows):
            echo(name)
