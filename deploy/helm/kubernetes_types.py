"""JSON schemas of types of Kubernetes' own API, from the models of its Python client: strict, and without their prose.

Owns what the models leave open: quantities, which YAML may hold as numbers.
"""

from typing import Any

from kubernetes import client

QUANTITIES = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}

PROSE = {"description", "title", "default"}


def reference(name: str) -> dict[str, str]:
    """A reference to a type, such as ``V1Toleration``."""
    return {"$ref": f"#/definitions/{name}"}


def definitions(*names: str) -> dict[str, Any]:
    """The schemas of these types and of those that they consist of, by name."""
    made: dict[str, Any] = {}
    for name in names:
        schema = getattr(client, name).model_json_schema(ref_template="#/definitions/{model}")
        made |= schema.pop("$defs", {}) | {name: schema}
    return {name: _plain(made[name]) for name in sorted(made)}


def _plain(schema: Any) -> Any:
    """The schema without prose, and without null as a value of a field that may be left out."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        return _plain(kinds[0])
    plain = {key: _plain(value) for key, value in schema.items() if key not in PROSE and key != "properties"}
    if kinds:
        plain["anyOf"] = _plain(kinds)
    if "properties" in schema:
        plain["properties"] = {
            name: QUANTITIES if name in ("requests", "limits") else _plain(value)
            for name, value in schema["properties"].items()
        }
    return plain
