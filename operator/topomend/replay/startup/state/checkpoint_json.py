"""The JSON of a kubelet's checkpoints, read into Go's types with the errors of Go's ``encoding/json``.

Owns the types that checkpoints use, and Go's rules for them: names in any case, unknown names skipped, ``null`` for an
empty map, and the first value of a wrong type as an error after everything else was read. ``checkpoints`` says which
types a file has. Source: encoding/json/scanner.go and decode.go.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from topomend.replay.options import quoted

JSON: TypeAlias = Any
"""An Object, a list, a text, a Number, a bool or None."""

MAX_DEPTH = 200
"""Containers within one another. The kubelet reads up to 10,000, but no checkpoint has more than ten."""

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING_BODY = re.compile(r'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_DIGITS = re.compile("[0-9]*")
_HEX = re.compile("[0-9a-fA-F]*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_END = "unexpected end of JSON input"
_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "'": "\\'"}


class GoError(ValueError):
    """What the kubelet says of content that it cannot read."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it is written."""

    text: str


class Object(list[tuple[str, JSON]]):
    """Names and values in their order; a name may come twice."""


def parse(content: bytes) -> JSON:
    """Parse a document. Raises GoError with the text of Go's SyntaxError."""
    return _Scanner(content).document()


class _Scanner:
    """Go's scanner, which reads bytes and takes the end of the input for a space."""

    def __init__(self, content: bytes) -> None:
        self._text = content.decode("latin-1") + " "
        self._at = 0
        self._depth = 0

    def document(self) -> JSON:
        value = self._value()
        self._skip_space()
        if self._at < len(self._text):
            raise self._unexpected("after top-level value")
        return value

    def _skip_space(self) -> None:
        matched = _SPACE.match(self._text, self._at)
        self._at = matched.end() if matched else self._at

    def _peek(self) -> str:
        if self._at >= len(self._text):
            raise GoError(_END)
        return self._text[self._at]

    def _next(self) -> str:
        self._skip_space()
        return self._peek()

    def _unexpected(self, where: str) -> GoError:
        return GoError(f"invalid character {_quoted_character(self._peek())} {where}")

    def _value(self) -> JSON:
        character = self._next()
        if character in "{[":
            return self._container(character)
        if character == '"':
            return self._string()
        if character == "-" or (character.isdigit() and character.isascii()):
            return self._number()
        for word, value in (("true", True), ("false", False), ("null", None)):
            if character == word[0]:
                return self._literal(word, value)
        raise self._unexpected("looking for beginning of value")

    def _container(self, opening: str) -> JSON:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._unexpected("exceeded max depth")
        self._at += 1
        container = self._object() if opening == "{" else self._array()
        self._depth -= 1
        self._at += 1
        return container

    def _object(self) -> Object:
        members = Object()
        if self._next() == "}":
            return members
        while True:
            if self._next() != '"':
                raise self._unexpected("looking for beginning of object key string")
            name = self._string()
            if self._next() != ":":
                raise self._unexpected("after object key")
            self._at += 1
            members.append((name, self._value()))
            if self._next() == "}":
                return members
            if self._peek() != ",":
                raise self._unexpected("after object key:value pair")
            self._at += 1

    def _array(self) -> list[JSON]:
        elements: list[JSON] = []
        if self._next() == "]":
            return elements
        while True:
            elements.append(self._value())
            if self._next() == "]":
                return elements
            if self._peek() != ",":
                raise self._unexpected("after array element")
            self._at += 1

    def _string(self) -> str:
        start = self._at
        self._at = _end_of(_STRING_BODY, self._text, start + 1)
        character = self._peek()
        if character == "\\":
            raise self._bad_escape()
        if character != '"':
            raise self._unexpected("in string literal")
        self._at += 1
        return _unquoted(self._text[start : self._at])

    def _bad_escape(self) -> GoError:
        self._at += 1
        if self._peek() != "u":
            return self._unexpected("in string escape code")
        self._at = _end_of(_HEX, self._text, self._at + 1)
        return self._unexpected("in \\u hexadecimal character escape")

    def _number(self) -> Number:
        start = self._at
        self._at += self._peek() == "-"
        if self._peek() == "0":
            self._at += 1
        else:
            self._digits("in numeric literal")
        if self._text[self._at : self._at + 1] == ".":
            self._at += 1
            self._digits("after decimal point in numeric literal")
        if self._text[self._at : self._at + 1] in ("e", "E"):
            self._at += 1
            self._at += self._peek() in "+-"
            self._digits("in exponent of numeric literal")
        return Number(self._text[start : self._at])

    def _digits(self, where: str) -> None:
        end = _end_of(_DIGITS, self._text, self._at)
        if end == self._at:
            raise self._unexpected(where)
        self._at = end

    def _literal(self, word: str, value: bool | None) -> bool | None:
        for expected in word:
            if self._peek() != expected:
                raise self._unexpected(f"in literal {word} (expecting '{expected}')")
            self._at += 1
        return value


def _end_of(pattern: re.Pattern[str], text: str, start: int) -> int:
    matched = pattern.match(text, start)
    return matched.end() if matched else start


def _unquoted(token: str) -> str:
    """A string's text; what is no UTF-8 and no pair of surrogates becomes U+FFFD (decode.go:unquoteBytes)."""
    text = json.loads(token.encode("latin-1").decode("utf-8", "surrogateescape"), strict=False)
    return _SURROGATE.sub("\ufffd", text)


def _quoted_character(character: str) -> str:
    """A byte as scanner.go:quoteChar writes it."""
    if character in _ESCAPES:
        return f"'{_ESCAPES[character]}'"
    if character == "\\":
        return "'\\\\'"
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return f"'\\x{code:02x}'"
    if 0x80 <= code <= 0xA0 or code == 0xAD:
        return f"'\\u{code:04x}'"
    return f"'{character}'"


# Go's types


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    name: str = "string"


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer of 64 bits, or 32, signed or not."""

    name: str
    bits: int = 64
    signed: bool = False

    def holds(self, number: int) -> bool:
        """Whether the type has this value."""
        low, high = (-1 << self.bits - 1, 1 << self.bits - 1) if self.signed else (0, 1 << self.bits)
        return low <= number < high


@dataclass(frozen=True, slots=True)
class Bytes:
    """A slice of bytes, in base64."""

    name: str = "[]uint8"


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice; None is a nil slice."""

    element: "GoType"
    name: str


@dataclass(frozen=True, slots=True)
class Map:
    """A map, with integers as its keys where ``key`` is given; None is a nil map."""

    value: "GoType"
    name: str
    key: Integer | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """A field: Go's name, the name in JSON, its type, and the embedded structure that it comes from."""

    name: str
    json: str
    type: "GoType"
    embedded: str = ""


@dataclass(frozen=True, slots=True)
class Struct:
    """A structure; its values are dictionaries by Go's names. ``package`` is the name before the dot in Go's errors."""

    package: str
    name: str
    fields: tuple[Field, ...]
    pointer: bool = False

    @property
    def full_name(self) -> str:
        """The name as Go's errors have it."""
        return f"{self.package}.{self.name}"


@dataclass(frozen=True, slots=True)
class Unmarshaler:
    """A type that reads itself: first as ``read``, of which ``convert`` makes the value or raises GoError."""

    read: Struct
    convert: Callable[[Any], Any]
    name: str


GoType: TypeAlias = Text | Integer | Bytes | Slice | Map | Struct | Unmarshaler


def zero(of: GoType) -> Any:
    """A type's zero value."""
    if isinstance(of, Text):
        return ""
    if isinstance(of, Integer):
        return 0
    if isinstance(of, Struct) and not of.pointer:
        return {each.name: zero(each.type) for each in of.fields}
    if isinstance(of, Unmarshaler):
        return of.convert(zero(of.read))
    return None


def unmarshal(content: bytes, into: GoType, value: Any) -> Any:
    """Read ``content`` into ``value``, which is changed, and returned. Raises GoError as ``json.Unmarshal`` returns it.

    ``value`` holds what could be read after an error too.
    """
    document = parse(content)
    decoder = _Decoder()
    value = decoder.decode(into, document, value)
    if decoder.error:
        raise GoError(decoder.error)
    return value


@dataclass(frozen=True, slots=True)
class _WrongType:
    """A value of another type (Go's UnmarshalTypeError): what was found, and the fields that lead to it."""

    found: str
    wanted: str
    path: tuple[str, ...]

    def within(self, struct: str, path: tuple[str, ...] = ()) -> str:
        """Go's error where ``path`` leads to the structure that the value was read into."""
        field = ".".join((*path, *self.path))
        into = f"struct field {struct}.{field} of" if field else "value of"
        return f"json: cannot unmarshal {self.found} into Go {into} type {self.wanted}"


@dataclass
class _Decoder:
    """Go's decodeState: the first error, and where it is in the structures."""

    error: str = ""
    first: _WrongType | None = None
    struct: str = ""
    path: tuple[str, ...] = ()

    def decode(self, into: GoType, value: JSON, current: Any) -> Any:
        if isinstance(into, Unmarshaler):
            return self._read_itself(into, value)
        if value is None:
            is_nil = isinstance(into, Slice | Map | Bytes) or (isinstance(into, Struct) and into.pointer)
            return None if is_nil else current
        if isinstance(value, Object):
            return self._object(into, value, current)
        if isinstance(value, list):
            return self._array(into, value, current)
        return self._literal(into, value, current)

    def _wrong(self, found: str, into: GoType) -> None:
        """Keep the first value of a wrong type."""
        if not self.error:
            wanted = into.full_name if isinstance(into, Struct) else into.name
            self.first = _WrongType(found, wanted, self.path)
            self.error = self.first.within(self.struct)

    def _read_itself(self, into: Unmarshaler, value: JSON) -> Any:
        """Read a type by its own method, whose error ends everything."""
        inner = _Decoder()
        read = inner.decode(into.read, value, zero(into.read))
        if inner.first is not None:
            raise GoError(inner.first.within(self.struct or inner.struct, self.path))
        return into.convert(read)

    def _object(self, into: GoType, value: Object, current: Any) -> Any:
        if isinstance(into, Map):
            return self._map(into, value, current)
        if isinstance(into, Struct):
            return self._structure(into, value, current)
        self._wrong("object", into)
        return current

    def _map(self, into: Map, value: Object, current: Any) -> dict[Any, Any]:
        members: dict[Any, Any] = {} if current is None else current
        for name, each in value:
            decoded = self.decode(into.value, each, zero(into.value))
            key = self._key(into, name)
            if key is not None:
                members[key] = decoded
        return members

    def _key(self, into: Map, name: str) -> Any:
        if into.key is None:
            return name
        number = _integer(name) if re.fullmatch("[+-]?[0-9]+", name) else None
        if number is None or not into.key.holds(number):
            self._wrong(f"number {name}", into.key)
            return None
        return number

    def _structure(self, into: Struct, value: Object, current: Any) -> dict[str, Any]:
        members: dict[str, Any] = zero(Struct(into.package, into.name, into.fields)) if current is None else current
        outer = self.struct, self.path
        for name, each in value:
            found = _field_named(into, name)
            if found is None:
                continue
            self.struct, self.path = into.name, (*outer[1], *filter(None, (found.embedded, found.json)))
            members[found.name] = self.decode(found.type, each, members[found.name])
            self.struct, self.path = outer
        return members

    def _array(self, into: GoType, value: list[JSON], current: Any) -> Any:
        if isinstance(into, Bytes):
            into = Slice(Integer("uint8", 8), into.name)
        if not isinstance(into, Slice):
            self._wrong("array", into)
            return current
        return [self.decode(into.element, each, zero(into.element)) for each in value]

    def _literal(self, into: GoType, value: JSON, current: Any) -> Any:
        if isinstance(value, bool):
            self._wrong("bool", into)
            return current
        if isinstance(value, str):
            return self._text(into, value, current)
        if not isinstance(into, Integer):
            self._wrong("number", into)
            return current
        number = _integer(value.text)
        negative = value.text.startswith("-") and not into.signed
        if number is None or negative or not into.holds(number):
            self._wrong(f"number {value.text}", into)
            return current
        return number

    def _text(self, into: GoType, value: str, current: Any) -> Any:
        if isinstance(into, Text):
            return value
        if not isinstance(into, Bytes):
            self._wrong("string", into)
            return current
        try:
            return list(base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True))
        except (binascii.Error, ValueError):
            self.error = self.error or "illegal base64 data"
            return current


def _integer(text: str) -> int | None:
    """An integer as strconv.ParseInt reads it; None for any other number, and for one too long for any type."""
    return int(text) if len(text) <= 40 and re.fullmatch("[+-]?[0-9]+", text) else None


def _field_named(struct: Struct, name: str) -> Field | None:
    """The field of this name, else the one whose name differs in case alone."""
    exact = next((each for each in struct.fields if each.json == name), None)
    folded = _folded(name)
    return exact or next((each for each in struct.fields if _folded(each.json) == folded), None)


def _folded(name: str) -> str:
    return name.replace("\u017f", "s").replace("\u212a", "k").lower() if name else name


def atoi(text: str) -> int:
    """An integer as Go's strconv.Atoi reads it. Raises GoError."""
    if not re.fullmatch("[+-]?[0-9]+", text, re.ASCII):
        raise GoError(f"strconv.Atoi: parsing {quoted(text)}: invalid syntax")
    number = _integer(text)
    if number is None or not -1 << 63 <= number < 1 << 63:
        raise GoError(f"strconv.Atoi: parsing {quoted(text)}: value out of range")
    return number
