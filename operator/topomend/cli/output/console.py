"""All that a command prints goes through here: lines for people, and data for programs.

Whatever somebody else wrote into an object reaches the administrator's terminal by these lines: a node's agent, a
device plugin, a user, or a server's error. So a line is escaped here, whoever wrote it, and not where it is made.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import click

from topomend.base.plain_text import visible


def echo(line: str = "", *, err: bool = False) -> None:
    """Print one line for people: what is not printable is escaped."""
    click.echo(visible(line), err=err)


def echo_styled(*parts: tuple[str, Mapping[str, Any]]) -> None:
    """Print one line for people of these parts, each with its style, as ``click.style`` takes it."""
    click.echo("".join(click.style(visible(text), **style) for text, style in parts))


def echo_lines(lines: Iterable[str]) -> None:
    """Print lines for people."""
    for line in lines:
        echo(line)


def echo_data(text: str, *, nl: bool = True) -> None:
    """Print what a program reads: a document, whose encoder escapes by its own rules, or a script of our own."""
    click.echo(text, nl=nl)


def echo_progress(words: str, width: int) -> None:
    """Replace the line on the terminal, on stderr, by these words, cut to its ``width``."""
    click.echo(f"\r\033[K{visible(words)[: width - 1]}", nl=False, err=True)
