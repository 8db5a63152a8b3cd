"""A mutant: one rule of the replay, broken on purpose.

A mutant names a function and a piece of its code, which is compared token by token: layout and comments do not matter.
A name in the piece that the function does not contain has been renamed. It matches any one name, the same each time, in
the piece and in its replacement; only Python's own names always mean themselves. So a formatter, a renamed variable or
a renamed function do not disturb the list; only a changed rule does.
"""

import ast
import builtins
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

REPLAY = Path("operator", "topomend", "replay")

_TOKEN = re.compile(
    r"""(?P<skipped>\s+|\#[^\n]*)|[a-z]*\"\"\"[\s\S]*?\"\"\"|"(?:\\.|[^"\\\n])*"|\w+|[^\w\s]""",
    re.VERBOSE,
)


class OutOfStep(ValueError):
    """A mutant's piece does not occur in its function exactly once: correct the list."""


@dataclass(frozen=True)
class _Token:
    text: str
    start: int
    end: int

    @property
    def is_name(self) -> bool:
        return self.text.isidentifier() and not keyword.iskeyword(self.text)


@dataclass(frozen=True)
class _Match:
    """Where a piece occurs, and the new names of its renamed names."""

    start: int
    end: int
    renamed: Mapping[str, str]


@dataclass(frozen=True)
class Mutant:
    """``breaks`` is a sentence that says what replay then gets wrong; ``file`` is relative to ``REPLAY``.

    ``function`` is a qualified name such as ``Class.method``, empty for code outside functions. If no function has that
    name any more, the whole file is searched.
    """

    breaks: str
    file: str
    function: str
    old: str
    new: str

    def applied_to(self, source: str) -> str:
        """The source with the rule broken. Raises OutOfStep."""
        start, end = functions(source).get(self.function, (0, len(source)))
        matches = list(_matches(_tokens(source, start, end), _tokens(self.old)))
        if len(matches) != 1:
            place = f"{self.file}:{self.function or 'module'}"
            raise OutOfStep(f"{place} has {self.old!r} {len(matches)} times instead of once (mutant: {self.breaks})")
        match = matches[0]
        return source[: match.start] + _renamed(self.new.strip(), match.renamed) + source[match.end :]


@lru_cache(maxsize=64)
def functions(source: str) -> Mapping[str, tuple[int, int]]:
    """The extent of every function in characters, by its qualified name, decorators included."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    extents: dict[str, tuple[int, int]] = {}

    def collect(body: Sequence[ast.stmt], prefix: str) -> None:
        for statement in body:
            if not isinstance(statement, ast.ClassDef | ast.FunctionDef):
                continue
            if isinstance(statement, ast.FunctionDef):
                first = min([statement.lineno, *(decorator.lineno for decorator in statement.decorator_list)])
                extents[prefix + statement.name] = starts[first - 1], starts[statement.end_lineno or first]
            collect(statement.body, f"{prefix}{statement.name}.")

    collect(ast.parse(source).body, "")
    return extents


def _tokens(source: str, start: int = 0, end: int | None = None) -> list[_Token]:
    matches = _TOKEN.finditer(source, start, len(source) if end is None else end)
    return [_Token(match[0], *match.span()) for match in matches if match["skipped"] is None]


def _matches(code: Sequence[_Token], piece: Sequence[_Token]) -> Iterator[_Match]:
    names = {token.text for token in piece if token.is_name}
    gone = names - {token.text for token in code} - set(dir(builtins))
    for first in range(len(code) - len(piece) + 1):
        window = code[first : first + len(piece)]
        renamed = _match(window, piece, gone)
        if renamed is not None:
            yield _Match(window[0].start, window[-1].end, renamed)


def _match(window: Sequence[_Token], piece: Sequence[_Token], gone: set[str]) -> dict[str, str] | None:
    """The new names of the renamed ones if the window matches the piece, else None."""
    renamed: dict[str, str] = {}
    for actual, expected in zip(window, piece, strict=True):
        if expected.text in gone:
            if not actual.is_name or renamed.setdefault(expected.text, actual.text) != actual.text:
                return None
        elif actual.text != expected.text:
            return None
    return renamed


def _renamed(text: str, renamed: Mapping[str, str]) -> str:
    return re.sub(r"\w+", lambda match: renamed.get(match[0], match[0]), text)
