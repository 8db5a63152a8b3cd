"""Name the fields of a user's manifest that do not exist: ``limts`` for ``limits`` would ask for nothing.

The API server tells them of every kind if the user may create it: it reads a dry run strictly, before it does anything
else. Otherwise ``input.unknown_fields`` knows those of pods, containers and resources.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from topomend.cli.input import unknown_fields
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.output.console import echo
from topomend.kube.errors import MAX_MESSAGE, APIError, Invalid
from topomend.kube.served_kinds import BUILT_IN

_UNKNOWN = re.compile(r'unknown field "([^"]+)"')
"""Source: sigs.k8s.io/json kubernetes.go, as apimachinery pkg/runtime/error.go joins them."""


def warn_of_unknown_fields(cluster: Cluster | None, documents: Iterable[Mapping[str, Any]], where: str) -> None:
    """Print a warning for each field that the API server does not know, or, if it does not say, that no pod has."""
    for content in documents:
        known_here = list(unknown_fields.warnings([content], where))
        for line in known_here:
            echo(line, err=True)
        message = _message(cluster, content) if cluster else ""
        for path in _UNKNOWN.findall(message):
            if not any(_is_same(path, line) for line in known_here):
                echo(f"warning: {where}: {path}: no such field; it is ignored", err=True)
        if _UNKNOWN.search(message) and len(message) >= MAX_MESSAGE:
            echo(f"warning: {where}: there may be more unknown fields", err=True)


def _message(cluster: Cluster, content: Mapping[str, Any]) -> str:
    """What the API server says of the fields in a dry run; empty if nothing, or if it does not get as far."""
    kind, api_version = content.get("kind", "Pod"), content.get("apiVersion", "v1")
    metadata = content.get("metadata")
    named = metadata.get("namespace") if isinstance(metadata, Mapping) else None
    try:
        built_in = (each.resource for each in BUILT_IN if (each.kind, each.resource.api_version) == (kind, api_version))
        resource = next(built_in, None) or cluster.client.resource_of(str(api_version), str(kind))
        if resource is not None:
            asked = {"apiVersion": api_version, "kind": kind, **content}
            cluster.client.check(resource, asked, str(named or cluster.namespace))
    except Invalid as error:
        return error.message
    except APIError:
        return ""
    return ""


def _is_same(path: str, line: str) -> bool:
    """Whether a warning is about this field: ``spec.containers[0].resources.limts``."""
    parent, _, name = path.rpartition(".")
    return f"{parent}: no such field {name!r}" in line
