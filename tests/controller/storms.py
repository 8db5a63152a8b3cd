"""How a storm of refused pods went, by the API server's audit log alone."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.audit_log import audited


@dataclass
class Storm:
    """What was done about the pods of one namespace; times in seconds since 1970.

    ``creations`` are by user. ``bound`` is when a scheduler bound a pod, which its kubelet then refused or ran.
    ``first_status`` is when a kubelet first wrote a pod's status. ``listed`` is when the operator's next write of the
    brake's list was answered.
    """

    creations: dict[str, list[float]] = field(default_factory=dict)
    bound: list[float] = field(default_factory=list)
    first_status: float | None = None
    listed: float | None = None

    @property
    def reaction(self) -> float:
        """Seconds from the kubelet's first status until the owner was on the list."""
        assert self.first_status
        assert self.listed
        return self.listed - self.first_status

    @property
    def creators(self) -> set[str]:
        """Who created pods."""
        return set(self.creations)


def storm_in(log: Path, namespace: str) -> Storm:
    """The storm in a namespace that nobody used before."""
    storm = Storm()
    lists, refused = list[float](), float("inf")
    for target, event, when in _requests(log):
        if target.get("resource") == "brakes" and target.get("name") == "topomend-brake":
            if event["verb"] == "patch":
                lists.append(when)
        elif target.get("resource") == "pods" and target.get("namespace") == namespace:
            match event["verb"], target.get("subresource", ""):
                case "create", "":
                    storm.creations.setdefault(event["user"]["username"], []).append(when)
                case "create", "binding":
                    storm.bound.append(when)
                case "patch", "status" if event["user"]["username"].startswith("system:node:"):
                    storm.first_status = storm.first_status or when
                    refused = min(refused, _time(event["requestReceivedTimestamp"]))
    # The operator hears of a status as soon as it is stored, and may be answered before the kubelet is.
    storm.listed = next((when for when in lists if when > refused), None)
    return storm


def _requests(log: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any], float]]:
    for event in audited(log):
        if event.get("responseStatus", {}).get("code", 500) < 300:
            yield event.get("objectRef", {}), event, _time(event["stageTimestamp"])


def _time(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
