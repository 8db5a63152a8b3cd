"""A NodeTopology object as the event that it is: readable, not ready, or malformed."""

from datetime import datetime
from typing import Any

from topomend.replay.fit import prepare
from topomend.watch import events
from topomend.wire.node_topology import HEARTBEAT, heartbeat_age, read_conditions, read_node_topology


def published(content: dict[str, Any], date: datetime, now: float = 0.0) -> events.Published | events.Unreadable:
    """The event that a NodeTopology object is, seen at ``date``, which is ``now`` by the clock of the view.

    Raises MalformedObject.
    """
    if not content.get("status"):  # an agent creates the object first and writes its status after that
        return events.Unreadable(content["metadata"]["name"], "its agent has not published yet")
    state = read_node_topology(content)
    prepare(state)
    age = heartbeat_age(content, date)
    heartbeat = None if age is None else events.Heartbeat(content["status"][HEARTBEAT], age, now)
    return events.Published(state, content["metadata"].get("resourceVersion", ""), why_not_ready(content), heartbeat)


def why_not_ready(content: dict[str, Any]) -> str:
    """What a NodeTopology object's agent says that it does not know; empty where it is Ready, or has not said.

    Raises MalformedObject.
    """
    for each in read_conditions(content):
        if each.type == "Ready" and each.status != "True":
            return f"its agent says {each.reason}: {each.message}"
    return ""
