"""An object against a CRD's schema, for the few keywords our schemas use: what the API server would complain about."""

import re
from collections.abc import Iterator
from typing import Any

_TYPES: dict[str, type] = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


def complaints(content: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Everything in ``content`` that ``schema`` does not allow, as ``path: what is wrong``; unknown fields included."""
    if type(content) is not _TYPES[schema["type"]]:
        yield f"{path}: {content!r:.60} is not of type {schema['type']}"
        return
    if "enum" in schema and content not in schema["enum"]:
        yield f"{path}: {content!r} is none of {schema['enum']}"
    match content:
        case list():
            yield from _length(len(content), schema, "Items", path)
            for item in content:
                yield from complaints(item, schema["items"], f"{path}[]")
        case dict():
            yield from _object(content, schema, path)
        case str():
            yield from _length(len(content), schema, "Length", path)
            if not re.search(schema.get("pattern", ""), content):
                yield f"{path}: {content!r:.60} does not match {schema['pattern']}"
        case int() if schema["type"] == "integer":
            most = {"int32": (1 << 31) - 1, "int64": (1 << 63) - 1}[schema["format"]]
            if not schema["minimum"] <= content <= min(most, schema.get("maximum", most)):
                yield f"{path}: {content} is out of range"


def _object(content: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[str]:
    yield from (f"{path}.{name}: missing" for name in schema.get("required", ()) if name not in content)
    if "additionalProperties" in schema:
        yield from _length(len(content), schema, "Properties", path)
        for value in content.values():
            yield from complaints(value, schema["additionalProperties"], f"{path}{{}}")
        return
    for name, value in content.items():
        if name in schema.get("properties", {}):
            yield from complaints(value, schema["properties"][name], f"{path}.{name}")
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}.{name}: not in the schema"


def _length(length: int, schema: dict[str, Any], kind: str, path: str) -> Iterator[str]:
    if not schema.get(f"min{kind}", 0) <= length <= schema.get(f"max{kind}", length):
        yield f"{path}: {length} is not an allowed number of {kind.lower()}"


def fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every place in ``schema``, as path and sub-schema; ``[]`` is a list's element, ``{}`` a map's value."""
    yield path, schema
    for name, field_schema in schema.get("properties", {}).items():
        yield from fields(field_schema, f"{path}.{name}")
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if key in schema:
            yield from fields(schema[key], f"{path}{mark}")


def paths(content: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """The places of ``schema`` that ``content`` fills."""
    yield path
    if isinstance(content, list):
        for item in content:
            yield from paths(item, schema["items"], f"{path}[]")
    elif isinstance(content, dict) and "additionalProperties" in schema:
        for value in content.values():
            yield from paths(value, schema["additionalProperties"], f"{path}{{}}")
    elif isinstance(content, dict):
        for name in content.keys() & schema.get("properties", {}).keys():
            yield from paths(content[name], schema["properties"][name], f"{path}.{name}")
