"""Which pods ask for a look, by their own status, and what the scheduler says of one that it binds to no node."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from topomend.cli.numa.cluster.cluster import Cluster
from topomend.kube.errors import APIError
from topomend.kube.resources import EVENTS
from topomend.model.pods.scheduling import REFUSAL_PREFIX

FAILED_SCHEDULING = "FailedScheduling"


class State(Enum):
    """What a pod does, as its status tells. Those that ask for a look come first."""

    REFUSED = "refused"
    WAITS = "waits for a node"
    RESIZE_WAITS = "waits for a resize"
    STARTS = "starts"
    RUNS = "runs"
    ENDED = "has ended"

    @property
    def key(self) -> str:
        """The state for programs: ``refused``, ``resizeWaits``."""
        first, *others = self.name.lower().split("_")
        return first + "".join(map(str.capitalize, others))

    @property
    def asks_for_a_look(self) -> bool:
        """Whether a user wants to know why."""
        return self in (State.REFUSED, State.WAITS, State.RESIZE_WAITS)


def state_of(content: Mapping[str, Any]) -> State:
    """The state of a Pod object. One that is being deleted has ended."""
    metadata, status = content["metadata"], content.get("status") or {}
    phase = status.get("phase", "Pending")
    if phase == "Failed" and str(status.get("message", "")).startswith(REFUSAL_PREFIX):
        return State.REFUSED
    if phase in ("Failed", "Succeeded") or metadata.get("deletionTimestamp"):
        return State.ENDED
    if not content.get("spec", {}).get("nodeName"):
        return State.WAITS
    if condition_of(content, "PodResizePending", "True"):
        return State.RESIZE_WAITS
    return State.RUNS if phase == "Running" else State.STARTS


def ended_words(content: Mapping[str, Any]) -> str:
    """``has ended (Evicted: The node was low on resource: memory.)``, or ``is being deleted``, of a pod that ended."""
    status = content.get("status") or {}
    phase = status.get("phase")
    if phase not in ("Failed", "Succeeded"):
        return "is being deleted"
    why = ": ".join(filter(None, (status.get("reason") or phase, str(status.get("message") or "").strip())))
    return f"{State.ENDED.value} ({why})"


def scheduling_words(content: Mapping[str, Any]) -> str:
    """``(Unschedulable): 0/3 nodes are available: ...``, by the pod's condition; empty if it has none."""
    condition = condition_of(content, "PodScheduled", "False")
    return f"({condition.get('reason', '')}): {condition['message']}" if condition.get("message") else ""


def scheduling_event(cluster: Cluster, content: Mapping[str, Any]) -> str:
    """The same by the newest event of a scheduler; empty without one, or if the user may not read events."""
    metadata = content.get("metadata", {})
    if not metadata.get("uid"):
        return ""
    fields = f"regarding.uid={metadata['uid']},reason={FAILED_SCHEDULING}"
    try:
        events = cluster.client.list(EVENTS, namespace=metadata.get("namespace", ""), fields=fields).items
    except APIError:
        return ""
    newest = max(events, key=event_time, default=None)
    return f"({FAILED_SCHEDULING}): {newest.get('note', '')}" if newest else ""


def condition_of(content: Mapping[str, Any], kind: str, status: str) -> Mapping[str, Any]:
    """The condition of this kind and status; empty without one, and in a file one may be null."""
    conditions = filter(None, (content.get("status") or {}).get("conditions") or ())
    return next((each for each in conditions if (each.get("type"), each.get("status")) == (kind, status)), {})


def event_time(event: Mapping[str, Any]) -> str:
    """When an event was last seen, in RFC 3339; the events API has it at three places."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("deprecatedLastTimestamp"), event.get("eventTime"))
    return max(str(time or "") for time in times)
