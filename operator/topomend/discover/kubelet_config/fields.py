"""The fields of KubeletConfiguration in each release: their Go types, their defaults' names, the flags over them.

The facts are data (``fields.json``), written from the kubelet's own types and compared with them by a test.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any, TypeAlias

ROOT = "KubeletConfiguration"

Types: TypeAlias = Mapping[str, Mapping[str, str]]
"""Struct -> name of a field in JSON -> its Go type: ``*int32``, ``[]string``, ``map[string]string``, a struct."""


@lru_cache(maxsize=1)
def _facts() -> Mapping[str, Any]:
    text = (resources.files(__package__) / "fields.json").read_text()
    facts: Mapping[str, Any] = json.loads(text)
    return facts


@lru_cache(maxsize=2)
def types_of(minor: int) -> Types:
    """The types in Kubernetes 1.``minor``; a release that is newer than the known ones counts as the newest."""
    return {
        struct: dict(field for name, fact in fields.items() for field in _within(name, fact, minor))
        for struct, fields in _facts()["types"].items()
    }


def _within(name: str, fact: Any, minor: int) -> list[tuple[str, str]]:
    if isinstance(fact, str):
        return [(name, fact)]
    kind, first, last = fact
    return [(name, kind)] if first <= min(minor, _facts()["newest"]) <= last else []


def internal_names(struct: str) -> Mapping[str, str]:
    """Name of a field -> its name in the kubelet's own type, into which kubelets before 1.32 merge drop-ins."""
    names: Mapping[str, str] = _facts()["internal"].get(struct, {})
    return names


def defaulted() -> Mapping[str, Any]:
    """The names of the fields that have a value where nothing is set: true, or the names inside."""
    names: Mapping[str, Any] = _facts()["defaulted"]
    return names


def flags() -> Mapping[str, tuple[str, list[str], str]]:
    """Flag -> its type, the path of the field that it overrides, and the separator of a key and its value."""
    return {name: (kind, path, *(rest or ["="])) for name, (kind, path, *rest) in _facts()["flags"].items()}
