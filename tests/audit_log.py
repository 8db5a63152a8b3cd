"""The fate of pods by the API server's audit log alone: creations, deletions and bindings."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

PodName = tuple[str, str]
"""Namespace and name."""


@dataclass
class History:
    """One name's life by the times (seconds since 1970) of what was done to it, in the order of the log.

    ``patched`` are changes of the pod itself; ``reported`` are statuses that a kubelet wrote; ``bound`` are the uids
    that a scheduler bound to a node, and ``bound_at`` when.
    """

    created: list[float] = field(default_factory=list)
    deleted: list[float] = field(default_factory=list)
    patched: list[float] = field(default_factory=list)
    reported: list[float] = field(default_factory=list)
    bound: list[str] = field(default_factory=list)
    bound_at: list[float] = field(default_factory=list)

    @property
    def relaunch(self) -> tuple[float, float] | None:
        """When the first pod was refused, and when the replacement that came to a node was ungated."""
        if not self.bound_at or not self.reported:
            return None
        ungate = [time for time in self.patched if time < self.bound_at[-1]]
        return (self.reported[0], ungate[-1]) if ungate else None


def audited(log: Path) -> Iterator[dict[str, Any]]:
    """The events of an API server's audit log, one a line; older parts of it lie beside it under dated names.

    A last line that is still being written is left out.
    """
    for part in (*sorted(log.parent.glob(f"{log.stem}-*{log.suffix}")), log):
        with part.open() as lines:
            for line in lines:
                if line.strip() and line.endswith("\n"):
                    yield json.loads(line)


def histories(log: Path) -> dict[PodName, History]:
    """What became of every pod name, by the requests about pods that succeeded."""
    fates: dict[PodName, History] = {}
    for event in audited(log):
        target = event.get("objectRef", {})
        if target.get("resource") != "pods" or event["responseStatus"]["code"] >= 300:
            continue
        name = (target.get("namespace", ""), target.get("name", ""))
        _add(fates.setdefault(name, History()), event, target)
    return fates


def _add(history: History, event: dict[str, Any], target: dict[str, Any]) -> None:
    when = datetime.fromisoformat(event["stageTimestamp"]).timestamp()
    match event["verb"], target.get("subresource", ""):
        case "create", "":
            history.created.append(when)
        case "delete", "":
            history.deleted.append(when)
        case "patch", "":
            history.patched.append(when)
        case "patch", "status" if event["user"]["username"].startswith("system:node:"):
            history.reported.append(when)
        case "create", "binding":
            history.bound.append(target["uid"])
            history.bound_at.append(when)
