"""The documents in a text: any number, of JSON or of YAML."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from topomend.discover.documents.decode import Decoder
from topomend.discover.documents.json_values import jsonable
from topomend.discover.documents.value import (
    MAX_DEPTH,
    Members,
    NotADocument,
    NotTold,
    Number,
    Value,
    scrubbed,
)
from topomend.discover.documents.yaml_nodes import Source, roots


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
    """Every document in ``text``, as kubectl reads them: JSON, one after another, or YAML. Raises NotADocument."""
    try:
        if is_json(text):
            try:
                yield from list(_json_documents(text))
            except NotADocument:
                yield from _yaml_documents(text)
        else:
            yield from _yaml_documents(text)
    except RecursionError as error:
        raise _too_deep() from error


def _too_deep() -> NotTold:
    return NotTold(f"more than {MAX_DEPTH} levels of nesting")


_SPACE = "".join(map(chr, [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029]))
_SPACE += "\u202f\u205f\u3000"
"""Go's unicode.IsSpace."""


def is_json(text: bytes) -> bool:
    """Whether Kubernetes takes the text for JSON."""
    return text.decode(errors="replace").lstrip(_SPACE).startswith("{")


# JSON


_JSON_SPACE = re.compile(r"[ \t\n\r]*")


def _read_json(text: bytes) -> Document:
    """The only document of a text. Raises NotADocument."""
    decoded = _decoded(text)
    document, end = _json_document(decoded, 0)
    if end < len(decoded):
        raise _no_json(json.JSONDecodeError("Extra data", decoded, end))
    return document


def _json_documents(text: bytes) -> Iterator[Document]:
    """The documents of a text one after another: at least one. Raises NotADocument."""
    decoded, end = _decoded(text), 0
    while not end or end < len(decoded):
        document, end = _json_document(decoded, end)
        yield document


def _decoded(text: bytes) -> str:
    return scrubbed(text.decode(errors="surrogateescape"))


def _after_space(text: str, position: int) -> int:
    space = _JSON_SPACE.match(text, position)
    return space.end() if space else position


def _json_document(text: str, begin: int) -> tuple[Document, int]:
    """The document that begins there, or behind space, and where text goes on behind it. Raises NotADocument."""
    repeated: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> Members:
        names = [name for name, _ in pairs]
        repeated.extend(name for name in dict.fromkeys(names) if names.count(name) > 1)
        return Members(tuple((scrubbed(name), _scrubbed_value(content)) for name, content in pairs))

    def refuse(word: str) -> None:
        raise NotADocument(f"{word} is no number of JSON")

    decoder = json.JSONDecoder(object_pairs_hook=members, parse_int=Number, parse_float=Number, parse_constant=refuse)
    try:
        value, end = decoder.raw_decode(text, _after_space(text, begin))
    except json.JSONDecodeError as error:
        raise _no_json(error) from error
    _check_depth(value)
    return Document(value, tuple(dict.fromkeys(repeated))), _after_space(text, end)


def _no_json(error: json.JSONDecodeError) -> NotADocument:
    return NotADocument(f"{error.msg} in line {error.lineno}, column {error.colno}")


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


def _scrubbed_value(value: Any) -> Any:
    """The value with its texts scrubbed; those of objects are by now."""
    if isinstance(value, str):
        return scrubbed(value)
    if type(value) is list:
        return [_scrubbed_value(item) for item in value]
    return value


# YAML


def _yaml_documents(text: bytes) -> Iterator[Document]:
    source = Source(text)
    source.check_marks()
    try:
        for root in roots(text, source):
            decoder = Decoder()
            value = jsonable(decoder.decode(root))
            yield Document(value, tuple(dict.fromkeys(decoder.repeated)))
    except NotTold:
        raise
    except (yaml.YAMLError, NotADocument) as error:
        said = " ".join(str(error).split())
        raise (NotTold if source.may_be_read(error) else NotADocument)(said) from error
