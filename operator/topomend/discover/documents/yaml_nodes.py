"""YAML as nodes: the events of libyaml's parser, checked where Kubernetes' parser may differ from it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

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

from topomend.discover.documents.text import decoded
from topomend.discover.documents.value import MAX_DEPTH, NotADocument, NotTold

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser; PyYAML's own, which differs in the use of tabs, where PyYAML was built without libyaml. Only events
are asked for: the composer of the former crashes the process over deeply nested input."""


@dataclass(slots=True, eq=False)
class Node:
    """A node of the document. ``kind`` is scalar, sequence, mapping or alias, as in decode.go."""

    kind: str
    text: str = ""
    tag: str = ""
    implicit: bool = False
    children: list["Node"] = field(default_factory=list)
    line: int = 0


class Source:
    """The text behind the events. Knows where libyaml and Kubernetes' parser, a port of an older one, may differ."""

    def __init__(self, text: bytes) -> None:
        self._text = decoded(text, errors="replace")  # without the byte order mark, for marks do not count it

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


def roots(text: bytes, source: Source) -> Iterator[Node]:
    """The root of each document of ``text``. Raises NotADocument, yaml.YAMLError and RecursionError."""
    events = _events(text or b"\n")
    for event in events:
        if isinstance(event, DocumentStartEvent):
            if event.version not in (None, (1, 1)):
                raise NotADocument("found incompatible YAML document: a %YAML directive names a version other than 1.1")
            root = _composed(events, {}, source)
            next(events)  # The document's end: what follows its last node must be a document of its own.
            assert root is not None  # noqa: S101 - an empty document has an empty scalar
            yield root


def _events(text: bytes) -> Iterator[Event]:
    parser = _PARSER(text)
    while parser.check_event():
        yield parser.get_event()


def _composed(
    events: Iterator[Event], anchors: dict[str, Node], source: Source, depth: int = 0, in_flow: bool = False
) -> Node | None:
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
        return Node("alias", event.anchor, children=[anchors[event.anchor]], line=line)
    if isinstance(event, ScalarEvent):
        source.check(event, in_flow=in_flow)
        node = Node("scalar", event.value, event.tag or "", event.implicit[0], line=line)
    else:
        node = Node("sequence" if isinstance(event, SequenceStartEvent) else "mapping", line=line)
    assert isinstance(event, ScalarEvent | SequenceStartEvent | MappingStartEvent)  # noqa: S101 - no other is left
    if event.anchor is not None:
        anchors[event.anchor] = node
    if not isinstance(event, ScalarEvent):
        flow = bool(event.flow_style)
        node.children.extend(iter(lambda: _composed(events, anchors, source, depth + 1, flow), None))
    return node
