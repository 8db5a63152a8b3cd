"""How text looks on a terminal: lines as wide as it is, and colours. What is no terminal gets neither.

Escaping is left to ``console``.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

LEAST_COLUMNS = 40
"""On a narrower terminal nothing is wrapped: a table has no room there."""

Style = Mapping[str, Any]
"""As ``click.style`` takes it."""

PLAIN: Style = MappingProxyType({})
GOOD: Style = {"fg": "green"}
BAD: Style = {"fg": "red"}
UNSURE: Style = {"fg": "yellow"}
QUIET: Style = {"dim": True}
"""Of answers: yes, no, partly or unknown, and of no concern. Their words say the same to who sees no colour."""

STATUSES: Mapping[str, Style] = {
    "ERROR": {"fg": "red", "bold": True},
    "WARNING": {"fg": "yellow", "bold": True},
    "INFO": {"fg": "blue", "bold": True},
    "NOT DONE": {"fg": "yellow"},
}
"""The words with which a line may begin that says how bad something is."""

_INDENT = 2

_GAP = re.compile(r" {2,}(?=\S)")


def columns(*, err: bool = False) -> int:
    """How many columns the terminal has to which stdout (or stderr) leads; 0 if it leads to none, or to a small one."""
    stream = sys.stderr if err else sys.stdout
    if stream is None or not stream.isatty():
        return 0
    import shutil  # noqa: PLC0415  slow to import, and needed on a terminal

    found = shutil.get_terminal_size().columns
    return found if found >= LEAST_COLUMNS else 0


def wrapped(line: str, width: int) -> str:
    """``line`` broken at spaces into lines of ``width`` columns; as it is where ``width`` is 0.

    All but the first are indented, so that no text can pass for a line of its own: as the last column of a table's row,
    if that begins in the left half. A word that is longer than a line stays whole, so that it can be copied.
    """
    if not width or len(line) <= width:
        return line
    from textwrap import TextWrapper  # noqa: PLC0415  slow to import, and needed where a line is too long

    starts = [gap.end() for gap in _GAP.finditer(line) if gap.end() <= width // 2]
    indent = " " * (starts[-1] if starts else _INDENT)
    wrapper = TextWrapper(
        width,
        subsequent_indent=indent,
        expand_tabs=False,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(wrapper.wrap(line))


class Mark(NamedTuple):
    """The style of a part of a line, from one position to another."""

    begin: int
    end: int
    style: Style


_WORDS: Mapping[str, tuple[str, ...]] = {
    "bad": (
        r"\bno (?:other )?node would admit it(?: now)?",
        r"\bno eviction makes room\b",
        r"\bnot on one NUMA node\b",
        r"\brefuses\b",
        r"\brefused(?=: )",
        r"\bwould not start\b",
        r"(?<=\d\x20)no\b",
    ),
    "unsure": (
        r"\bno (?:other )?node is known to admit it now",
        r"\bis unknown\b",
        r"\bis not known\b",
        r"\bwaiting(?=: )",
    ),
    "good": (
        r"\bwould admit it now",
        r"^\S+ admits\b",
        r"\bhas admitted\b",
        r"\bfits on\b",
        r"\baligned(?=: )",
        r"(?<=\d\x20)yes\b",
    ),
    "help": (r"\bwould be admitted\b",),
}
"""The words of an answer that say yes, no, or that it is not known; and those before what would help."""


@cache
def _of_lines() -> re.Pattern[str]:
    """The words in a line, which on a terminal may be on two. Slow to compile, and needed by few commands."""
    return re.compile("|".join(f"(?P<{kind}>{'|'.join(words)})" for kind, words in _WORDS.items()).replace(" ", "\\s+"))


_OF_VERDICTS: Mapping[str, Style] = {"bad": BAD, "unsure": UNSURE, "good": GOOD, "help": {"bold": True}}


def verdicts_in(shown: str) -> list[Mark]:
    """Where a line of an answer, wrapped or not, says yes or no."""
    found = _of_lines().finditer(shown)
    return [Mark(*match.span(), _OF_VERDICTS[match.lastgroup]) for match in found if match.lastgroup]


def parts_of(shown: str, marks: Iterable[Mark]) -> Iterator[tuple[str, Style]]:
    """The line in parts, each with its style. The marks are in the order of the line, and none overlaps another."""
    at = 0
    for mark in marks:
        yield shown[at : mark.begin], PLAIN
        yield shown[mark.begin : mark.end], mark.style
        at = mark.end
    yield shown[at:], PLAIN


def status_of(line: str) -> str:
    """The status with which a line begins; empty if with none."""
    return next((word for word in STATUSES if line.startswith(f"{word} ")), "")


def has_colours() -> bool:
    """Whether the user lets programs have colours (no-color.org). They are lost where no terminal is."""
    return not os.environ.get("NO_COLOR")
