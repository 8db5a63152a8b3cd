"""All that a command prints goes through here: lines for people, and data for programs.

Whatever somebody else wrote into an object reaches the administrator's terminal by these lines: a node's agent, a
device plugin, a user, or a server's error. So a line is escaped here, whoever wrote it, and not where it is made.
How it looks on a terminal is left to ``terminal``.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import click

from topomend.base.plain_text import visible
from topomend.cli.output.failures import CannotPrint
from topomend.cli.output.terminal import (
    PLAIN,
    STATUSES,
    Mark,
    Style,
    columns,
    has_colours,
    parts_of,
    status_of,
    verdicts_in,
    wrapped,
)
from topomend.cli.output.waiting import Terminal, Words

_TERMINAL = Terminal()


def echo(line: str = "", *, err: bool = False, style: Style = PLAIN) -> None:
    """Print one line for people: what is not printable is escaped. On a terminal it is wrapped and painted."""
    _TERMINAL.clear()
    shown = wrapped(visible(line), columns(err=err))
    if word := status_of(shown):
        shown = _styled(word, STATUSES[word]) + shown.removeprefix(word)
    _print(_styled(shown, style), err=err)


def echo_answer(lines: Iterable[str]) -> None:
    """Print lines that answer a question for people: the words that say yes or no are painted."""
    for line in lines:
        _TERMINAL.clear()
        shown = wrapped(visible(line), columns())
        _echo_parts(shown, verdicts_in(shown))


def echo_marked(line: str, marks: Sequence[Mark]) -> None:
    """Print one line for people whose ``marks`` are painted, but for those that the terminal's width breaks."""
    _TERMINAL.clear()
    shown = wrapped(visible(line), columns())
    _echo_parts(shown, [mark for mark in marks if shown[mark.begin : mark.end] == line[mark.begin : mark.end]])


def _echo_parts(shown: str, marks: Iterable[Mark]) -> None:
    _print("".join(_styled(text, style) for text, style in parts_of(shown, marks)))


def echo_styled(*parts: tuple[str, Style]) -> None:
    """Print one line for people of these parts, each with its style."""
    _TERMINAL.clear()
    _print("".join(_styled(visible(text), style) for text, style in parts))


def _print(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Raises CannotPrint, and BrokenPipeError where nobody reads on: click ends the program without a word then."""
    try:
        click.echo(text, nl=nl, err=err)
    except OSError as error:
        if err or isinstance(error, BrokenPipeError):
            raise
        # Python writes what is left once more at its end, and would fail there too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise CannotPrint(f"stdout cannot be written: {error.strerror or error}") from error


def _styled(text: str, style: Style) -> str:
    return click.style(text, **style) if style and has_colours() else text


def echo_lines(lines: Iterable[str]) -> None:
    """Print lines for people."""
    for line in lines:
        echo(line)


def echo_data(text: str, *, nl: bool = True) -> None:
    """Print what a program reads: a document, whose encoder escapes by its own rules, or a script of our own."""
    _TERMINAL.clear()
    _print(text, nl=nl)


def confirm(question: str) -> None:
    """Go on if the user agrees. Raises click.Abort."""
    _TERMINAL.clear()
    click.confirm(visible(question), abort=True, err=True)


@contextmanager
def waiting(words: Words) -> Iterator[None]:
    """During the block, until something is printed, say ``words`` on the terminal where that takes over two seconds.

    They are asked for each second, by another thread.
    """
    with _TERMINAL.waiting(echo_progress, words):
        yield


def echo_progress(words: str) -> None:
    """Replace the terminal's last line, on stderr, by these words, cut to its width: a second line would remain."""
    import shutil  # noqa: PLC0415  slow to import, and needed on a terminal that waits

    width = shutil.get_terminal_size().columns
    click.echo(f"\r\033[K{visible(words)[: width - 1]}", nl=False, err=True)
