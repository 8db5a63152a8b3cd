"""JSON Schemas of topomend's kinds, for editors and for checks of manifests without a cluster (``make generate``).

Their folder is laid out as the catalogue datreeio/CRDs-catalog is, ``{group}/{kind}_{version}.json``, which kubeconform
and YAML language servers look up. A field that a kind does not have is an error there, while an API server leaves it
out. Owns the translation of OpenAPI's words. CEL rules (x-kubernetes-validations) are left to the API server.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deploy.manifests import CRDS, DEPLOY, files

from topomend.runtime.manifests import documents

SCHEMAS = DEPLOY / "schemas"

DRAFT = "http://json-schema.org/draft-07/schema#"
"""What yaml-language-server and kubeconform read alike."""

_OPEN = "x-kubernetes-preserve-unknown-fields"
_OF_API_SERVERS = "x-kubernetes-"


def schemas() -> Iterator[tuple[Path, str]]:
    """The path of each schema below SCHEMAS, and its text."""
    for path in files(CRDS):
        definition = documents(path.read_text())[0]["spec"]
        for version in definition["versions"]:
            kind = definition["names"]["kind"]
            schema = _of_kind(f"{definition['group']}/{version['name']}", kind, version["schema"]["openAPIV3Schema"])
            name = Path(definition["group"], f"{kind.lower()}_{version['name']}.json")
            yield name, json.dumps(schema, indent=1) + "\n"


def _of_kind(api_version: str, kind: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object of a kind: the API server's own fields are added, which OpenAPI takes for granted."""
    made = _translated(schema)
    own = {"apiVersion": {"const": api_version}, "kind": {"const": kind}, "metadata": {"type": "object"}}
    fields = {name: {**made["properties"].get(name, {}), **field} for name, field in own.items()}
    made["properties"] = {**fields, **{name: each for name, each in made["properties"].items() if name not in fields}}
    made["required"] = sorted({*made.get("required", ()), *own})
    return {"$schema": DRAFT, "title": f"{kind} {api_version}", **made}


def _translated(schema: Mapping[str, Any]) -> dict[str, Any]:
    made = {word: _value(word, content) for word, content in schema.items() if not word.startswith(_OF_API_SERVERS)}
    if "properties" in made and not schema.get(_OPEN):
        made.setdefault("additionalProperties", False)
    return made


def _value(word: str, content: Any) -> Any:
    """What stands beside a word of a schema, which may be another schema or several by their fields' names."""
    if word == "properties":
        return {name: _translated(field) for name, field in content.items()}
    if word == "items" or (word == "additionalProperties" and isinstance(content, dict)):
        return _translated(content)
    return content


def main() -> None:
    """Write the schemas."""
    for name, text in schemas():
        path = SCHEMAS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
