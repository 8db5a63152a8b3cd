"""One YAML document as text, edited where its nodes are: comments, order and layout stay as they were written.

Owns positions and indentation; which edits make a template of a manifest is left to ``templates``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

Path = tuple[str, ...]
"""The keys, and the positions in lists, that lead from a document's root to a node."""


class NoSuchNode(LookupError):
    """The manifest no longer has a node that is to become a value."""


@dataclass(frozen=True)
class _Edit:
    start: int
    end: int
    text: str


@dataclass
class Manifest:
    """A document with its leading comments. ``origin`` names its file in errors."""

    text: str
    origin: str
    _edits: list[_Edit] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._root = yaml.compose(self.text)
        self.content: dict[str, Any] = yaml.safe_load(self.text)

    @property
    def kind(self) -> str:
        """The object's kind."""
        return str(self.content["kind"])

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.content["metadata"]["name"])

    def scalars(self) -> Iterator[tuple[Path, str]]:
        """Every scalar value with its path."""
        yield from _scalars(self._root, ())

    def replace(self, path: Path, text: str) -> None:
        """Put ``text`` in the place of a value that is on one line."""
        node = self._find(path)
        self._edits.append(_Edit(node.start_mark.index, node.end_mark.index, text))

    def replace_entry(self, path: Path, lines: Sequence[str]) -> None:
        """Put ``lines``, indented as the key was, in the place of a key and its whole value."""
        key = self._key(path)
        self._edits.append(
            _Edit(self._line(key.start_mark.index), self._end(path), _block(lines, key.start_mark.column))
        )

    def insert_before(self, path: Path, lines: Sequence[str]) -> None:
        """Add ``lines`` before a key, indented as it is."""
        key = self._key(path)
        start = self._line(key.start_mark.index)
        self._edits.append(_Edit(start, start, _block(lines, key.start_mark.column)))

    def append(self, path: Path, lines: Sequence[str]) -> None:
        """Add ``lines`` at the end of a list or a mapping that is written in block style, indented as its entries."""
        end = self._end(path)
        column = _column(self._find(path))
        self._edits.append(_Edit(end, end, _block(lines, column)))

    def insert_after(self, path: Path, lines: Sequence[str]) -> None:
        """Add ``lines`` after a key and its value, indented as the key is."""
        end = self._end(path)
        self._edits.append(_Edit(end, end, _block(lines, self._key(path).start_mark.column)))

    def insert_first(self, path: Path, lines: Sequence[str]) -> None:
        """Add ``lines`` before the first entry of a mapping, indented as it is."""
        first = self._find(path).value[0][0]
        start = self._line(first.start_mark.index)
        self._edits.append(_Edit(start, start, _block(lines, first.start_mark.column)))

    def guard(self, path: Path, condition: str) -> None:
        """Put an entry of a list in block style under a condition; whatever is appended to the list is not under it."""
        node = self._find(path)
        start, indent = self._line(node.start_mark.index), _column(self._find(path[:-1]))
        self._edits.append(_Edit(start, start, _block([f"{{{{- if {condition} }}}}"], indent)))
        end = self._end(path)
        self._edits.insert(0, _Edit(end, end, _block(["{{- end }}"], indent)))

    def column(self, path: Path) -> int:
        """The indentation of a key."""
        return int(self._key(path).start_mark.column)

    def inner_column(self, path: Path) -> int:
        """The indentation of the entries of a list or a mapping in block style."""
        return _column(self._find(path))

    def edited(self) -> str:
        """The text with all edits; those at one position in the order in which they were made."""
        text = self.text
        for edit in reversed(self._in_order()):
            text = text[: edit.start] + edit.text + text[edit.end :]
        return text

    def _in_order(self) -> list[_Edit]:
        return sorted(self._edits, key=lambda edit: (edit.start, edit.end))

    def _find(self, path: Path) -> Any:
        node = self._root
        for step in path:
            node = self._child(node, step, path)
        return node

    def _child(self, node: Any, step: str, path: Path) -> Any:
        if isinstance(node, yaml.SequenceNode) and step.isdigit() and int(step) < len(node.value):
            return node.value[int(step)]
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == step:
                    return value
        raise NoSuchNode(f"{self.origin}: {self.kind} {self.name} has no {'.'.join(path)}")

    def _key(self, path: Path) -> Any:
        *parents, last = path
        self._find(path)
        return next(key for key, _ in self._find(tuple(parents)).value if key.value == last)

    def _line(self, index: int) -> int:
        return self.text.rfind("\n", 0, index) + 1

    def _end(self, path: Path) -> int:
        """The start of the line after the value."""
        return self.text.index("\n", _last(self._find(path)).end_mark.index - 1) + 1


def _last(node: Any) -> Any:
    """The last value on one line in a node. The end of a block would be after the comments behind it."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style:
        return node
    last = node.value[-1]
    return _last(last[1] if isinstance(last, tuple) else last)


def _column(node: Any) -> int:
    if isinstance(node, yaml.MappingNode):
        return int(node.value[0][0].start_mark.column)
    return int(node.start_mark.column)


def _scalars(node: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(node, yaml.ScalarNode):
        yield path, node.value
    elif isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            yield from _scalars(item, (*path, str(position)))
    else:
        for key, value in node.value:
            yield from _scalars(value, (*path, key.value))


def _block(lines: Sequence[str], column: int) -> str:
    return "".join(f"{' ' * column}{line}\n" for line in lines)
