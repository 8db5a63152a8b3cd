"""Read an untrusted document field by field, with errors that name the path of the wrong field.

Every object that topomend reads passes through here, so that a malformed one yields one sentence that a person can act
on. Leaves the meaning of the fields to the other modules of the room.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from topomend.base.plain_text import beginning, plain
from topomend.model.bitmask import InvalidIDList, parse_id_list
from topomend.model.quantity import MAX_INT64, InvalidQuantity, MilliQuantity, parse_quantity

_Value = TypeVar("_Value")

_Step: TypeAlias = str | tuple[int | str]
"""From a value to one in it: a field's name, or in a tuple the index in a list or the key in a map."""


MAX_NAME = 253
"""No object of Kubernetes has a longer name."""

MAX_SHOWN = 60
"""How many characters of a wrong value an error shows."""


class MalformedObject(ValueError):
    """A document violates its kind. The text names the field, its value, and what it should be."""


class Document:
    """One value inside a document, and its path. The content of an absent field is None.

    Every reading method raises MalformedObject where the value has another type or is out of range. A cluster's lists
    become millions of these, so a path is put together only where one is wrong.
    """

    __slots__ = ("_parent", "_step", "content")

    def __init__(self, content: Any, path: "_Step" = "", parent: "Document | None" = None) -> None:
        self.content, self._step, self._parent = content, path, parent

    @property
    def path(self) -> str:
        """Where the value is: ``spec.containers[0].resources``."""
        step, parent = self._step, self._parent
        if isinstance(step, str):
            above = parent.path if parent else ""
            return f"{above}.{step}" if above else step
        above = parent.path if parent else ""
        return f"{above}[{beginning(step[0], MAX_NAME)}]"

    def __getitem__(self, key: str) -> "Document":
        """The field ``key`` of an object; absent where the object is absent or lacks the field."""
        content = self.content
        if content is None:
            return Document(None, key, self)
        if not isinstance(content, dict):
            raise self.wrong("an object")
        return Document(content.get(key), key, self)

    def __iter__(self) -> Iterator["Document"]:
        """The elements of a list; an absent list is empty."""
        if self.content is None:
            return
        if not isinstance(self.content, list):
            raise self.wrong("a list")
        for index, element in enumerate(self.content):
            yield Document(element, (index,), self)

    def fields(self) -> Iterator[tuple[str, "Document"]]:
        """The fields of an object that is used as a map; none where it is absent."""
        if self.content is None:
            return
        if not isinstance(self.content, dict):
            raise self.wrong("an object")
        for key, element in self.content.items():
            name = key if isinstance(key, str) else self._written(key)
            yield name, Document(element, (name,), self)

    def with_defaults(self, fields: Mapping[str, Any]) -> "Document":
        """An object with these fields where it lacks them; a value of another type as it is."""
        if not isinstance(self.content, dict):
            return self
        lacking = {key: content for key, content in fields.items() if self.content.get(key) is None}
        return Document({**self.content, **lacking}, self._step, self._parent)

    @property
    def absent(self) -> bool:
        """Whether the field is missing or null."""
        return self.content is None

    def text(self, default: str | None = None) -> str:
        """A string; ``default``, if given, where the field is absent."""
        if self.content is None and default is not None:
            return default
        if not isinstance(self.content, str):
            raise self.wrong("a string")
        return sys.intern(self.content)  # thousands of objects contain the same names

    def boolean(self, default: bool | None = None) -> bool:
        """True or false; ``default``, if given, where the field is absent."""
        if self.content is None and default is not None:
            return default
        if not isinstance(self.content, bool):
            raise self.wrong("true or false")
        return self.content

    def integer(self, default: int | None = None, least: int = 0, most: int = MAX_INT64) -> int:
        """A whole number from ``least`` to ``most`` inclusive; ``default``, if given, where the field is absent."""
        if self.content is None and default is not None:
            return default
        if isinstance(self.content, bool) or not isinstance(self.content, int) or not least <= self.content <= most:
            raise self.wrong(f"a whole number from {least} to {most}")
        return self.content

    def id_list(self) -> int:
        """A list of ids such as ``0-3,8``, as a bit mask; 0 where the field is absent."""
        if self.content is None:
            return 0
        return self._parsed(parse_id_list, self.text(), InvalidIDList)

    def quantity(self) -> MilliQuantity:
        """A resource quantity, in thousandths."""
        return self._parsed(parse_quantity, self.content, InvalidQuantity)

    def _written(self, key: object) -> str:
        """A key of a map in a YAML file that is no text there."""
        try:
            return str(key)
        except (ValueError, RecursionError) as error:
            raise self.wrong("an object with names that can be written") from error

    def wrong(self, expected: str) -> MalformedObject:
        """The error to raise because this value is not ``expected``, a noun phrase such as "a string"."""
        actual = "missing" if self.content is None else beginning(self.content, MAX_SHOWN)
        return MalformedObject(f"{self.path or 'the document'}: {actual} where {expected} belongs")

    def _parsed(self, parse: Callable[[Any], _Value], content: object, error_type: type[ValueError]) -> _Value:
        try:
            return parse(content)
        except error_type as error:
            raise MalformedObject(f"{self.path}: {error}") from error


def unreadable(kind: str, content: Any, error: MalformedObject) -> str:
    """In words why an object of this kind cannot be read, with its name as far as it has one."""
    metadata = content.get("metadata") if isinstance(content, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{kind} {plain(name, MAX_NAME) if isinstance(name, str) else 'without a name'} cannot be read: {error}"


def without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    """``fields`` without those whose content is None or an empty text, list or map. Zero and false stay."""
    return {key: content for key, content in fields.items() if content not in (None, "", [], {}, ())}
