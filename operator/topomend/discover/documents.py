"""One YAML or JSON document as Kubernetes reads it: bytes -> JSON value, by the rules of sigs.k8s.io/yaml.

A text whose first character is ``{`` is JSON, everything else YAML 1.1 (apimachinery pkg/util/yaml:IsJSONBuffer).
libyaml parses YAML; Kubernetes' parser (go.yaml.in/yaml/v2) is a port of an older one. Where the two may differ, in
texts that no person writes, the text is not read, with NotTold. This module owns what the port makes of the parser's
events (resolve.go, decode.go) and how sigs.k8s.io/yaml turns the result into JSON. Which fields a document must have is
left to its reader.
"""

import base64
import binascii
import codecs
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any, TypeAlias

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser; PyYAML's own, which differs in the use of tabs, where PyYAML was built without libyaml. Only events
are asked for: the composer of the former crashes the process over deeply nested input."""

MAX_DEPTH = 500
"""Levels of nesting that are read; Kubernetes reads 10,000, and nothing that it knows has more than ten."""

MAX_DIGITS = 1000
"""Digits of a whole number that is read exactly."""

MAX_DECODED = 200_000
"""Values of a document after its aliases are followed: a second of work. Kubernetes follows some more."""

MAX_ALIASED, MIN_DECODED, MAX_RATIO = 100, 1000, 0.99
"""Values that aliases may repeat, and their share of a larger document (decode.go:allowedAliasRatio)."""

_PREFIX = "tag:yaml.org,2002:"


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


@dataclass(frozen=True)
class Document:
    """A value, and the names that stand twice in one of its objects."""

    value: Value
    repeated: tuple[str, ...] = ()


def read_document(text: bytes) -> Document:
    """The first document in ``text``; null for an empty text. Raises NotADocument.

    Nothing behind the first document of YAML is parsed; JSON must be alone.
    """
    try:
        return _read_json(text) if is_json(text) else next(_yaml_documents(text), Document(None))
    except RecursionError as error:
        raise _too_deep() from error


def read_documents(text: bytes) -> Iterator[Document]:
    """Every document in ``text``, as kubectl reads them: one of JSON, or any number of YAML. Raises NotADocument."""
    try:
        if is_json(text):
            try:
                yield _read_json(text)
            except NotADocument:
                yield from _yaml_documents(text)
        else:
            yield from _yaml_documents(text)
    except RecursionError as error:
        raise _too_deep() from error


def _too_deep() -> NotTold:
    return NotTold(f"more than {MAX_DEPTH} levels of nesting")


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


_SPACE = "".join(map(chr, [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029]))
_SPACE += "\u202f\u205f\u3000"
"""Go's unicode.IsSpace."""


def is_json(text: bytes) -> bool:
    """Whether Kubernetes takes the text for JSON."""
    return text.decode(errors="replace").lstrip(_SPACE).startswith("{")


# JSON


def _read_json(text: bytes) -> Document:
    repeated: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> Members:
        names = [name for name, _ in pairs]
        repeated.extend(name for name in dict.fromkeys(names) if names.count(name) > 1)
        return Members(tuple((_scrubbed(name), _scrubbed_value(content)) for name, content in pairs))

    def refuse(word: str) -> None:
        raise NotADocument(f"{word} is no number of JSON")

    try:
        value = json.loads(
            _scrubbed(text.decode(errors="surrogateescape")),
            object_pairs_hook=members,
            parse_int=Number,
            parse_float=Number,
            parse_constant=refuse,
        )
    except json.JSONDecodeError as error:
        raise NotADocument(f"{error.msg} in line {error.lineno}, column {error.colno}") from error
    _check_depth(value)
    return Document(value, tuple(dict.fromkeys(repeated)))


def _check_depth(value: Value) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise RecursionError


def _inside(value: Value) -> list[Value]:
    if isinstance(value, Members):
        return [content for _, content in value.pairs]
    return value if isinstance(value, list) else []


def _scrubbed(text: str) -> str:
    """The text with U+FFFD for each byte that is not UTF-8, and for half a pair of surrogates, as Go has it."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def _scrubbed_value(value: Any) -> Any:
    if isinstance(value, str):
        return _scrubbed(value)
    if type(value) is list:
        return [_scrubbed_value(item) for item in value]
    return value


# YAML: the parser's events as nodes


@dataclass(slots=True, eq=False)
class _Node:
    """A node of the document. ``kind`` is scalar, sequence, mapping or alias, as in decode.go."""

    kind: str
    text: str = ""
    tag: str = ""
    implicit: bool = False
    children: list["_Node"] = field(default_factory=list)
    line: int = 0


def _yaml_documents(text: bytes) -> Iterator[Document]:
    source = _Source(text)
    source.check_marks()
    try:
        for root in _roots(_events(text or b"\n"), source):
            decoder = _Decoder()
            value = _jsonable(decoder.decode(root))
            yield Document(value, tuple(dict.fromkeys(decoder.repeated)))
    except NotTold:
        raise
    except (yaml.YAMLError, NotADocument) as error:
        said = " ".join(str(error).split())
        raise (NotTold if source.may_be_read(error) else NotADocument)(said) from error


def _events(text: bytes) -> Iterator[Event]:
    parser = _PARSER(text)
    while parser.check_event():
        yield parser.get_event()


class _Source:
    """The text behind the events. Knows where libyaml and Kubernetes' parser, a port of an older one, may differ."""

    def __init__(self, text: bytes) -> None:
        is_wide = text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        # Without the byte order mark, for marks do not count it.
        self._text = text.decode("utf-16" if is_wide else "utf-8-sig", errors="replace")

    def check_marks(self) -> None:
        """Raise NotTold for a byte order mark inside the text: the port takes it for a letter."""
        before, mark, _ = self._text.partition("\ufeff")
        if mark:
            raise NotTold(f"line {before.count(chr(10)) + 1}: a byte order mark inside the text")

    def check(self, event: ScalarEvent, *, in_flow: bool) -> None:
        """Raise an error for a scalar that libyaml reads by newer rules."""
        assert event.start_mark is not None  # noqa: S101 - a parser's events have marks
        line = event.start_mark.line + 1
        if in_flow and not event.style and "?" in event.value:
            raise NotADocument(f"line {line}: a question mark inside brackets or braces must be quoted")
        if in_flow and not event.style and event.tag and not event.value:
            raise NotTold(f"line {line}: a tag inside brackets or braces must have a value")
        if event.style == '"' and "/" in event.value and self._has_escaped_slash(event):
            raise NotADocument(f"line {line}: found unknown escape character \\/")

    def _has_escaped_slash(self, event: ScalarEvent) -> bool:
        assert event.start_mark is not None  # noqa: S101 - as above
        assert event.end_mark is not None  # noqa: S101 - as above
        return r"\/" in self._text[event.start_mark.index : event.end_mark.index].replace(r"\\", "")

    def may_be_read(self, error: Exception) -> bool:
        """Whether Kubernetes may read the text that libyaml, or the rules here, refuse with this error."""
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
            if error.problem == "found unknown escape character":
                return self._text[error.problem_mark.index + 1 :].startswith("'")
            if error.problem == "found unexpected ':'" or (error.context or "").endswith("a tag"):
                return True
        # As the root, and a key, these end the port's document: nothing behind them is parsed.
        return _EMPTY_ROOT.match(self._text) is not None


_EMPTY_ROOT = re.compile(r"(?:\s|---(?=\s)|[#%][^\n]*\n)*[\[{]\s*[\]}]")


def _roots(events: Iterator[Event], source: _Source) -> Iterator[_Node]:
    """The root of each document."""
    for event in events:
        if isinstance(event, DocumentStartEvent):
            if event.version not in (None, (1, 1)):
                raise NotADocument("found incompatible YAML document: a %YAML directive names a version other than 1.1")
            root = _composed(events, {}, source)
            next(events)  # The document's end: what follows its last node must be a document of its own.
            assert root is not None  # noqa: S101 - an empty document has an empty scalar
            yield root


def _composed(
    events: Iterator[Event], anchors: dict[str, _Node], source: _Source, depth: int = 0, in_flow: bool = False
) -> _Node | None:
    """The next node; None at the end of a sequence or mapping. ``in_flow`` is inside brackets or braces."""
    event = next(events)
    if depth > MAX_DEPTH:
        raise RecursionError
    if isinstance(event, SequenceEndEvent | MappingEndEvent | DocumentEndEvent):
        return None
    assert event.start_mark is not None  # noqa: S101 - a parser's events have marks
    line = event.start_mark.line + 1
    if isinstance(event, AliasEvent):
        if event.anchor not in anchors:
            raise NotADocument(f"line {line}: unknown anchor {event.anchor!r:.60}")
        return _Node("alias", event.anchor, children=[anchors[event.anchor]], line=line)
    if isinstance(event, ScalarEvent):
        source.check(event, in_flow=in_flow)
        node = _Node("scalar", event.value, event.tag or "", event.implicit[0], line=line)
    else:
        node = _Node("sequence" if isinstance(event, SequenceStartEvent) else "mapping", line=line)
    assert isinstance(event, ScalarEvent | SequenceStartEvent | MappingStartEvent)  # noqa: S101 - no other is left
    if event.anchor is not None:
        anchors[event.anchor] = node
    if not isinstance(event, ScalarEvent):
        flow = bool(event.flow_style)
        node.children.extend(iter(lambda: _composed(events, anchors, source, depth + 1, flow), None))
    return node


# YAML: nodes as Go's values (decode.go). Python's dict takes 1, 1.0 and True for one key, so keys carry their type.

_Key: TypeAlias = tuple[type, Any]


class _Decoder:
    def __init__(self) -> None:
        self.repeated: list[str] = []
        self._active: set[int] = set()
        self._decoded = self._aliased = self._alias_depth = 0

    def decode(self, node: _Node) -> Any:
        """A scalar, a list, or a dict by key."""
        self._count()
        return self._decode(node)

    def _decode(self, node: _Node) -> Any:
        if node.kind == "alias":
            return self._alias(node)
        if node.kind == "sequence":
            return [self.decode(child) for child in node.children]
        if node.kind == "mapping":
            return self._mapping(node, {})
        return _resolved(node)

    def _count(self) -> None:
        self._decoded += 1
        self._aliased += self._alias_depth > 0
        if self._decoded > MAX_DECODED:
            raise NotTold(f"more than {MAX_DECODED} values")
        if self._aliased > MAX_ALIASED and self._decoded > MIN_DECODED and self._aliased > MAX_RATIO * self._decoded:
            raise NotADocument("aliases repeat too much of the document")

    def _alias(self, node: _Node, into: dict[_Key, Any] | None = None) -> Any:
        if id(node) in self._active:
            raise NotADocument(f"line {node.line}: the value of anchor {node.text!r:.60} contains itself")
        self._active.add(id(node))
        self._alias_depth += 1
        target = node.children[0]
        self._count()
        value = self._decode(target) if into is None else self._mapping(target, into)
        self._alias_depth -= 1
        self._active.remove(id(node))
        return value

    def _mapping(self, node: _Node, into: dict[_Key, Any]) -> dict[_Key, Any]:
        for place in range(0, len(node.children), 2):
            key_node, value_node = node.children[place : place + 2]
            if _is_merge(key_node):
                self._merge(value_node, into)
                continue
            key = self.decode(key_node)
            if isinstance(key, dict | list):
                raise NotADocument(f"line {key_node.line}: a map or list cannot be a key")
            typed = (type(key), key)
            if typed in into:
                self.repeated.append(str(key))
            into[typed] = self.decode(value_node)
        return into

    def _merge(self, node: _Node, into: dict[_Key, Any]) -> None:
        """The keys of ``<<``. They replace those that stand before them, as they do for Kubernetes."""
        parts = reversed(node.children) if node.kind == "sequence" else [node]
        for part in parts:
            is_alias = part.kind == "alias"
            if (part.children[0] if is_alias else part).kind != "mapping":
                raise NotADocument(f"line {node.line}: << takes a map or a list of maps")
            self._count()
            if is_alias:
                self._alias(part, into)
            else:
                self._mapping(part, into)


def _is_merge(node: _Node) -> bool:
    return node.kind == "scalar" and node.text == "<<" and (node.implicit or node.tag == _PREFIX + "merge")


# YAML: scalars (resolve.go)

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INTEGER = re.compile(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|([1-9][0-9]*|0))")
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[Tt](\d{1,2}):(\d{1,2}):(\d{1,2})(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)"
    r"| (\d{1,2}):(\d{1,2}):(\d{1,2})(?:[.,]\d+)?)?",
    re.ASCII,
)
_TAGS = {str: "str", bool: "bool", int: "int", float: "float", type(None): "null"}


def _resolved(node: _Node) -> Any:
    """The scalar's value: text, bool, int, float or None."""
    if node.tag and not node.tag.startswith(_PREFIX):
        return node.text
    tag = node.tag.removeprefix(_PREFIX)
    if tag == "binary":
        return _binary(node)
    if tag == "str" or (not tag and not node.implicit) or tag not in ("", "timestamp", *_TAGS.values()):
        return node.text
    if tag == "timestamp" and node.text not in _WORDS and _is_timestamp(node.text):
        return node.text
    value = _plain_scalar(node.text)
    if tag == "float" and type(value) is int and -(1 << 63) <= value < 1 << 63:
        return float(value)
    if tag and tag != _TAGS[type(value)]:
        raise NotADocument(f"line {node.line}: {node.text!r:.60} is not a !!{tag}")
    return value


def _plain_scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if text[0] == ".":
        return _go_float(text, text)
    if text[0] not in "+-0123456789":
        return text
    digits = text.replace("_", "")
    whole = _go_integer(digits)
    return _go_float(digits, text) if whole is None else whole


def _go_integer(digits: str) -> int | None:
    """strconv.ParseInt, then ParseUint, with base 0."""
    matched = _INTEGER.fullmatch(digits)
    if matched is None:
        return None
    sign, *parts = matched.groups()
    base, number = next((base, part) for base, part in zip((16, 2, 8, 10), parts, strict=True) if part is not None)
    if len(number) > 80:
        return None
    value = int(number, base)
    if sign == "-":
        return -value if value <= 1 << 63 else None
    return value if value < 1 << (63 if sign else 64) else None


def _go_float(digits: str, otherwise: str) -> float | str:
    """strconv.ParseFloat; the text itself where that fails, also for a number that is too large."""
    if not _FLOAT.fullmatch(digits):
        return otherwise
    value = float(digits)
    return otherwise if value in (float("inf"), float("-inf")) else value


def _is_timestamp(text: str) -> bool:
    matched = _TIMESTAMP.fullmatch(text)
    if matched is None:
        return False
    year, month, day, *times = [int(part) for part in matched.groups() if part is not None]
    hour, minute, second = times or (0, 0, 0)
    try:
        datetime(year or 4, month, day, hour, minute, second)  # noqa: DTZ001 - only whether it exists
    except ValueError:
        return False
    return True


def _binary(node: _Node) -> str:
    try:
        content = base64.b64decode(re.sub("[\r\n]", "", node.text), validate=True)
    except (binascii.Error, ValueError) as error:
        raise NotADocument(f"line {node.line}: !!binary is not base64") from error
    return _scrubbed(content.decode(errors="surrogateescape"))


# Go's values as JSON (sigs.k8s.io/yaml:convertToJSONableObject, then encoding/json)


def _jsonable(value: Any) -> Value:
    if isinstance(value, dict):
        # Go writes an object's members in the order of their names.
        named = {_name(*key): _jsonable(content) for key, content in value.items()}
        if len(named) < len(value):
            raise NotTold("two keys of different types become one name: which one counts is left to chance")
        return Members(tuple(sorted(named.items())))
    if isinstance(value, list):
        return [_jsonable(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    return Number(str(value) if isinstance(value, int) else json_number(value))


def _name(kind: type, key: Any) -> str:
    if kind is str:
        return str(key)
    if kind is bool:
        return "true" if key else "false"
    if kind is int and key < 1 << 63:
        return str(key)
    if kind is float:
        return _short_float(key)
    raise NotADocument(f"{'null' if key is None else key} cannot be a name")


def json_number(value: float) -> str:
    """A float64 as Go's encoding/json writes it. Raises NotADocument for infinities and NaN."""
    if not isfinite(value):
        raise NotADocument(f"{value} is no number of JSON")
    if value == 0 or 1e-6 <= abs(value) < 1e21:
        text = format(Decimal(repr(value)), "f")
        return text.removesuffix(".0")
    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():e}".partition("e")
    sign, digits = exponent[0], exponent[1:].lstrip("0")
    return f"{mantissa}e{sign}{digits if sign == '-' else digits.zfill(2)}"


def _short_float(value: float) -> str:
    """A float as a name: the shortest text of a float32, in the format %g."""
    special = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}
    try:
        single = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        single = float("inf") if value > 0 else float("-inf")
    if str(single) in special:
        return special[str(single)]
    digits = next(text for text in (f"{single:.{size}e}" for size in range(17)) if _as_single(float(text)) == single)
    mantissa, _, power = digits.partition("e")
    if -4 <= int(power) < 21 and int(power) < max(6, len(mantissa.strip("-").replace(".", ""))):
        return format(Decimal(digits), "f")
    return f"{mantissa}e{power[0]}{power[1:].zfill(2)}"


def _as_single(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return float("inf")
