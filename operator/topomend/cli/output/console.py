"""All that a command prints goes through here: lines for people, and data for programs.

Whatever somebody else wrote into an object reaches the administrator's terminal by these lines: a node's agent, a
device plugin, a user, or a server's error. So a line is escaped here, whoever wrote it, and not where it is made.
How it looks on a terminal is left to ``terminal``.
"""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click

from topomend.base.plain_text import visible
from topomend.cli.output.terminal import STATUSES, Style, columns, has_colours, status_of, wrapped
from topomend.cli.output.waiting import Terminal

_TERMINAL = Terminal()


def echo(line: str = "", *, err: bool = False) -> None:
    """Print one line for people: what is not printable is escaped. On a terminal it is wrapped and painted."""
    _TERMINAL.clear()
    shown = wrapped(visible(line), columns(err=err))
    if word := status_of(shown):
        shown = _styled(word, STATUSES[word]) + shown.removeprefix(word)
    click.echo(shown, err=err)


def echo_styled(*parts: tuple[str, Style]) -> None:
    """Print one line for people of these parts, each with its style."""
    _TERMINAL.clear()
    click.echo("".join(_styled(visible(text), style) for text, style in parts))


def _styled(text: str, style: Style) -> str:
    return click.style(text, **style) if style and has_colours() else text


def echo_lines(lines: Iterable[str]) -> None:
    """Print lines for people."""
    for line in lines:
        echo(line)


def echo_data(text: str, *, nl: bool = True) -> None:
    """Print what a program reads: a document, whose encoder escapes by its own rules, or a script of our own."""
    _TERMINAL.clear()
    click.echo(text, nl=nl)


def confirm(question: str) -> None:
    """Go on if the user agrees. Raises click.Abort."""
    _TERMINAL.clear()
    click.confirm(visible(question), abort=True, err=True)


@contextmanager
def waiting(words: str) -> Iterator[None]:
    """During the block, until something is printed, say ``words`` on the terminal where that takes over two seconds."""
    with _TERMINAL.waiting(echo_progress, words):
        yield


def echo_progress(words: str) -> None:
    """Replace the terminal's last line, on stderr, by these words, cut to its width: a second line would remain."""
    width = shutil.get_terminal_size().columns
    click.echo(f"\r\033[K{visible(words)[: width - 1]}", nl=False, err=True)
