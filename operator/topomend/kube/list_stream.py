"""Read a list of the API server object by object, while its bytes arrive.

A list of pods may be far larger than the memory of its reader: ``limit`` counts objects, and each may have megabytes.
Here at most one object is in memory, as text and as Python objects. Leaves requests and pages to ``client``.
"""

import codecs
import json
from collections.abc import Iterator
from typing import Any

CHUNK_BYTES = 1 << 16
"""How much is read at once, at least."""

MAX_OBJECT_CHARACTERS = 32 << 20
"""No object is longer as JSON: etcd takes 1.5 MiB of protobuf, of which each byte becomes six letters at most
(``\\u003c``), and field names come in addition."""

_WHITESPACE = " \t\r\n"
_decoder = json.JSONDecoder()


class BrokenList(ValueError):
    """The bytes are not a whole list as the API server writes it."""


class ListStream:
    """One page of a list. ``chunks`` are the bytes of the answer. Iterate once; then ``metadata`` is the list's.

    The fields of a list may come in any order: the API server writes those of custom resources in that of the alphabet.
    ``bytes_read`` counts the bytes so far. Raises BrokenList.
    """

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._text, self._at = "", 0
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self.bytes_read = 0
        self.metadata: dict[str, Any] = {}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._expect("{")
        while True:
            field = self._value()
            self._expect(":")
            if field == "items" and self._next() == "[":
                yield from self._items()
            elif field == "metadata":
                self.metadata = self._object()
            else:
                self._value()
            if self._expect(",}") == "}":
                break
        for _ in self._chunks:  # the end of the answer, without which its connection is of no further use
            pass

    def _items(self) -> Iterator[dict[str, Any]]:
        self._expect("[")
        if self._next() == "]":
            self._at += 1
            return
        while True:
            yield self._object()
            if self._expect(",]") == "]":
                return

    def _object(self) -> dict[str, Any]:
        value = self._value()
        if not isinstance(value, dict):
            raise BrokenList("where an object should be is something else")
        return value

    def _value(self) -> Any:
        """The value that begins here. It is whole once a character follows it: a number has no other end."""
        self._next()
        while True:
            try:
                value, end = _decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                end = len(self._text)  # as far as it is known; an error in the middle shows at the end
            except RecursionError as error:
                raise BrokenList("an object is nested too deeply") from error
            if end < len(self._text):
                self._at = end
                return value
            self._read_on()

    def _next(self) -> str:
        """The next character that is no whitespace."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _WHITESPACE:
                    return self._text[self._at]
                self._at += 1
            self._read_on()

    def _expect(self, characters: str) -> str:
        character = self._next()
        if character not in characters:
            raise BrokenList(f"not one of {characters!r} but {character!r} follows")
        self._at += 1
        return character

    def _read_on(self) -> None:
        """Drop what was read, and double the rest: an object that is read in many parts is decoded a few times only."""
        rest = self._text[self._at :]
        if len(rest) > MAX_OBJECT_CHARACTERS:
            raise BrokenList(f"an object is longer than {MAX_OBJECT_CHARACTERS} characters")
        parts, size = [rest], 0
        while size < max(len(rest), CHUNK_BYTES):
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self.bytes_read += len(chunk)
            size += len(chunk)
            parts.append(self._utf8.decode(chunk))
        if not size:
            raise BrokenList("the answer is cut short")
        self._text, self._at = "".join(parts), 0
