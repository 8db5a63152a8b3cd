"""YAML's nodes as Go's values (go.yaml.in/yaml/v2 decode.go): aliases, merges, and names that stand twice."""

from typing import Any, TypeAlias

from topomend.discover.documents.resolve import PREFIX, resolved
from topomend.discover.documents.value import NotADocument, NotTold
from topomend.discover.documents.yaml_nodes import Node

MAX_DECODED = 200_000
"""Values of a document after its aliases are followed: a second of work. Kubernetes follows some more."""

MAX_ALIASED, MIN_DECODED, MAX_RATIO = 100, 1000, 0.99
"""Values that aliases may repeat, and their share of a larger document (decode.go:allowedAliasRatio)."""

_Key: TypeAlias = tuple[type, Any]
"""Python's dict takes 1, 1.0 and True for one key, so keys carry their type."""


class Decoder:
    """Decodes one document. ``repeated`` are the names that stand twice in one of its maps."""

    def __init__(self) -> None:
        self.repeated: list[str] = []
        self._active: set[int] = set()
        self._decoded = self._aliased = self._alias_depth = 0

    def decode(self, node: Node) -> Any:
        """A scalar, a list, or a dict by key."""
        self._count()
        return self._decode(node)

    def _decode(self, node: Node) -> Any:
        if node.kind == "alias":
            return self._alias(node)
        if node.kind == "sequence":
            return [self.decode(child) for child in node.children]
        if node.kind == "mapping":
            return self._mapping(node, {})
        return resolved(node)

    def _count(self) -> None:
        self._decoded += 1
        self._aliased += self._alias_depth > 0
        if self._decoded > MAX_DECODED:
            raise NotTold(f"more than {MAX_DECODED} values")
        if self._aliased > MAX_ALIASED and self._decoded > MIN_DECODED and self._aliased > MAX_RATIO * self._decoded:
            raise NotADocument("aliases repeat too much of the document")

    def _alias(self, node: Node, into: dict[_Key, Any] | None = None) -> Any:
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

    def _mapping(self, node: Node, into: dict[_Key, Any]) -> dict[_Key, Any]:
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

    def _merge(self, node: Node, into: dict[_Key, Any]) -> None:
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


def _is_merge(node: Node) -> bool:
    return node.kind == "scalar" and node.text == "<<" and (node.implicit or node.tag == PREFIX + "merge")
