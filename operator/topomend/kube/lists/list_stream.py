"""Read a list of the API server object by object, while its bytes arrive.

A list of pods may be far larger than the memory of its reader: ``limit`` counts objects, and each may have megabytes.
Here at most one object is in memory, as text and as Python objects. Leaves requests and pages to ``client``.
"""

import codecs
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from topomend.kube.lists.deep_json import decode

if TYPE_CHECKING:
    import msgspec

CHUNK_BYTES = 1 << 18
"""How much is read at once, at least: an object that is only half there is decoded in vain, and a NodeTopology has
30 KiB."""

MAX_OBJECT_CHARACTERS = 32 << 20
"""No object is longer as JSON: etcd takes 1.5 MiB of protobuf, of which each byte becomes six letters at most
(``\\u003c``), and field names come in addition."""

SHAPED_CHARACTERS = 512 << 10
"""An object whose text is longer is never shaped, so that its reader knows how large it is."""

_FIRST_FIELD = re.compile(r'\{"[^"\\]*":')
"""How an object begins. Inside a string each quote has a backslash, so this stands where an object begins only."""

_WHITESPACE = " \t\r\n"


class BrokenList(ValueError):
    """The bytes are not a whole list as the API server writes it."""


class ListStream:
    """One page of a list. ``chunks`` are the bytes of the answer. Iterate once; then ``metadata`` is the list's.

    The fields of a list may come in any order: the API server writes those of custom resources in that of the alphabet.
    ``bytes_read`` counts the bytes so far. Raises BrokenList.

    ``shape`` is a TypedDict of ``wire.shapes``: objects may lack what is not in it, which then is not decoded. Those
    that are of another shape, or longer than SHAPED_CHARACTERS, are whole. ``is_shaped``: whether the last one was not.
    """

    def __init__(self, chunks: Iterator[bytes], *, shape: type | None = None) -> None:
        self._chunks, self._shape = chunks, shape
        self._text, self._at = "", 0
        self._between, self._unshaped = "", 0
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self.bytes_read = 0
        self.is_shaped = False
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
            while objects := self._shaped():
                self.is_shaped = True
                yield from objects
            self.is_shaped = False
            yield self._object()
            if self._expect(",]") == "]":
                return

    def _shaped(self) -> Sequence[dict[str, Any]]:
        """The objects that are in the text as a whole, but for the last, decoded at once. None if one has no shape.

        Those of a list begin with the same field. Where one within another does too, the text may end in the middle
        of an object, and is not JSON.
        """
        if self._shape is None or self._at < self._unshaped:
            return ()
        if not self._between:
            first = _FIRST_FIELD.match(self._text, self._at)
            if not first:
                return ()
            self._between = f"}},{first[0]}"
        while not (end := self._text.rfind(self._between, self._at, self._at + SHAPED_CHARACTERS) + 1):
            if len(self._text) - self._at >= SHAPED_CHARACTERS or not self._has_read_on():
                return ()
        objects = _decoded(f"[{self._text[self._at : end]}]", self._shape)
        if objects is None:
            self._unshaped = end
            return ()
        self._at = end + 1
        return objects

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
                value, end = decode(self._text, self._at)
            except ValueError:
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
        if not self._has_read_on():
            raise BrokenList("the answer is cut short")

    def _has_read_on(self) -> bool:
        """Drop what was read, and double the rest: an object that is read in many parts is decoded a few times only.

        False if there is no more.
        """
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
        self._text, self._at, self._unshaped = "".join(parts), 0, 0
        return size > 0


@cache
def _decoder_of(shape: type) -> "msgspec.json.Decoder[Sequence[dict[str, Any]]]":
    """What decodes a JSON list of objects, each with the fields of ``shape`` alone."""
    # Imported here: it takes 10 ms, and a list of one page is not worth it.
    from msgspec.json import Decoder  # noqa: PLC0415

    return Decoder(list[shape])  # type: ignore[valid-type]


def _decoded(text: str, shape: type) -> Sequence[dict[str, Any]] | None:
    """The objects of a JSON list; None where it is none, or any of them is of another shape."""
    decoder = _decoder_of(shape)
    try:
        return decoder.decode(text)
    except (ValueError, RecursionError):  # the former is msgspec's DecodeError; others are of strings
        return None
