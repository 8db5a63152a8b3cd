"""Read an untrusted document field by field, with errors that name the path of the wrong field.

Every object that topomend reads passes through here, so that a malformed one yields one sentence that a person can act
on. Leaves the meaning of the fields to the other modules of the room.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from topomend.model.bitmask import InvalidIDList, parse_id_list
from topomend.model.quantity import MAX_INT64, InvalidQuantity, MilliQuantity, parse_quantity

_Value = TypeVar("_Value")


class MalformedObject(ValueError):
    """A document violates its kind. The text names the field, its value, and what it should be."""


@dataclass(frozen=True, slots=True)
class Document:
    """One value inside a document, and its path. The content of an absent field is None.

    Every reading method raises MalformedObject where the value has another type or is out of range.
    """

    content: Any
    path: str = ""

    def __getitem__(self, key: str) -> "Document":
        """The field ``key`` of an object; absent where the object is absent or lacks the field."""
        where = f"{self.path}.{key}" if self.path else key
        if self.content is None:
            return Document(None, where)
        if not isinstance(self.content, dict):
            raise self.wrong("an object")
        return Document(self.content.get(key), where)

    def __iter__(self) -> Iterator["Document"]:
        """The elements of a list; an absent list is empty."""
        if self.content is None:
            return
        if not isinstance(self.content, list):
            raise self.wrong("a list")
        for index, element in enumerate(self.content):
            yield Document(element, f"{self.path}[{index}]")

    def fields(self) -> Iterator[tuple[str, "Document"]]:
        """The fields of an object that is used as a map; none where it is absent."""
        if self.content is None:
            return
        if not isinstance(self.content, dict):
            raise self.wrong("an object")
        for key, element in self.content.items():
            yield str(key), Document(element, f"{self.path}[{key!r}]")

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
        return self._parsed(parse_id_list, self.text(default=""), InvalidIDList)

    def quantity(self) -> MilliQuantity:
        """A resource quantity, in thousandths."""
        return self._parsed(parse_quantity, self.content, InvalidQuantity)

    def wrong(self, expected: str) -> MalformedObject:
        """The error to raise because this value is not ``expected``, a noun phrase such as "a string"."""
        actual = "missing" if self.content is None else f"{self.content!r:.60}"
        return MalformedObject(f"{self.path or 'the document'}: {actual} where {expected} belongs")

    def _parsed(self, parse: Callable[[Any], _Value], content: object, error_type: type[ValueError]) -> _Value:
        try:
            return parse(content)
        except error_type as error:
            raise MalformedObject(f"{self.path}: {error}") from error


def without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    """``fields`` without those whose content is None or an empty text, list or map. Zero and false stay."""
    return {key: content for key, content in fields.items() if content not in (None, "", [], {}, ())}
