"""JSON schemas of the kinds of any release of Kubernetes, for kubeconform: from the OpenAPI of the release's module.

Strict: an object has no field that the release does not know.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from tools.go_programs import go

from topomend.sandbox.layout import cache_folder
from topomend.sandbox.releases.build import locked
from topomend.sandbox.releases.go_modules import ENVIRONMENT, minor_of

KindOf: TypeAlias = tuple[str, str]
"""apiVersion and kind."""

LOCATION = "{{ .ResourceKind }}{{ .KindSuffix }}.json"
"""The file of a kind below the folder of ``written``, as kubeconform looks it up."""

_ROOT = "#/definitions/"

_ALSO_NUMBERS = {"type": ["string", "number"]}
"""What OpenAPI calls a string, and manifests may write as a number."""

_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"


def written(version: str, kinds: Collection[KindOf]) -> Path:
    """A folder with the schemas of those of these kinds that the release, such as ``v1.30.14``, has.

    Downloads the release's module where Go has not cached it. Raises NotARelease, NotBuilt, SandboxUnavailable.
    """
    minor_of(version)
    folder = cache_folder() / "chart" / "schemas" / version
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock", lambda: None):
        for kind in kinds:
            path = folder / _file(kind)
            if not path.exists() and (name := _by_kind(version).get(kind)):
                path.write_text(json.dumps(_schema(_definitions(version), name)))
    return folder


def _file(kind: KindOf) -> str:
    group, _, version = kind[0].rpartition("/")
    return "-".join(part for part in (kind[1].lower(), group.partition(".")[0], version) if part) + ".json"


@cache
def _definitions(version: str) -> Mapping[str, Any]:
    module = cache_folder() / "chart" / "schemas" / version / "module"
    module.mkdir(parents=True, exist_ok=True)
    (module / "go.mod").write_text("module topomend.io/schemas\n")
    found = json.loads(go(module, ENVIRONMENT, "mod", "download", "-json", f"k8s.io/kubernetes@{version}"))
    text = (Path(found["Dir"]) / "api" / "openapi-spec" / "swagger.json").read_text()
    definitions: Mapping[str, Any] = json.loads(text)["definitions"]
    return definitions


@cache
def _by_kind(version: str) -> Mapping[KindOf, str]:
    return {
        (f"{known['group']}/{known['version']}".lstrip("/"), known["kind"]): name
        for name, definition in _definitions(version).items()
        for known in definition.get("x-kubernetes-group-version-kind", ())
        if len(definition["x-kubernetes-group-version-kind"]) == 1
    }


def _schema(definitions: Mapping[str, Any], name: str) -> dict[str, Any]:
    needed: dict[str, Any] = {}
    waiting = [name]
    while waiting:
        each = waiting.pop()
        if each not in needed:
            needed[each] = _ALSO_NUMBERS if each == _QUANTITY else _strict(definitions[each])
            waiting.extend(_references(needed[each]))
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": _ROOT + name}
    return head | {"definitions": needed}


def _strict(value: Any) -> Any:
    if isinstance(value, list):
        return [_strict(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("format") == "int-or-string":
        return _ALSO_NUMBERS
    made = {key: _strict(each) for key, each in value.items()}
    return {"additionalProperties": False} | made if isinstance(value.get("properties"), dict) else made


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _references(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key == "$ref" and isinstance(each, str):
                yield each.removeprefix(_ROOT)
            else:
                yield from _references(each)
