"""Reading an untrusted document field by field, with the path of whatever is wrong in the error.

Every object that topomend reads passes through here, so a malformed one is refused in one sentence that a person can
act on. What the fields mean is left to the modules beside this one.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from topomend.model.bitmask import InvalidIDList, parse_id_list
from topomend.model.quantity import MAX_INT64, InvalidQuantity, MilliQuantity, parse_quantity

_Value = TypeVar("_Value")


class MalformedObject(ValueError):
    """A document that is not what its kind promises; the text says where and what would be right."""


@dataclass(frozen=True, slots=True)
class Document:
    """One value inside a document and the path that leads to it. An absent field holds None."""

    content: Any
    path: str = ""

    def __getitem__(self, key: str) -> "Document":
        """The field ``key``; absent fields and fields of absent objects hold None."""
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
        """The fields of an object used as a map; an absent one is empty."""
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
        """A string; ``default`` where it is absent, if one is given."""
        if self.content is None and default is not None:
            return default
        if not isinstance(self.content, str):
            raise self.wrong("a string")
        return sys.intern(self.content)  # thousands of objects have the same names in them

    def boolean(self, default: bool | None = None) -> bool:
        """True or false; ``default`` where it is absent, if one is given."""
        if self.content is None and default is not None:
            return default
        if not isinstance(self.content, bool):
            raise self.wrong("true or false")
        return self.content

    def integer(self, default: int | None = None, least: int = 0, most: int = MAX_INT64) -> int:
        """A whole number from ``least`` to ``most``; ``default`` where it is absent, if one is given."""
        if self.content is None and default is not None:
            return default
        if isinstance(self.content, bool) or not isinstance(self.content, int) or not least <= self.content <= most:
            raise self.wrong(f"a whole number from {least} to {most}")
        return self.content

    def id_list(self) -> int:
        """A cpulist string as a set; absent is empty."""
        return self._parsed(parse_id_list, self.text(default=""), InvalidIDList)

    def quantity(self) -> MilliQuantity:
        """A resource quantity, in thousandths."""
        return self._parsed(parse_quantity, self.content, InvalidQuantity)

    def wrong(self, expected: str) -> MalformedObject:
        """The error that says this value is not ``expected``."""
        found = "missing" if self.content is None else f"{self.content!r:.60}"
        return MalformedObject(f"{self.path or 'the document'}: {found} where {expected} belongs")

    def _parsed(self, parse: Callable[[Any], _Value], content: object, refusal: type[ValueError]) -> _Value:
        try:
            return parse(content)
        except refusal as error:
            raise MalformedObject(f"{self.path}: {error}") from error


def without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    """``fields`` less those that hold nothing (None, empty text, list or map); zero and false stay."""
    return {key: content for key, content in fields.items() if content not in (None, "", [], {}, ())}
