"""What became of pods, by the API server's audit log alone: who was created, deleted, and bound to a node."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PodName = tuple[str, str]
"""Namespace and name."""


@dataclass
class History:
    """One name's life in the order of the log: times (RFC 3339), and the uids that a scheduler bound to a node."""

    created: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    bound: list[str] = field(default_factory=list)


def audited(log: Path) -> Iterator[dict[str, Any]]:
    """The events of an API server's audit log, one a line; older parts of it lie beside it under dated names."""
    for part in (*sorted(log.parent.glob(f"{log.stem}-*{log.suffix}")), log):
        with part.open() as lines:
            for line in lines:
                if line.strip():
                    yield json.loads(line)


def histories(log: Path) -> dict[PodName, History]:
    """What became of every pod name, by the requests about pods that succeeded."""
    found: dict[PodName, History] = {}
    for event in audited(log):
        target = event.get("objectRef", {})
        if target.get("resource") != "pods" or event["responseStatus"]["code"] >= 300:
            continue
        name, verb = target.get("name"), event["verb"]
        history = found.setdefault((target.get("namespace", ""), name or ""), History())
        match verb, target.get("subresource", ""):
            case "create", "":
                history.created.append(event["stageTimestamp"])
            case "delete", "":
                history.deleted.append(event["stageTimestamp"])
            case "create", "binding":
                history.bound.append(target["uid"])
    return found
