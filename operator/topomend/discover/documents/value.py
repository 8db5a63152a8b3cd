"""A JSON value with the text of its numbers and all its members, and the errors of a text that is none."""

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

MAX_DEPTH = 500
"""Levels of nesting that are read; Kubernetes reads 10,000, and nothing that it knows has more than ten."""

MAX_DIGITS = 1000
"""Digits of a whole number that is read exactly."""


class NotADocument(ValueError):
    """The text is neither YAML nor JSON; the message says why and where."""


class NotTold(NotADocument):
    """Whether and how Kubernetes reads the text is not known here; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as its JSON text: which types it fits is up to the field that takes it."""

    text: str


@dataclass(frozen=True, slots=True)
class Members:
    """An object: its members in the order of the text, of which several may have one name."""

    pairs: tuple[tuple[str, Any], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The members by name; the last of a name counts."""
        return dict(self.pairs)


Value: TypeAlias = Any
"""A value of JSON: None, a bool, a text, a Number, a list of values, or Members."""


def plain_value(value: Value) -> Any:
    """The value with Python's numbers and dicts."""
    if isinstance(value, Number):
        is_float = set(value.text) & set(".eE") or len(value.text) > MAX_DIGITS
        return float(value.text) if is_float else int(value.text)
    if isinstance(value, Members):
        return {name: plain_value(content) for name, content in value.pairs}
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    return value


def scrubbed(text: str) -> str:
    """The text with U+FFFD for each byte that is not UTF-8, and for half a pair of surrogates, as Go has it."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)
