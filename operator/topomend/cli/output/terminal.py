"""How text looks on a terminal: lines as wide as it is, and colours. What is no terminal gets neither.

Escaping is left to ``console``.
"""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from textwrap import TextWrapper
from typing import Any

LEAST_COLUMNS = 40
"""On a narrower terminal nothing is wrapped: a table has no room there."""

Style = Mapping[str, Any]
"""As ``click.style`` takes it."""

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
    found = shutil.get_terminal_size().columns
    return found if found >= LEAST_COLUMNS else 0


def wrapped(line: str, width: int) -> str:
    """``line`` broken at spaces into lines of ``width`` columns; as it is where ``width`` is 0.

    All but the first are indented, so that no text can pass for a line of its own: as the last column of a table's row,
    if that begins in the left half. A word that is longer than a line stays whole, so that it can be copied.
    """
    if not width or len(line) <= width:
        return line
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


def status_of(line: str) -> str:
    """The status with which a line begins; empty if with none."""
    return next((word for word in STATUSES if line.startswith(f"{word} ")), "")


def has_colours() -> bool:
    """Whether the user lets programs have colours (no-color.org). They are lost where no terminal is."""
    return not os.environ.get("NO_COLOR")
