"""How a storm of refused pods went, by the API server's audit log alone."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.faults.judge import audited


@dataclass
class Storm:
    """What was done about the pods of one namespace; times in seconds since 1970.

    ``creations`` are by user; ``bound`` are the pods that a scheduler bound, each of which its kubelet refused or ran;
    ``told`` is a kubelet's first status of one; ``listed`` when the operator's next write of the brake's list was
    answered.
    """

    creations: dict[str, list[float]] = field(default_factory=dict)
    bound: list[float] = field(default_factory=list)
    told: float | None = None
    listed: float | None = None

    @property
    def reaction(self) -> float:
        """Seconds from the kubelet's first word until its owner was on the list."""
        assert self.told
        assert self.listed
        return self.listed - self.told

    @property
    def creators(self) -> set[str]:
        """Who created pods."""
        return set(self.creations)


def storm_in(log: Path, namespace: str) -> Storm:
    """The storm in a namespace that nobody used before."""
    found = Storm()
    for target, event, when in _requests(log):
        if target.get("resource") == "brakes" and target.get("name") == "topomend-brake":
            if found.told and not found.listed and event["verb"] == "patch":
                found.listed = when
        elif target.get("resource") == "pods" and target.get("namespace") == namespace:
            match event["verb"], target.get("subresource", ""):
                case "create", "":
                    found.creations.setdefault(event["user"]["username"], []).append(when)
                case "create", "binding":
                    found.bound.append(when)
                case "patch", "status" if event["user"]["username"].startswith("system:node:"):
                    found.told = found.told or when
    return found


def _requests(log: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any], float]]:
    for event in audited(log):
        if event.get("responseStatus", {}).get("code", 500) < 300:
            yield event.get("objectRef", {}), event, datetime.fromisoformat(event["stageTimestamp"]).timestamp()
