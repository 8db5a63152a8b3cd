"""What the code says of its own names: constants with a docstring after them, and the Events that a module posts."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

POSTING = ("_emit", "emit")
"""The methods that post an Event: on which object, its type, reason, action and note."""


@dataclass(frozen=True)
class Event:
    """``type`` is Normal or Warning; ``meaning`` the docstring of the function that posts it."""

    reason: str
    type: str
    meaning: str


def documented_constants(path: str) -> Mapping[str, str]:
    """The constants of a module by name, in its order, each with the docstring that follows it."""
    found = {}
    for one, after in pairwise(ast.parse(Path(path).read_text()).body):
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and (text := _docstring(after)):
            found[one.targets[0].id] = text
    return found


def _docstring(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return statement.value.value if isinstance(statement.value.value, str) else ""
    return ""


def events(path: str) -> list[Event]:
    """The Events that the functions of a module post, by reason, each reason once."""
    found: dict[str, Event] = {}
    for function in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(function, ast.FunctionDef):
            for event in _posted(function):
                found.setdefault(event.reason, event)
    return sorted(found.values(), key=lambda event: event.reason)


def _posted(function: ast.FunctionDef) -> Iterator[Event]:
    reasons = _assigned(function)
    for call in ast.walk(function):
        posts = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in POSTING
        if not posts or function.name in POSTING:
            continue
        assert isinstance(call, ast.Call)
        kind, reason = call.args[1:3]
        names = [reason.value] if isinstance(reason, ast.Constant) else reasons.get(ast.unparse(reason), [])
        for name in names:
            yield Event(str(name), ast.unparse(kind).capitalize(), ast.get_docstring(function) or "")


def _assigned(function: ast.FunctionDef) -> Mapping[str, list[str]]:
    """The texts that a variable of the function may have."""
    found: dict[str, list[str]] = {}
    for one in ast.walk(function):
        if isinstance(one, ast.Assign):
            texts = [part.value for part in ast.walk(one.value) if isinstance(part, ast.Constant)]
            found[ast.unparse(one.targets[0])] = [text for text in texts if isinstance(text, str)]
    return found
